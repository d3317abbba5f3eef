import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { drive, message } from 'postern/testing';
import { clamav } from './index.js';

const sign = 'EICAR-STANDARD-ANTIVIRUS-TEST-FILE';

/** What is in the pieces of INSTREAM, when all of it is there. */
function contentOf(/** @type {Buffer} */ bytes) {
  const command = 'zINSTREAM\0';
  assert.ok(command.startsWith(bytes.subarray(0, command.length).toString()));
  const pieces = [];
  for (let at = command.length; at + 4 <= bytes.length;) {
    const length = bytes.readUInt32BE(at);
    if (length === 0) return Buffer.concat(pieces).toString();
    pieces.push(bytes.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
}

/**
 * A clamd that finds the sign of a virus, or responds as it is told; what it scanned is in `scanned`.
 * @param {import('node:test').TestContext} t
 * @param {string | number} where a path, or 0 for a port
 */
async function startClamd(t, where = 0) {
  const daemon = {
    socket: '',
    scanned: /** @type {string[]} */ ([]),
    /** @type {(socket: import('node:net').Socket, content: string) => void} */
    respond: (socket, content) =>
      void socket.end(content.includes(sign) ? 'stream: Eicar-Test FOUND\0' : 'stream: OK\0'),
  };
  const sockets = /** @type {import('node:net').Socket[]} */ ([]);
  const server = createServer((socket) => {
    sockets.push(socket);
    let bytes = Buffer.alloc(0);
    socket
      .on('error', () => undefined)
      .on('data', (chunk) => {
        bytes = Buffer.concat([bytes, chunk]);
        const content = contentOf(bytes);
        if (content === undefined) return;
        daemon.scanned.push(content);
        daemon.respond(socket, content);
      });
  });
  server.listen(typeof where === 'number' ? { port: where, host: '127.0.0.1' } : { path: where });
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  daemon.socket = typeof address === 'string' ? address : `127.0.0.1:${address?.port}`;
  return daemon;
}

test('a clean message arrives, and was scanned as it is', async (t) => {
  const daemon = await startClamd(t);
  const site = await drive(clamav, { test: t, options: { socket: daemon.socket } });
  const eml = message({ text: 'long line\n'.repeat(100_000) });
  assert.equal((await site.data({ eml })).code, 250);
  assert.equal(daemon.scanned[0], eml);
  assert.equal(await site.metric('clamav_messages_total', { result: 'clean' }), 1);
});

test('a virus is refused with its name, or held for an operator', async (t) => {
  const daemon = await startClamd(t);
  const site = await drive(clamav, { test: t, options: { socket: daemon.socket } });
  const refused = await site.data({ eml: message({ text: sign }) });
  assert.deepEqual([refused.code, refused.status, refused.text], [550, '5.7.1', 'The message has a virus: Eicar-Test']);
  await site.reconfigure({ socket: daemon.socket, infected: 'hold' });
  assert.equal((await site.data({ eml: message({ text: sign }) })).verdict, 'hold');
  assert.equal(site.delivered[0]?.reason, 'virus Eicar-Test');
  assert.equal(await site.metric('clamav_messages_total', { result: 'infected' }), 2);
});

test('clamd may listen at a path', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'clamd-'));
  t.after(() => rm(folder, { recursive: true }));
  const daemon = await startClamd(t, join(folder, 'clamd.ctl'));
  const site = await drive(clamav, { test: t, options: { socket: daemon.socket } });
  assert.equal((await site.data({ eml: message({ text: sign }) })).code, 550);
});

/** @type {Record<string, (socket: import('node:net').Socket) => void>} */
const failures = {
  'an error': (socket) => void socket.end('INSTREAM size limit exceeded. ERROR\0'),
  'a hint of a virus': (socket) => void socket.end('stream: Eicar'),
  'another answer': (socket) => void socket.end('stream: OK\r\nFOUND\0'),
  nothing: (socket) => void socket.end(),
  'an end': (socket) => void socket.resetAndDestroy(),
  silence: () => undefined,
  'an answer without an end': (socket) => {
    const more = setInterval(() => socket.write('x'.repeat(1000)), 1);
    socket.on('close', () => clearInterval(more));
  },
};
for (const [what, respond] of Object.entries(failures)) {
  test(`mail is not lost when there is ${what}`, async (t) => {
    const daemon = await startClamd(t);
    const site = await drive(clamav, { test: t, options: { socket: daemon.socket, timeout: 1 } });
    daemon.respond = respond;
    const { code, status, text } = await site.data();
    assert.deepEqual([code, status, text], [451, '4.7.1', 'The message cannot be checked now']);
    assert.match(site.health('clamav').why ?? '', /^clamd gives no result \(.+\)\. Mail is deferred\.$/);
    await site.reconfigure({ socket: daemon.socket, timeout: 0.2, whenAway: 'accept' });
    assert.equal((await site.data()).code, 250);
    assert.match(site.health('clamav').why ?? '', /accepted without a scan/);
    daemon.respond = (socket) => void socket.end('stream: OK\0');
    await site.data();
    assert.equal(site.health('clamav').status, 'up');
  });
}

test('a clamd that ends in the middle of a long message is no yes', async (t) => {
  const daemon = await startClamd(t);
  const server = createServer((socket) => {
    socket.on('error', () => undefined).once('data', () => socket.end('INSTREAM size limit exceeded. ERROR\0'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const socket = `127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`;
  const site = await drive(clamav, { test: t, options: { socket } });
  const eml = message({ text: 'long line\n'.repeat(500_000) });
  assert.equal((await site.data({ eml })).code, 451);
  await site.reconfigure({ socket: daemon.socket });
  assert.equal((await site.data({ eml })).code, 250);
});

test('mail is not lost when no clamd is there, and a message that is too long is not scanned', async (t) => {
  const site = await drive(clamav, { test: t, options: { socket: '127.0.0.1:1', maxBytes: 1000 } });
  assert.equal((await site.data()).code, 451);
  assert.match(site.health('clamav').why ?? '', /ECONNREFUSED/);
  assert.equal((await site.data({ eml: message({ text: 'long\n'.repeat(200) }) })).code, 250);
  await site.reconfigure({ socket: '/nowhere/clamd.ctl' });
  assert.equal((await site.data()).code, 451);
  assert.match(site.health('clamav').why ?? '', /ENOENT/);
});
