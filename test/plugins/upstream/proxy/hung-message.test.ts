import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Ending } from '../../../support/ending.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { proxyFixture, send } from './proxy-fixture.js';

const ben = 'ben@partner.example';

/** A host that behaves so, one behind it that is good, and a rule that names both. */
async function twoHosts(t: Ending, steps: SinkScript['steps'] & object, seconds = 30, protocol = 'esmtp') {
  const script: SinkScript = protocol === 'lmtp' ? { protocol: 'lmtp' } : { capabilities: ['PIPELINING'] };
  const hung = await SmtpSink.start(t, { ...script, steps });
  const good = await SmtpSink.start(t, script);
  const hosts = [`127.0.0.1:${hung.port}`, `127.0.0.1:${good.port}`];
  const limits = { timeouts: { dataSeconds: 1 }, breaker: { failures: 2, seconds } };
  const { client, health } = await proxyFixture(t, {
    options: { rules: [{ rcpt: '.*@partner\\.example', hosts, protocol, tls: 'never', ...limits }] },
  });
  return { hung, good, client: await client(), health };
}

describe('a host that hangs or leaves at the message opens its breaker', { concurrency: true }, () => {
  const cases: readonly (readonly [name: string, steps: SinkScript['steps'] & object, protocol?: string])[] = [
    ['hangs at DATA', { data: { stall: true } }],
    ['hangs behind the dot', { dot: { silent: true } }],
    ['leaves behind the dot', { dot: { close: '' } }],
    ['talks nonsense behind the dot', { dot: { raw: 'hello\r\n' } }],
    ['answers one of its LMTP recipients', { dot: [undefined, { silent: true }] }, 'lmtp'],
  ];
  for (const [name, steps, protocol] of cases) {
    test(`when it ${name}`, async (t) => {
      const { good, client, health } = await twoHosts(t, steps, 30, protocol);
      const to = protocol === 'lmtp' ? [ben, `x${ben}`] : [ben];
      for (let n = 0; n < 2; n += 1) {
        assert.equal(health.components()['proxy']?.status, 'up');
        await send(client, ...to);
      }
      assert.equal(health.components()['proxy']?.status, 'degraded');
      assert.equal(good.messages.length, 0, 'the server may have the message');
      assert.match(await send(client, ben), /^250 /);
      assert.equal(good.messages.length, 1);
    });
  }

  test('when it disconnects at DATA: the next host gets the message', async (t) => {
    const { hung, good, client, health } = await twoHosts(t, { data: { close: '' } });
    for (let n = 0; n < 2; n += 1) assert.match(await send(client, ben), /^250 /);
    assert.equal(health.components()['proxy']?.status, 'degraded');
    const { connections } = hung;
    assert.match(await send(client, ben), /^250 /);
    assert.deepEqual([hung.connections, good.messages.length], [connections, 3]);
  });
});

describe('the breaker of a host that hung at the message', { concurrency: true }, () => {
  test('is closed by a message that is answered, and by nothing less', async (t) => {
    const { hung, good, client, health } = await twoHosts(t, { dot: { silent: true } }, 1);
    for (let n = 0; n < 2; n += 1) await send(client, ben);
    const pause = () => new Promise((resolve) => setTimeout(resolve, 1100));
    await pause();
    assert.match(await send(client, ben), /^451 4\.4\.2 /, 'one message tries it');
    assert.match(await send(client, ben), /^250 /);
    assert.equal(good.messages.length, 1);
    hung.script = {};
    await pause();
    assert.match(await send(client, ben), /^250 /);
    assert.equal(health.components()['proxy']?.status, 'up');
    assert.equal(good.messages.length, 1);
  });

  test('does not count a no to the message', async (t) => {
    const rules = ['451 4.3.0 Later', '554 5.6.0 No', '452 4.3.1 Later', '550 5.7.1 No'];
    const { good, client, health } = await twoHosts(t, { data: [undefined, undefined, '451 4.3.0 Later'], dot: rules });
    for (let n = 0; n < 6; n += 1) assert.match(await send(client, ben), /^[45]5/);
    assert.equal(health.components()['proxy']?.status, 'up');
    assert.equal(good.connections, 0);
  });
});
