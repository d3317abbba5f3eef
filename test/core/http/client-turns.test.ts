import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { after, before, beforeEach, test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { dataAndEnd, HttpConnection } from '../../../core/http/shell/connection.js';
import { ConnectionTable } from '../../../core/http/shell/connection-table.js';
import { untilTrue } from '../../support/until.js';
import { basic, openShell, passwords, type OpenedShell, type Who } from './opened-shell.js';
import { rawExchange, statusOf } from './raw-exchange.js';

let opened: OpenedShell;
/** Requests at work, the most of them at a time, and all that came, by their numbers. */
const work = { now: 0, most: 0, begun: [] as number[] };
let end: () => void;
let ended: Promise<void>;

/** Holds the work that begins from now on until `end` is called. */
function hold(): void {
  ended = new Promise((resolve) => {
    end = resolve;
  });
}

const slow = defineEndpoint({
  method: 'GET',
  path: '/slow',
  summary: 'Wait',
  group: 'Demo',
  access: 'public',
  query: z.strictObject({ n: z.int().min(0).max(10_000).default(0) }),
  handle: async ({ query }) => {
    work.begun.push(query.n);
    work.now += 1;
    work.most = Math.max(work.most, work.now);
    await ended;
    work.now -= 1;
    return { n: query.n };
  },
});

const stream = defineEndpoint({
  method: 'GET',
  path: '/stream',
  summary: 'Stream',
  group: 'Demo',
  access: 'public',
  produces: ['events'],
  handle: () => {
    const source = new PassThrough();
    source.write('data: first\n\n');
    return respond({ stream: { source, contentType: 'text/event-stream' } });
  },
});

const failing = defineEndpoint({
  method: 'GET',
  path: '/failing',
  summary: 'Stream that fails',
  group: 'Demo',
  access: 'public',
  produces: ['events'],
  handle: () => {
    const source = new PassThrough();
    setTimeout(() => source.destroy(new Error('the disk fails')), 50);
    return respond({ stream: { source, contentType: 'text/event-stream' } });
  },
});

before(async () => {
  opened = await openShell({ http: { limits: { maxConnections: 60, exemptLoopback: false } } });
  opened.shell.mount('slow', [slow, stream, failing]);
});
after(() => opened.close());
beforeEach(() => {
  Object.assign(work, { now: 0, most: 0, begun: [] });
  hold();
});

interface Ask {
  readonly n?: number;
  readonly from?: string;
  readonly as?: Who;
  readonly path?: string;
  readonly fields?: readonly string[];
}

function head({ n = 0, as, path = `/slow?n=${n}`, fields = [] }: Ask): string {
  const account = as === undefined ? [] : [`Authorization: ${basic(as, passwords[as])}`];
  return `${[`GET ${path} HTTP/1.1`, 'Host: localhost', ...account, ...fields].join('\r\n')}\r\n\r\n`;
}

/** A connection that asks once, and what came back so far. */
async function ask(what: Ask): Promise<{ readonly socket: Socket; readonly answer: () => string }> {
  const socket = connect({ port: opened.port, host: '127.0.0.1', localAddress: what.from ?? '127.0.0.1' });
  let answer = '';
  socket.on('data', (chunk: Buffer) => (answer += chunk.toString('latin1')));
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.write(head(what));
  return { socket, answer: () => answer };
}

const numbers = (received: string): readonly number[] => [...received.matchAll(/"n":(\d+)/g)].map(([, n]) => Number(n));

test('requests that lie in a connection begin one after the other, in their order', async () => {
  const all = Array.from({ length: 40 }, (_, n) => n);
  end();
  const requests = all.map((n) => head({ n })).join('');
  const received = await rawExchange(opened.port, requests, (text) => numbers(text).length === all.length);
  assert.deepEqual(numbers(received), all);
  assert.equal(work.most, 1);
});

/** A server whose connections are read in turns, and nothing else. */
async function bareServer(t: TestContext, answer: RequestListener) {
  const sockets: Socket[] = [];
  const connections = new Map<Socket, HttpConnection>();
  const server = createServer((request, response) => {
    connections.get(request.socket)?.answering(request, response);
    answer(request, response);
  });
  let before: readonly unknown[] = [];
  server.prependListener('connection', (socket: Socket) => (before = dataAndEnd(socket)));
  server.on('connection', (socket: Socket) => {
    sockets.push(socket);
    const events = { ends: (close: () => void) => close(), answered: () => undefined };
    connections.set(socket, new HttpConnection(socket, ['192.0.2.1'], before, events));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  client.on('error', () => undefined);
  t.after(() => {
    client.destroy();
    server.close();
  });
  return { client, bytesRead: () => sockets[0]?.bytesRead ?? 0 };
}

test('of what a client sends ahead little is read until its turn comes', async (t) => {
  const { client, bytesRead } = await bareServer(t, (_, response) => setImmediate(() => response.end('x')));
  const request = head({ n: 1 });
  client.write(request.repeat(200_000));
  let answered = 0;
  client.on('data', (chunk: Buffer) => (answered += chunk.toString('latin1').split('HTTP/1.1 200').length - 1));
  await untilTrue('answers', () => answered > 300);
  const ahead = bytesRead() - answered * request.length;
  assert.ok(ahead < 512 * 1024, `${ahead} bytes were read ahead`);
});

test('a body in tiny chunks that nobody reads is not read from the socket, until somebody does', async (t) => {
  const requests: IncomingMessage[] = [];
  const { client, bytesRead } = await bareServer(t, (request, response) => {
    requests.push(request);
    request.once('end', () => response.end('x'));
  });
  client.write('POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
  const chunks = 1_500_000;
  client.write(`${'1\r\nx\r\n'.repeat(chunks)}0\r\n\r\n`);
  await untilTrue('the request', () => requests.length === 1);
  await pause(500);
  assert.ok(bytesRead() < 1024 * 1024, `${bytesRead()} bytes were read`);
  let length = 0;
  requests[0]?.on('data', (chunk: Buffer) => (length += chunk.length));
  await untilTrue('an answer', () => length === chunks && client.bytesRead > 0);
});

test('requests behind a body begin after it, however header and body were cut', async (t) => {
  let begun = 0;
  const { client } = await bareServer(t, (request, response) => {
    begun += 1;
    request.resume().once('end', () => {
      if (begun > 1) response.end('x');
    });
  });
  const post = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n';
  client.write(post.slice(0, -1));
  await pause(30);
  client.write(`${post.slice(-1)}${'x'.repeat(99_999)}`);
  await untilTrue('the first', () => begun === 1);
  client.write(`x${head({ n: 1 }).repeat(1500)}`);
  await pause(100);
  assert.equal(begun, 1);
});

test('bodies of both kinds end where the next request begins', async () => {
  const post = 'POST /items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n';
  const account = `Authorization: ${basic('boss', passwords.boss)}\r\n`;
  const first = '{"name":"first"}';
  const second = `{"name":"second","text":"${'x'.repeat(9000)}"}`;
  end();
  const received = await rawExchange(
    opened.port,
    `${post}${account}Content-Length: ${first.length}\r\n\r\n${first}${head({ n: 1 })}` +
      `${post}${account}Transfer-Encoding: chunked\r\n\r\n${second.length.toString(16)}\r\n${second}\r\n0\r\n\r\n${head({ n: 2 })}${head({ n: 3 })}`,
    (text) => numbers(text).length === 3,
  );
  assert.deepEqual(
    [...received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => status),
    ['201', '200', '201', '200', '200'],
  );
  assert.deepEqual(numbers(received), [1, 2, 3]);
});

test('a header in single bytes, and one whose last byte comes with the next request, is read', async () => {
  const { socket, answer } = await ask({ n: 1 });
  end();
  for (const byte of head({ n: 2 })) socket.write(byte);
  await untilTrue('the second answer', () => numbers(answer()).length === 2);
  const third = head({ n: 3 });
  socket.write(third.slice(0, -1));
  await pause(20);
  socket.write(`${third.slice(-1)}${head({ n: 4 })}${head({ n: 5 })}`);
  await untilTrue('all answers', () => numbers(answer()).length === 5);
  assert.deepEqual(numbers(answer()), [1, 2, 3, 4, 5]);
  socket.destroy();
});

test('what belongs to a connection that is gone is dropped', async () => {
  const { socket } = await ask({ n: 1 });
  await untilTrue('the first', () => work.begun.length === 1);
  socket.write(Array.from({ length: 500 }, (_, n) => head({ n })).join(''));
  await pause(50);
  socket.resetAndDestroy();
  await pause(50);
  end();
  await pause(200);
  assert.ok(work.begun.length <= 3, `${work.begun.length} of 501 began`);
});

test('all requests of a client that closes its side are answered', async () => {
  const socket = connect(opened.port, '127.0.0.1');
  let received = '';
  socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
  socket.end([1, 2, 3].map((n) => head({ n })).join(''));
  await untilTrue('the first', () => work.begun.length === 1);
  end();
  await once(socket, 'close');
  assert.deepEqual(numbers(received), [1, 2, 3]);
});

test('a client has eight requests at work, and what waits begins when one has ended', async () => {
  const asked = await Promise.all(Array.from({ length: 20 }, (_, n) => ask({ n })));
  await untilTrue('eight', () => work.now === 8);
  await pause(50);
  assert.equal(work.begun.length, 8);
  const other = await ask({ n: 100, from: '127.0.0.2' });
  await untilTrue('that of another client', () => work.begun.includes(100));
  end();
  await untilTrue('all', () => asked.every(({ answer }) => statusOf(answer()) === 200));
  assert.equal(work.most, 9);
  for (const { socket } of [...asked, other]) socket.destroy();
});

test('an account has eight, from wherever it asks, and a client that leaves the line is forgotten', async () => {
  const asked = await Promise.all(
    Array.from({ length: 16 }, (_, n) => ask({ n, as: 'reader', from: `127.0.0.${1 + (n % 4)}` })),
  );
  await untilTrue('eight', () => work.now === 8);
  const other = await ask({ n: 100, as: 'boss', from: '127.0.0.1' });
  await untilTrue('that of another account', () => work.begun.includes(100));
  const waiting = asked.filter((_, n) => !work.begun.includes(n));
  for (const { socket } of waiting) socket.destroy();
  await pause(100);
  end();
  const begun = asked.filter((one) => !waiting.includes(one));
  await untilTrue('all that were at work', () => begun.every(({ answer }) => statusOf(answer()) === 200));
  assert.equal(work.begun.length, 9);
  for (const { socket } of [...asked, other]) socket.destroy();
});

test('streams give the place of their request back', async () => {
  const streams = await Promise.all(Array.from({ length: 12 }, () => ask({ path: '/stream' })));
  await untilTrue('all streams', () => streams.every(({ answer }) => answer().includes('data: first')));
  end();
  const { socket, answer } = await ask({ n: 1 });
  await untilTrue('an answer beside them', () => statusOf(answer()) === 200);
  for (const one of [...streams.map((stream) => stream.socket), socket]) one.destroy();
});

test('a stream that fails while it waits for a place ends its answer, and nothing else', async () => {
  const streams = await Promise.all(Array.from({ length: 32 }, () => ask({ path: '/stream' })));
  await untilTrue('all streams', () => streams.every(({ answer }) => answer().includes('data: first')));
  const { socket } = await ask({ path: '/failing' });
  await once(socket, 'close');
  for (const one of streams) one.socket.destroy();
});

test('a proxy on this machine that is not named counts as one client with more places', async () => {
  const asked = await Promise.all(
    Array.from({ length: 20 }, (_, n) => ask({ n, fields: [`X-Forwarded-For: 192.0.2.${n}`] })),
  );
  await untilTrue('all at once', () => work.now === 20);
  end();
  assert.equal(opened.shell.figures()['unnamedProxyRequestsTotal'], 20);
  for (const { socket } of asked) socket.destroy();
});

test('when places become few, those go first that have sent no whole header for longest, then those without a whole body', async () => {
  const dripped: Socket[] = [];
  const closed: Socket[] = [];
  for (let n = 0; n < 60; n += 1) {
    const socket = connect({ port: opened.port, host: '127.0.0.1', localAddress: `127.0.${n % 2}.${1 + n}` });
    socket
      .on('error', () => undefined)
      .on('close', () => closed.push(socket))
      .resume();
    await once(socket, 'connect');
    const isBody = n < 2;
    socket.write(
      isBody
        ? 'POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 900\r\n\r\nx'
        : 'GET / HTTP/1.1\r\nHo',
    );
    if (n % 10 === 9) await pause(20);
    dripped.push(socket);
  }
  end();
  const { socket, answer } = await ask({ n: 1 });
  await untilTrue('an answer', () => statusOf(answer()) === 200);
  socket.destroy();
  await untilTrue('a connection that is given up', () => closed.length > 0);
  assert.equal(closed.includes(dripped[0] as Socket), false, 'a body is given up after headers');
  assert.equal(closed.includes(dripped.at(-1) as Socket), false, 'the newest is given up last');
  for (const one of dripped) one.destroy();
});

/** A socket of that address, without a network. */
function socketFrom(remoteAddress: string, remotePort: number): Socket {
  const emitter = new EventEmitter();
  const destroy = (): void => void emitter.emit('close');
  return Object.assign(emitter, { remoteAddress, remotePort, localPort: 1, destroy }) as unknown as Socket;
}

test('networks have bounds as well: one cannot take all connections with many addresses', () => {
  const limits = { maxConnections: 1000, connectionsPerClient: 100 };
  for (const [network, addresses, most] of [
    ['IPv4 /24', (n: number) => `192.0.2.${n % 250}`, 250],
    ['IPv4 /16', (n: number) => `192.0.${n % 200}.${n % 250}`, 500],
    ['IPv6 /48', (n: number) => `2001:db8:1:${n.toString(16)}::1`, 250],
    ['IPv6 /32', (n: number) => `2001:db8:${n.toString(16)}::1`, 500],
  ] as const) {
    const table = new ConnectionTable();
    for (let n = 0; n < 2000; n += 1) table.admit(socketFrom(addresses(n), n), limits, false);
    // Room in a network may be made twice for one connection: in it, and in a narrower one.
    assert.ok(table.count <= most && table.count >= most - 1, `${network}: ${table.count}`);
  }
  const gone = new ConnectionTable();
  const unknown = Object.assign(new EventEmitter(), { localPort: 1, destroy: () => undefined }) as unknown as Socket;
  assert.equal(gone.admit(unknown, limits, true), false, 'reset before it was accepted');
  assert.equal(gone.count, 0);
  const table = new ConnectionTable();
  const admitted = Array.from({ length: 150 }, (_, n) => table.admit(socketFrom('192.0.2.1', n), limits, false));
  assert.equal(admitted.filter(Boolean).length, 100, 'one address');
});
