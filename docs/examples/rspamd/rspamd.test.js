import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { drive, message } from 'postern/testing';
import { rspamd } from './index.js';

const clean = {
  action: 'no action',
  score: -0.5,
  required_score: 15,
  symbols: { R_DKIM_NA: {}, 'MIME_GOOD\r\nX: y': {} },
};

/**
 * An rspamd that answers as it is told; what it was asked is in `asked`.
 * @param {import('node:test').TestContext} t
 */
async function startRspamd(t) {
  const daemon = {
    url: '',
    asked: /** @type {{ path?: string, fields: Map<string, string[]>, body: string }[]} */ ([]),
    answer: /** @type {unknown} */ (clean),
    /** @type {(response: import('node:http').ServerResponse) => void} */
    respond: (response) => void response.end(JSON.stringify(daemon.answer)),
  };
  const server = createServer(async (request, response) => {
    const fields = new Map(/** @type {[string, string[]][]} */ ([]));
    for (let at = 0; at < request.rawHeaders.length; at += 2) {
      const [name = '', value = ''] = request.rawHeaders.slice(at, at + 2);
      fields.set(name, [...(fields.get(name) ?? []), Buffer.from(value, 'latin1').toString()]);
    }
    daemon.asked.push({ ...(request.url && { path: request.url }), fields, body: await text(request) });
    daemon.respond(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => (server.closeAllConnections(), server.close()));
  daemon.url = `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`;
  return daemon;
}

/** The fields about spam of the mail that has arrived last. */
const marks = (/** @type {import('postern/testing').DrivenSite} */ site) =>
  site.delivered.at(-1)?.headers.filter(([name]) => /^(x-spam|subject)/i.test(name));

test('rspamd is told all about a message, and what it says is in the mail', async (t) => {
  const daemon = await startRspamd(t);
  const site = await drive(rspamd, { test: t, options: { url: daemon.url, password: 'hidden' } });
  const forged = message({ headers: { 'x-spam-flag': 'NO', 'X-Spam-Status': ['No', 'No'] } });
  const to = ['bob@example.org', 'dora@example.org'];
  assert.equal((await site.data({ from: 'jürgen@example.com', to, eml: forged })).code, 250);
  const [{ path, fields, body } = { fields: new Map(), body: '' }] = daemon.asked;
  assert.equal(path, '/checkv2');
  assert.equal(body, forged);
  const told = ['IP', 'Helo', 'From', 'Rcpt', 'User', 'Password', 'MTA-Name'].map((name) =>
    fields.get(name)?.join(' '),
  );
  assert.deepEqual(told, [
    '192.0.2.1',
    'client.example.com',
    'jürgen@example.com',
    'bob@example.org dora@example.org',
    undefined,
    'hidden',
    'mx.example.org',
  ]);
  assert.match(fields.get('Queue-Id')?.[0] ?? '', /^[0-9a-z]+$/);
  assert.deepEqual(marks(site), [
    ['X-Spam-Status', 'No, score=-0.50 required=15.00 tests=R_DKIM_NA,MIME_GOODXy'],
    ['Subject', 'A test'],
  ]);
  await site.data({ user: 'anna@example.org', tls: true, from: 'anna@example.org' });
  assert.deepEqual(daemon.asked[1]?.fields.get('User'), ['anna@example.org']);
  assert.equal(await site.metric('rspamd_messages_total', { action: 'no action' }), 2);
});

test('spam is marked, gets another subject, comes again later or is refused', async (t) => {
  const daemon = await startRspamd(t);
  const site = await drive(rspamd, { test: t, options: { url: daemon.url } });
  const answerTo = async (/** @type {string} */ action, more = {}) => {
    daemon.answer = { ...clean, action, score: 7, ...more };
    const { code, status } = await site.data();
    return `${code} ${status}`;
  };
  const status = ['X-Spam-Status', 'Yes, score=7.00 required=15.00 tests='];
  assert.equal(await answerTo('add header', { symbols: undefined }), '250 2.0.0');
  assert.deepEqual(marks(site)?.toSorted(), [['Subject', 'A test'], ['X-Spam-Flag', 'YES'], status]);
  assert.equal(await answerTo('rewrite subject', { symbols: {}, subject: '[SPAM]\r\nX: A test' }), '250 2.0.0');
  assert.deepEqual(marks(site)?.toSorted(), [['Subject', '[SPAM] X: A test'], ['X-Spam-Flag', 'YES'], status]);
  assert.equal(await answerTo('greylist'), '451 4.7.1');
  assert.equal(await answerTo('soft reject'), '451 4.7.1');
  assert.equal(await answerTo('reject'), '550 5.7.1');
  assert.equal(await answerTo('an action of the site'), '250 2.0.0');
  daemon.answer = { ...clean, action: 'soft reject', messages: { smtp_message: 'Rate limit\r\n250 exceeded' } };
  assert.equal((await site.data()).text, 'Rate limit 250 exceeded');
});

/** What an rspamd may do that is no answer. */
/** @type {Record<string, (response: import("node:http").ServerResponse) => void>} */
const failures = {
  'an error': (response) => void response.writeHead(500).end(JSON.stringify(clean)),
  'a page': (response) => void response.end('<html>'),
  'no score': (response) => void response.end('{"action":"reject"}'),
  'half an answer': (response) => (response.write('{"action"'), setImmediate(() => response.destroy())),
  'an end': (response) => void response.destroy(),
  silence: () => undefined,
  'an answer without an end': (response) => {
    const more = setInterval(() => response.write(' '.repeat(100_000)), 1);
    response.on('close', () => clearInterval(more));
  },
};
for (const [what, respond] of Object.entries(failures)) {
  test(`mail is not lost when there is ${what}`, async (t) => {
    const daemon = await startRspamd(t);
    const site = await drive(rspamd, { test: t, options: { url: daemon.url, timeout: 2 } });
    daemon.respond = respond;
    const { code, status, text } = await site.data();
    assert.deepEqual([code, status, text], [451, '4.7.1', 'The message cannot be checked now']);
    assert.match(site.health('rspamd').why ?? '', /^rspamd does not answer \(.+\)\. Mail is deferred\.$/);
    await site.reconfigure({ url: daemon.url, timeout: 0.2, whenAway: 'accept' });
    assert.equal((await site.data({ eml: message({ headers: { 'X-Spam-Status': 'No' } }) })).code, 250);
    assert.deepEqual(marks(site), [['Subject', 'A test']], 'nothing says that it was scanned');
    assert.match(site.health('rspamd').why ?? '', /accepted without a scan/);
    daemon.respond = (response) => void response.end(JSON.stringify(clean));
    await site.data();
    assert.equal(site.health('rspamd').status, 'up');
  });
}

test('mail is not lost when no rspamd is there', async (t) => {
  const site = await drive(rspamd, { test: t, options: { url: 'http://127.0.0.1:1' } });
  assert.equal((await site.data()).code, 451);
  assert.match(site.health('rspamd').why ?? '', /ECONNREFUSED/);
});

test('a message that is too long is not scanned', async (t) => {
  const site = await drive(rspamd, { test: t, options: { url: 'http://127.0.0.1:1', maxBytes: 1000 } });
  assert.equal((await site.data({ eml: message({ text: 'long\n'.repeat(200) }) })).code, 250);
});
