import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { next, reject } from '../../../core/smtp/verdict.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { address, proxyGround, said, text, usual } from './proxy-ground.js';

const partner = 'ben@partner.example';

/** A rule whose server wants to know who the client is. */
async function identified(t: TestContext) {
  const sink = await SmtpSink.start(t, { capabilities: ['XCLIENT ADDR'] });
  const rule = { name: 'partner', rcpt: '.*@partner\\.example', hosts: ['127.0.0.1'], port: sink.port, xclient: true };
  const ground = await proxyGround(t, { options: { rules: [{ ...rule, ...usual }] } });
  const told = (): number => sink.commands.filter((line) => line.startsWith('XCLIENT')).length;
  return { sink, ground, told, client: await ground.client() };
}

test('a message whose connection was lost behind RCPT is sent over another one of its client', async (t) => {
  const { sink, told, client } = await identified(t);
  await address(client, partner);
  sink.cut();
  assert.match(said(await client.data(text)), /^250 /);
  assert.deepEqual([sink.messages.length, sink.connections, told()], [1, 2, 2]);
});

test('a message that has lost a recipient here is sent over the connection of its client', async (t) => {
  const { sink, ground, told, client } = await identified(t);
  ground.pipeline.on('site', 'rcptTo', { order: 'last' }, ({ address: one }) =>
    one.local === 'evil' ? reject(550, '5.7.1', 'Not him') : next(),
  );
  await address(client, 'evil@partner.example', partner);
  assert.match(said(await client.data(text)), /^250 /);
  assert.deepEqual([sink.messages[0]?.recipients, sink.connections, told()], [[partner], 1, 1]);
});
