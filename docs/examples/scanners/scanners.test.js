import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createSocketServer } from 'node:net';
import { test } from 'node:test';
import { drive, message } from 'postern/testing';
import { scanners } from './index.js';

const virus = 'X5O-a-harmless-pattern';
const stranger = { ip: '198.51.100.1', from: 'anna@example.com' };

/** @param {import('node:test').TestContext} t @param {import('node:net').Server} server */
async function portOf(t, server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return /** @type {import('node:net').AddressInfo} */ (server.address()).port;
}

/** A worker that answers as it is told; the requests stand in `asked`. */
async function startRspamd(/** @type {import('node:test').TestContext} */ t, action = 'no action') {
  const rspamd = { action, url: '', extra: {}, asked: /** @type {{ headers: any, body: string }[]} */ ([]) };
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += String(piece);
    rspamd.asked.push({ headers: request.headers, body });
    const answer = { action: rspamd.action, score: 7.5, required_score: 15, symbols: {}, ...rspamd.extra };
    response.end(rspamd.action === '' ? 'no JSON' : JSON.stringify(answer));
  });
  rspamd.url = `http://127.0.0.1:${await portOf(t, server)}`;
  return rspamd;
}

/** A clamd that knows one pattern; `says` is said in place of its finding. */
async function startClamd(/** @type {import('node:test').TestContext} */ t, says = '') {
  const clamd = { says, port: 0, bytes: 0 };
  const server = createSocketServer((socket) => {
    let input = Buffer.alloc(0);
    socket
      .on('error', () => undefined)
      .on('data', (piece) => {
        input = Buffer.concat([input, piece]);
        if (clamd.says === 'close') return void socket.destroy();
        if (clamd.says === 'nothing' || !input.subarray(-4).equals(Buffer.alloc(4))) return;
        const text = unframed(input);
        clamd.bytes = text.length;
        socket.end(`${clamd.says || (text.includes(virus) ? 'stream: Test-Pattern FOUND' : 'stream: OK')}\0`);
      });
  });
  clamd.port = await portOf(t, server);
  t.after(() => void server.unref());
  return clamd;
}

function unframed(/** @type {Buffer} */ input) {
  const command = 'zINSTREAM\0';
  assert.equal(input.subarray(0, command.length).toString(), command);
  const pieces = [];
  for (let at = command.length; ;) {
    const length = input.readUInt32BE(at);
    if (length === 0) return Buffer.concat(pieces);
    pieces.push(input.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
}

/** Fields of the mail that has arrived last. */
const arrived = (/** @type {import('postern/testing').DrivenSite} */ site, /** @type {string} */ name) =>
  (site.delivered.at(-1)?.headers ?? []).filter(([one]) => one.toLowerCase() === name).map(([, value]) => value);

test('rspamd is told of the envelope, and its score is in the header, whatever the mail claims', async (t) => {
  const rspamd = await startRspamd(t);
  const site = await drive(scanners, { test: t, options: { rspamd: rspamd.url, rspamdPassword: 'q1-of-the-worker' } });
  const eml = `X-Spam-Flag: NO\r\nX-Spam-Score: -100\r\n${message()}`;
  assert.equal((await site.data({ ...stranger, eml })).code, 250);
  assert.deepEqual([arrived(site, 'x-spam-flag'), arrived(site, 'x-spam-score')], [['NO'], ['7.50 / 15.00']]);
  const [{ headers, body } = { headers: {}, body: '' }] = rspamd.asked;
  assert.deepEqual([headers.ip, headers.from, headers.password], ['198.51.100.1', stranger.from, 'q1-of-the-worker']);
  assert.match(headers.rcpt, /@/);
  assert.ok(body.includes('X-Spam-Score: -100'));
  rspamd.action = 'add header';
  assert.equal((await site.data(stranger)).code, 250);
  assert.deepEqual(arrived(site, 'x-spam-flag'), ['YES']);
});

test('what rspamd rejects is refused, what it greylists is put off', async (t) => {
  const rspamd = await startRspamd(t, 'reject');
  const site = await drive(scanners, { test: t, options: { rspamd: rspamd.url } });
  rspamd.extra = { messages: { smtp_message: 'No spam\r\n250 please' } };
  const refused = await site.data(stranger);
  assert.deepEqual([refused.code, refused.text], [550, 'No spam 250 please']);
  rspamd.extra = {};
  rspamd.action = 'greylist';
  assert.equal((await site.data(stranger)).code, 451);
  assert.equal(await site.metric('scanners_messages_total', { scanner: 'rspamd', result: 'later' }), 1);
  assert.equal(site.delivered.length, 0);
});

test('ClamAV gets the whole message, and a virus is refused by its name', async (t) => {
  const clamd = await startClamd(t);
  const site = await drive(scanners, { test: t, options: { clamav: { host: '127.0.0.1', port: clamd.port } } });
  const large = message({ text: `${'x'.repeat(70)}\r\n`.repeat(4200) });
  assert.equal((await site.data({ ...stranger, eml: large })).code, 250);
  assert.ok(clamd.bytes >= 4200 * 72, String(clamd.bytes));
  const refused = await site.data({ ...stranger, eml: message({ text: virus }) });
  assert.deepEqual([refused.code, refused.text], [550, 'Found Test-Pattern']);
  assert.equal(site.delivered.length, 1);
});

test('mail waits while a scanner is away, or says nonsense, and health says so; or it is let through', async (t) => {
  const [rspamd, clamd] = [await startRspamd(t, ''), await startClamd(t)];
  const options = { rspamd: rspamd.url, clamav: { host: '127.0.0.1', port: clamd.port }, seconds: 0.5 };
  const site = await drive(scanners, { test: t, options });
  const answer = await site.data(stranger);
  assert.deepEqual([answer.code, answer.status], [451, '4.3.2']);
  assert.match(site.health()['scanners']?.why ?? '', /rspamd does not answer/);
  rspamd.action = 'no action';
  for (const says of ['INSTREAM size limit exceeded. ERROR', 'close', 'nothing', 'x'.repeat(1_100_000)]) {
    clamd.says = says;
    assert.equal((await site.data(stranger)).code, 451, says.slice(0, 40));
  }
  assert.equal(site.delivered.length, 0);
  await site.reconfigure({ ...options, away: 'accept' });
  assert.equal((await site.data(stranger)).code, 250);
  rspamd.action = 'reject';
  assert.equal((await site.data(stranger)).code, 550, 'the other one still counts');
});
