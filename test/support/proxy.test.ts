import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { atEnd, type Ending } from './ending.js';
import { Proxy } from './proxy.js';
import { untilTrue } from './until.js';

interface Path {
  readonly proxy: Proxy;
  readonly client: Socket;
  /** What the server has got, and what the client has. */
  readonly got: { server: string; client: string };
}

/** Client, proxy and a server that says `re: ` to everything. */
async function path(test: Ending): Promise<Path> {
  const got = { server: '', client: '' };
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      got.server += bytes.toString();
      socket.write(`re: ${bytes.toString()}`);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxy = await Proxy.start(test, (server.address() as AddressInfo).port);
  const client = connect(proxy.port, '127.0.0.1');
  client.on('error', () => undefined);
  client.on('data', (bytes) => (got.client += bytes.toString()));
  atEnd(test, () => {
    client.destroy();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  client.write('a');
  await untilTrue('an answer', () => got.client === 're: a');
  return { proxy, client, got };
}

test('a silent network holds everything back until it heals', async (t) => {
  const { proxy, client, got } = await path(t);
  proxy.silence();
  client.write('b');
  await pause(50);
  assert.equal(got.server, 'a');
  proxy.heal();
  await untilTrue('the answer', () => got.client === 're: are: b');
});

test('a network that is silent in one direction lets the other through', async (t) => {
  const { proxy, client, got } = await path(t);
  proxy.silence('toClient');
  client.write('b');
  await untilTrue('the question', () => got.server === 'ab');
  await pause(50);
  assert.equal(got.client, 're: a');
  proxy.heal();
  await untilTrue('the answer', () => got.client === 're: are: b');
});

test('a delay applies to each direction', async (t) => {
  const { proxy, client, got } = await path(t);
  proxy.delay(60);
  const start = performance.now();
  client.write('b');
  await untilTrue('the answer', () => got.client === 're: are: b');
  assert.ok(performance.now() - start >= 120);
});

test('a cut ends all connections; the next one is served', async (t) => {
  const { proxy, client } = await path(t);
  const closed = once(client, 'close');
  proxy.cut();
  await closed;
  const next = connect(proxy.port, '127.0.0.1');
  next.write('c');
  const [answer] = (await once(next, 'data')) as [Buffer];
  assert.equal(answer.toString(), 're: c');
  next.destroy();
});

test('a dropped answer: the server has been asked, the client sees the end', async (t) => {
  const { proxy, client, got } = await path(t);
  const dropped = proxy.dropAnswer('COMMIT');
  const closed = once(client, 'close');
  client.write('b');
  await untilTrue('another answer', () => got.client === 're: are: b');
  client.write('COMMIT');
  await Promise.all([dropped, closed]);
  assert.deepEqual(got, { server: 'abCOMMIT', client: 're: are: b' });
});
