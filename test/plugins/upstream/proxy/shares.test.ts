import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { lmtp } from '../../../../plugins/upstream/lmtp/index.js';
import { proxy } from '../../../../plugins/upstream/proxy/index.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { type Behaviour, type SinkMoment, type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { address, proxyFixture, said, text } from './proxy-fixture.js';

const partner = 'ben@partner.example';
const ruled = (server: object) => ({ rules: [{ rcpt: '.*@partner\\.example', ...server }] });
const kinds = [
  { title: 'proxy', plugin: proxy, protocol: 'smtp', optionsOf: ruled },
  {
    title: 'xclient',
    plugin: proxy,
    protocol: 'smtp',
    optionsOf: (server: object) => ruled({ ...server, xclient: true }),
  },
  {
    title: 'lmtp',
    plugin: lmtp,
    protocol: 'lmtp',
    optionsOf: (server: object) => ({ routes: [{ domains: ['partner.example'], ...server }] }),
  },
] as const;

/** A server that takes four connections, and clients at addresses that count. */
async function shared(
  t: TestContext,
  { plugin, protocol, optionsOf }: (typeof kinds)[number],
  script: SinkScript = {},
) {
  const sink = await SmtpSink.start(t, { protocol, capabilities: ['XCLIENT ADDR'], ...script });
  const server = { hosts: ['127.0.0.1'], port: sink.port, tls: 'never', maxConnections: 4 };
  const { engine } = await proxyFixture(t, {
    plugin,
    options: optionsOf({ ...server, timeouts: { answerSeconds: 1 } }),
    limits: { exemptLoopback: false },
  });
  const client = (localAddress: string) => SmtpClient.greeted({ port: engine.port(), localAddress });
  return { sink, client };
}

for (const kind of kinds) {
  test(`${kind.title}: a client that keeps its transactions open leaves half of the connections to others`, async (t) => {
    const { client } = await shared(t, kind);
    const greedy = [await client('127.0.0.2'), await client('127.0.0.2'), await client('127.0.0.2')] as const;
    const replies: string[] = [];
    for (const one of greedy) replies.push(...(await address(one, partner)));
    assert.match(replies.join(' '), /^250 .* 250 .* 451 4\.[34]\.\d /);
    for (const other of ['127.0.0.3', '127.0.0.4']) {
      assert.match((await address(await client(other), partner))[0] ?? '', /^250 /, other);
    }
    assert.match(said(await greedy[0].data(text)), /^250 /);
    await greedy[2].command('RSET');
    assert.match((await address(greedy[2], partner))[0] ?? '', /^250 /, 'it has a place again');
  });
}

test('a connection that a client keeps without a transaction gives way', async (t) => {
  const { sink, client } = await shared(t, kinds[1]);
  for (let n = 0; n < 3; n += 1) {
    const one = await client('127.0.0.2');
    assert.match((await address(one, partner))[0] ?? '', /^250 /);
    await one.command('RSET');
    await sink.until(({ commands }) => commands.filter((line) => line === 'RSET').length === n + 1);
  }
  await sink.until(({ connections, open }) => connections === 3 && open === 2);
});

const blocked = '550 5.7.1 Client host blocked';
const xclient = (answer: Behaviour) => ({
  xclient: ({ line }: SinkMoment) => (line.includes('127.0.0.2') ? answer : undefined),
});
/** To XCLIENT, or to the EHLO that follows it. */
const refusals: Readonly<Record<string, SinkScript['steps'] & object>> = {
  554: xclient('554 5.7.1 Client host blocked'),
  421: xclient('421 4.7.0 Client host blocked'),
  'the end of the connection': xclient({ close: '' }),
  'a refused EHLO': {
    ehlo: ({ nth }) => (nth % 2 === 1 && nth < 8 ? blocked : undefined),
    helo: blocked,
  },
};

for (const [answer, steps] of Object.entries(refusals)) {
  test(`a client that the server refuses opens no breaker: ${answer}`, async (t) => {
    const { client } = await shared(t, kinds[1], { steps });
    const refused = await client('127.0.0.2');
    for (let n = 0; n < 4; n += 1) {
      assert.match((await address(refused, partner))[0] ?? '', /^451 /);
      await refused.command('RSET');
    }
    assert.deepEqual(await address(await client('127.0.0.3'), partner), ['250 2.1.5 Recipient fine']);
  });
}
