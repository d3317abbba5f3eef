import assert from 'node:assert/strict';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { lmtp } from '../../../../plugins/upstream/lmtp/index.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { address, proxyFixture, said } from '../proxy/proxy-fixture.js';

test('a message that cannot be read for the second server is queued for it, for the first one has it', async (t) => {
  let forget = (): void => undefined;
  const dot = (): undefined => {
    forget();
  };
  const first = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot } });
  const second = await SmtpSink.start(t, { protocol: 'lmtp', capabilities: ['PIPELINING'] });
  const routes = [first, second].map(({ port }, index) => ({
    domains: [`route${index}.example`],
    hosts: [`127.0.0.1:${port}`],
    tls: 'never',
  }));
  const { client, engine, holders } = await proxyFixture(t, { plugin: lmtp, options: { routes } });
  forget = () => {
    for (const name of readdirSync(engine.spoolFolder)) rmSync(join(engine.spoolFolder, name), { recursive: true });
  };
  const session = await client();
  await address(session, 'anna@route0.example', 'ben@route1.example');
  const large = `Subject: x\r\n\r\n${`${'x'.repeat(70)}\r\n`.repeat(20_000)}`;
  assert.match(said(await session.data(large)), /^250 /);
  assert.deepEqual([first.messages.length, second.messages.length], [1, 0]);
  assert.deepEqual(holders(), ['retry ben@route1.example']);
});
