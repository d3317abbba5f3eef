import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { definePlugin } from 'postern/plugin';
import { drive, message } from 'postern/testing';
import { httpDelivery } from './index.js';

const token = 'a token for the API';
const to = 'invoices@example.org';

/**
 * An API that answers as it is told; what it was posted is in `posts`.
 * @param {import('node:test').TestContext} t
 */
async function startApi(t) {
  const api = {
    url: '',
    posts: /** @type {{ headers: import('node:http').IncomingHttpHeaders, body: string }[]} */ ([]),
    /** @type {(response: import('node:http').ServerResponse) => void} */
    answer: (response) => void response.writeHead(202).end(),
  };
  const server = createServer(async (request, response) => {
    api.posts.push({ headers: request.headers, body: await text(request) });
    api.answer(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => (server.closeAllConnections(), server.close()));
  api.url = `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}/mail`;
  return api;
}

/** Sends a message and lets the queue deliver it; `outcomes` are those that it told of. */
async function sent(/** @type {import('node:test').TestContext} */ t, /** @type {string} */ url, options = {}) {
  const outcomes = /** @type {import('postern/plugin').Outcome[]} */ ([]);
  const watching = definePlugin({
    name: 'watching',
    setup: ({ smtp }) => smtp.watch('outcome', (outcome) => void outcomes.push(outcome)),
  });
  const site = await drive(httpDelivery, {
    test: t,
    beside: [watching],
    options: { url, token, recipients: [to, '@api.example.org'], ...options },
  });
  const eml = message({ to, subject: 'Invoice 7', text: '.\nof a line, and ümlauts' });
  assert.equal((await site.data({ to, eml })).code, 250);
  await site.clock.advance({ seconds: 1 });
  return { site, outcomes };
}

test('a message is posted as it is, with its envelope, and is delivered then', async (t) => {
  const api = await startApi(t);
  const { site, outcomes } = await sent(t, api.url);
  const [{ headers, body } = { headers: {}, body: '' }] = api.posts;
  assert.equal(api.posts.length, 1);
  assert.equal(headers.authorization, `Bearer ${token}`);
  assert.equal(headers['content-type'], 'message/rfc822');
  assert.equal(headers['envelope-from'], 'anna%40example.com');
  assert.equal(headers['envelope-to'], 'invoices%40example.org');
  assert.match(body, /^Received: [^]+\r\nSubject: Invoice 7\r\n[^]+\r\n\r\n\.\r\nof a line, and ümlauts\r\n$/);
  assert.deepEqual(
    outcomes.map(({ status, target }) => [status, target]),
    [['delivered', 'http-delivery']],
  );
  assert.equal(await site.metric('http_delivery_posted_total', { outcome: 'delivered' }), 1);
  assert.deepEqual(site.delivered, [], 'nothing is in a mailbox');
});

test('each recipient gets a message and a key, a domain counts as a whole, and others keep their mail', async (t) => {
  const api = await startApi(t);
  const options = { url: api.url, token, recipients: [to, '@api.example.org'] };
  const site = await drive(httpDelivery, { test: t, options, domains: ['example.org', 'api.example.org'] });
  await site.data({ to: ['Invoices@example.org', 'any@api.example.org', 'bob@example.org'] });
  await site.clock.advance({ seconds: 1 });
  const recipients = api.posts.map(({ headers }) => decodeURIComponent(String(headers['envelope-to'])));
  assert.deepEqual(recipients.toSorted(), ['Invoices@example.org', 'any@api.example.org']);
  assert.equal(new Set(api.posts.map(({ headers }) => headers['idempotency-key'])).size, 2);
  assert.equal(site.mailbox('bob@example.org').length, 1);
});

test('what fails is posted again with the same key, until the API takes it', async (t) => {
  const api = await startApi(t);
  api.answer = (response) => void response.writeHead(503).end('maintenance');
  const { site, outcomes } = await sent(t, api.url);
  assert.equal(site.health('http-delivery').why, 'The API does not take mail: HTTP 503. It waits in the queue.');
  api.answer = (response) => void response.writeHead(401).end(); // the token is wrong: that is not the sender's fault
  await site.clock.advance({ minutes: 5 });
  api.answer = (response) => void response.writeHead(308, { Location: 'http://127.0.0.1:1/' }).end();
  await site.clock.advance({ minutes: 10 });
  api.answer = (response) => void response.socket?.destroy();
  await site.clock.advance({ minutes: 20 });
  api.answer = (response) => void response.writeHead(200).end();
  await site.clock.advance({ hours: 1 });
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    [...Array(4).fill('deferred'), 'delivered'],
  );
  assert.equal(new Set(api.posts.map(({ headers }) => headers['idempotency-key'])).size, 1);
  assert.equal(site.health('http-delivery').status, 'up');
});

test('what the API does not want is returned to the sender, with its words', async (t) => {
  const api = await startApi(t);
  api.answer = (response) => void response.writeHead(422).end('No such customer:\r\n\t7\u{7}');
  const { site, outcomes } = await sent(t, api.url);
  await site.clock.advance({ days: 1 });
  assert.deepEqual(
    outcomes.map(({ status, reply }) => [status, reply?.code, reply?.text]),
    [['bounced', 550, 'No such customer: 7']],
  );
  assert.equal(api.posts.length, 1);
  assert.equal(site.health('http-delivery').status, 'up', 'that is no fault of the API');
});

test('an answer without an end is not read to it', async (t) => {
  const api = await startApi(t);
  let isCut = false;
  api.answer = (response) => {
    const more = setInterval(() => response.write('x'.repeat(1000)), 1);
    response.writeHead(400).on('close', () => (clearInterval(more), (isCut = true)));
  };
  const { site, outcomes } = await sent(t, api.url);
  assert.equal(outcomes[0]?.reply?.text, 'x'.repeat(200));
  await site.until(() => isCut);
});

test('an API that is silent is not waited for', async (t) => {
  const api = await startApi(t);
  api.answer = () => undefined;
  const { site, outcomes } = await sent(t, api.url, { timeout: 0.1 });
  assert.deepEqual(
    outcomes.map(({ status, reply }) => [status, reply?.text]),
    [['deferred', 'TimeoutError']],
  );
  assert.equal(site.health('http-delivery').status, 'degraded');
});

test('a start is refused with a recipient that is none, and the token is not shown', async (t) => {
  const options = { url: 'https://api.example/', token, recipients: ['invoices'] };
  await assert.rejects(drive(httpDelivery, { test: t, options }), /address or `@domain`/);
  const site = await drive(httpDelivery, { test: t, options: { ...options, recipients: [to] } });
  assert.equal((await site.page('/config')).html.includes(token), false);
});
