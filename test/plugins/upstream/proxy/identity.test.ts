import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { next, reject } from '../../../../core/pipeline/verdict.js';
import { ProxyOptions } from '../../../../plugins/upstream/proxy/options.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { address, proxyFixture, said, send, text, usual } from './proxy-fixture.js';

const partner = 'ben@partner.example';

/** A rule whose server wants to know who the client is. */
async function identified(t: TestContext, script: SinkScript = {}, more: object = {}) {
  const sink = await SmtpSink.start(t, { capabilities: ['XCLIENT ADDR'], ...script });
  const rule = { name: 'partner', rcpt: '.*@partner\\.example', hosts: ['127.0.0.1'], port: sink.port, xclient: true };
  const fixture = await proxyFixture(t, { options: { rules: [{ ...rule, ...usual, ...more }] } });
  const told = (): number => sink.commands.filter((line) => line.startsWith('XCLIENT')).length;
  return { sink, fixture, told, client: await fixture.client() };
}

test('a message whose connection was lost after RCPT is sent over another one of its client', async (t) => {
  const { sink, told, client } = await identified(t);
  await address(client, partner);
  sink.cut();
  assert.match(said(await client.data(text)), /^250 /);
  assert.deepEqual([sink.messages.length, sink.connections, told()], [1, 2, 2]);
});

test('a message that has lost a recipient here is sent over the connection of its client', async (t) => {
  const { sink, fixture, told, client } = await identified(t);
  fixture.pipeline.on('site', 'rcptTo', { order: 'last' }, ({ address: one }) =>
    one.local === 'evil' ? reject(550, '5.7.1', 'Not him') : next(),
  );
  await address(client, 'evil@partner.example', partner);
  assert.match(said(await client.data(text)), /^250 /);
  assert.deepEqual([sink.messages[0]?.recipients, sink.connections, told()], [[partner], 1, 1]);
});

test('connections are closed when their rule changes, those in use after the message', async (t) => {
  const { sink, fixture, client } = await identified(t);
  await send(client, partner);
  const busy = await fixture.client();
  await address(busy, partner);
  assert.equal(sink.open, 2);
  await fixture.running.reconfigure?.(ProxyOptions.parse({ rules: [] }));
  await sink.until(({ open }) => open === 1);
  assert.match(said(await busy.data(text)), /^250 /);
  await sink.until(({ open }) => open === 0);
});

test('a client who begins anew before the server has forgotten the last transaction strands no connection', async (t) => {
  const rset = () => ({ after: pause(100), say: '250 2.0.0 Forgotten' });
  const { sink, client } = await identified(t, { steps: { rset } }, { maxConnections: 2 });
  for (let n = 0; n < 4; n += 1) {
    assert.match((await address(client, partner))[0] ?? '', /^250 /);
    await client.command('RSET');
    assert.match((await address(client, partner))[0] ?? '', /^250 /);
    await client.command('RSET');
    await pause(300);
  }
  client.close();
  await sink.until(({ open }) => open === 0);
});
