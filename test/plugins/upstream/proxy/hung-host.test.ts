import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { selfSigned } from '../../../support/certificate.js';
import { type Rule, type SinkStep, SmtpSink } from '../../../support/smtp-sink.js';
import { address, proxyFixture, send } from './proxy-fixture.js';

const ben = 'ben@partner.example';

const cases: readonly (readonly [step: SinkStep, rule: Rule, capabilities: readonly string[]])[] = [
  ['greeting', { silent: true }, []],
  ['mail', { stall: true }, ['PIPELINING']],
  ['mail', { stall: true }, []],
  ['rcpt', { stall: true }, ['PIPELINING']],
  ['rcpt', { stall: true }, []],
];

describe(
  'a host that hangs for all its time opens its breaker: the next one has the mail',
  { concurrency: true },
  () => {
    for (const [step, rule, capabilities] of cases) {
      test(`at ${step}, with ${capabilities.join() || 'nothing'}`, async (t) => {
        const hung = await SmtpSink.start(t, { capabilities, steps: { [step]: rule } });
        const good = await SmtpSink.start(t, { capabilities });
        const hosts = [`127.0.0.1:${hung.port}`, `127.0.0.1:${good.port}`];
        const limits = { timeouts: { answerSeconds: 1 }, breaker: { failures: 2 } };
        const { client, health } = await proxyFixture(t, {
          options: { rules: [{ rcpt: '.*@partner\\.example', hosts, tls: 'never', ...limits }] },
        });
        const session = await client();
        for (let n = 0; n < 2; n += 1) {
          assert.match((await address(session, ben))[0] ?? '', /^451 4\.4\.2 /);
          await session.command('RSET');
        }
        assert.match(health.components()['proxy']?.why ?? '', /did not answer in time/);
        assert.match(await send(session, ben), /^250 /);
        assert.equal(good.messages.length, 1);
      });
    }
  },
);

describe('a host that leaves at the first RCPT is passed over', () => {
  for (const capabilities of [['PIPELINING'], []]) {
    test(`with ${capabilities.join() || 'nothing'}`, async (t) => {
      const leaving = await SmtpSink.start(t, { capabilities, steps: { rcpt: { close: '' } } });
      const good = await SmtpSink.start(t, { capabilities });
      const hosts = [`127.0.0.1:${leaving.port}`, `127.0.0.1:${good.port}`];
      const { client } = await proxyFixture(t, {
        options: { rules: [{ rcpt: '.*@partner\\.example', hosts, tls: 'never' }] },
      });
      assert.match(await send(await client(), ben), /^250 /);
      assert.deepEqual([leaving.connections, good.messages.length], [1, 1]);
    });
  }
});

test('a host whose STARTTLS hangs has the mail without TLS, where TLS is not required', async (t) => {
  const hung = await SmtpSink.start(t, { tls: selfSigned(), steps: { starttls: { silent: true } } });
  const { client } = await proxyFixture(t, {
    options: {
      rules: [{ rcpt: '.*@partner\\.example', hosts: [`127.0.0.1:${hung.port}`], timeouts: { answerSeconds: 2 } }],
    },
  });
  assert.match(await send(await client(), ben), /^250 /);
  assert.equal(hung.messages.length, 1);
});
