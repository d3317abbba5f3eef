import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { drive } from 'postern/testing';
import { deliveryWebhook } from './index.js';

const secret = 'a secret of the two';

/**
 * A target that answers as it is told, over and over; what it was posted stands in `posts`.
 * @param {import('node:test').TestContext} t
 * @param {string} answer the first lines of an HTTP answer, or '' for silence
 */
async function startTarget(t, answer = 'HTTP/1.1 204 No Content') {
  const target = { answer, url: '', posts: /** @type {{ head: string, body: string }[]} */ ([]) };
  const sockets = /** @type {import('node:net').Socket[]} */ ([]);
  const server = createServer((socket) => {
    sockets.push(socket);
    let text = '';
    socket
      .on('error', () => undefined)
      .on('data', (chunk) => {
        text += String(chunk);
        const [head = '', body = ''] = text.split('\r\n\r\n');
        if (body.length < Number(/content-length: (\d+)/i.exec(head)?.[1])) return;
        target.posts.push({ head, body });
        if (target.answer !== '') socket.end(`${target.answer}\r\nConnection: close\r\n\r\n`);
      });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  target.url = `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}/hook`;
  return target;
}

/** The plugin's page as JSON. */
const state = async (/** @type {import('postern/testing').DrivenSite} */ site) =>
  /** @type {any} */ ((await site.call('GET', '/delivery-webhook')).body);

/** @param {import('postern/testing').DrivenSite} site */
async function until(site, /** @type {(state: any) => boolean} */ holds) {
  while (!holds(await state(site))) await new Promise((resolve) => setTimeout(resolve, 5));
}

const told = (/** @type {import('postern/testing').DrivenSite} */ site) => until(site, ({ waiting }) => waiting > 0);

test('an event is posted once, signed, and its file is gone then', async (t) => {
  const target = await startTarget(t);
  const site = await drive(deliveryWebhook, { test: t, options: { url: target.url, secret } });
  await site.emit('outcome', { from: 'anna@example.com', to: 'bob@example.net', status: 'bounced' });
  await told(site);
  await site.clock.advance({ seconds: 5 });
  assert.equal(target.posts.length, 1);
  const [{ head, body } = { head: '', body: '' }] = target.posts;
  const event = JSON.parse(body);
  assert.deepEqual(
    [event.event, event.server, event.reversePath, event.recipients, event.status, event.reply.code, event.target],
    ['outcome', 'mx.example.org', 'anna@example.com', ['bob@example.net'], 'bounced', 250, 'relay'],
  );
  const [, time = '', code] = /postern-signature: t=(\d+),v1=([0-9a-f]{64})/i.exec(head) ?? [];
  assert.equal(code, createHmac('sha256', secret).update(`${time}.${body}`).digest('hex'));
  assert.equal(Number(time), Math.floor(site.clock.now() / 1000) - 4);
  assert.deepEqual(await readdir(join(site.folder, 'delivery-webhook')), []);
  assert.equal(await site.metric('delivery_webhook_events_total', { result: 'sent' }), 1);
  assert.match((await site.page('/delivery-webhook')).text, /outcome sent 204/);
  assert.doesNotMatch((await site.page('/config')).text, new RegExp(secret));
});

test('a receiver tells a genuine event as the README says', async (t) => {
  const readme = await readFile(new URL('README.md', import.meta.url), 'utf8');
  const [, code = ''] = /```js\n(.*?)```/s.exec(readme) ?? [];
  const { isGenuine } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  const target = await startTarget(t);
  const site = await drive(deliveryWebhook, { test: t, options: { url: target.url, secret } });
  await site.emit('outcome');
  await told(site);
  await site.clock.advance({ seconds: 1 });
  const [{ head, body } = { head: '', body: '' }] = target.posts;
  const header = /postern-signature: (.*)/i.exec(head)?.[1]?.trim() ?? '';
  const now = site.clock.now() / 1000;
  assert.equal(isGenuine(header, body, secret, now), true);
  assert.equal(isGenuine(header, body, secret, now + 301), false);
  assert.equal(isGenuine(header, `${body} `, secret, now), false);
  assert.equal(isGenuine(header, body, 'another secret', now), false);
  assert.equal(isGenuine('', body, secret, now), false);
});

test('mail makes the events that were asked for, in one form', async (t) => {
  const target = await startTarget(t);
  const options = { url: target.url, secret, events: ['accepted', 'delivered', 'deferred'] };
  const site = await drive(deliveryWebhook, { test: t, options });
  await site.data({ from: '', to: ['bob@example.org', 'carl@example.org'] });
  await site.emit('deferred', { to: 'dora@example.org', reason: '451 4.3.0 Later' });
  await site.emit('bounced', { to: 'dora@example.org' });
  await until(site, ({ waiting }) => waiting === 4);
  await site.clock.advance({ seconds: 1 });
  const events = target.posts.map(({ body }) => JSON.parse(body));
  assert.deepEqual(
    events.map(({ event, reversePath, recipients }) => [event, reversePath, recipients].join(' ')).toSorted(),
    [
      'accepted  bob@example.org,carl@example.org',
      'deferred anna@example.com dora@example.org',
      'delivered  bob@example.org',
      'delivered  carl@example.org',
    ],
  );
  assert.equal(new Set(events.map(({ id }) => id)).size, 4);
});

for (const [title, answer] of [
  ['500', 'HTTP/1.1 500 Oops'],
  ['401', 'HTTP/1.1 401 Who?'],
  ['a redirect', 'HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/'],
  ['garbage', 'what?'],
  ['silence', ''],
]) {
  test(`an event that meets ${title} is tried again, later and later, and health says so`, async (t) => {
    const target = await startTarget(t, answer);
    const site = await drive(deliveryWebhook, { test: t, options: { url: target.url, secret, timeout: 0.2 } });
    await site.emit('outcome');
    await told(site);
    await site.clock.advance({ seconds: 1 });
    assert.equal(site.health('delivery-webhook').status, 'degraded');
    await site.clock.advance({ seconds: 10 });
    const { failures, waiting, latest } = await state(site);
    assert.deepEqual([failures, waiting, latest[0].result], [4, 1, 'failed'], 'after 1, 2, 4 and 8 seconds');
    target.answer = 'HTTP/1.1 200 Ok';
    await site.clock.advance({ seconds: 10 });
    assert.equal((await state(site)).waiting, 0);
    assert.equal(site.health('delivery-webhook').status, 'up');
    assert.equal(new Set(target.posts.map(({ body }) => body)).size, 1, 'the same event, word for word');
  });
}

test('an event that the target does not want is dropped, and one that is too old', async (t) => {
  const target = await startTarget(t, 'HTTP/1.1 422 No');
  const site = await drive(deliveryWebhook, { test: t, options: { url: target.url, secret, giveUp: 60 } });
  await site.emit('outcome');
  await told(site);
  await site.clock.advance({ seconds: 1 });
  assert.equal(await site.metric('delivery_webhook_events_total', { result: 'refused' }), 1);
  target.answer = 'HTTP/1.1 503 Later';
  await site.emit('outcome');
  await told(site);
  await site.clock.advance({ minutes: 3 });
  assert.equal(await site.metric('delivery_webhook_events_total', { result: 'expired' }), 1);
  assert.deepEqual(await readdir(join(site.folder, 'delivery-webhook')), []);
});

test('of too many events, or too large ones, the later are dropped and counted', async (t) => {
  const options = { url: 'http://127.0.0.1:9/', secret, maxEvents: 3 };
  const site = await drive(deliveryWebhook, { test: t, options });
  for (let n = 0; n < 5; n += 1) {
    await site.emit('outcome');
    await until(site, ({ waiting }) => waiting >= Math.min(n + 1, 3));
  }
  assert.equal(await site.metric('delivery_webhook_events_total', { result: 'dropped' }), 2);
  await site.reconfigure({ ...options, maxEvents: 100, maxBytes: 1000 });
  await site.emit('outcome');
  assert.equal(await site.metric('delivery_webhook_events_total', { result: 'dropped' }), 3);
});

test('a restart finds what waits, and what a crash has left of a write is removed', async (t) => {
  const data = await mkdtemp(join(tmpdir(), 'delivery-webhook-'));
  t.after(() => rm(data, { recursive: true, force: true }));
  const target = await startTarget(t, 'HTTP/1.1 503 Later');
  const before = await drive(deliveryWebhook, { data, options: { url: target.url, secret } });
  await before.emit('outcome');
  await told(before);
  await before.clock.advance({ seconds: 1 });
  await before.close();
  await writeFile(join(data, 'delivery-webhook', '.x.json.1.tmp'), '{"id":');
  target.answer = 'HTTP/1.1 200 Ok';
  const after = await drive(deliveryWebhook, { data, test: t, options: { url: target.url, secret } });
  await after.clock.advance({ seconds: 1 });
  assert.deepEqual(
    target.posts.map(({ body }) => JSON.parse(body).event),
    ['outcome', 'outcome'],
  );
  assert.equal(target.posts[0]?.body, target.posts[1]?.body);
  assert.deepEqual(await readdir(join(data, 'delivery-webhook')), []);
});

test('the server stops in time while the target is silent', async (t) => {
  const target = await startTarget(t, '');
  const site = await drive(deliveryWebhook, { test: t, options: { url: target.url, secret, timeout: 60 } });
  await site.emit('outcome');
  await told(site);
  const advancing = site.clock.advance({ seconds: 1 });
  while (target.posts.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await site.close();
  await advancing;
});

test('options that cannot be are refused', async () => {
  for (const options of [{ url: 'ftp://x.example/', secret }, { url: 'http://x.example/', secret: 'short' }, {}]) {
    await assert.rejects(drive(deliveryWebhook, { options }), /delivery-webhook/);
  }
});
