import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HealthReport } from '../../../core/contracts/health.js';
import type { TrafficReport } from '../../../plugins/monitoring/traffic/traffic.js';
import { monitoring } from '../../../plugins/monitoring/index.js';
import { configurationOf, openPluginSite, sessionFrom, transactionIn } from '../plugin-site.js';

const configuration = configurationOf([
  { key: 'smtp.listeners.0.mode', value: 'mx' },
  { key: 'smtp.listeners.0.host', value: '127.0.0.1' },
  { key: 'smtp.listeners.0.port', value: 2525 },
  { key: 'smtp.listeners.1.name', value: 'inside' },
  { key: 'smtp.listeners.1.host', value: '::1' },
  { key: 'smtp.listeners.1.port', value: 24 },
]);

interface Landing {
  readonly status: string;
  readonly listeners: readonly { name: string; address: string }[];
  readonly sessions: { open: number; total: number };
  readonly messages: { today: number; total: number };
  readonly disk: { free: number; size: number };
  readonly groups: readonly { name: string; endpoints: readonly { method: string; path: string }[] }[];
}

test('the landing page lists every endpoint that is mounted, for people and for scripts', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const page = await site.page('/');
  const model = (await site.json('/')) as unknown as Landing;
  const listed = model.groups.flatMap(({ endpoints }) => endpoints.map(({ method, path }) => `${method} ${path}`));
  const mounted = site.shell.describe().filter(({ hidden }) => !hidden);
  assert.deepEqual(listed.toSorted(), mounted.map(({ method, path }) => `${method} ${path}`).toSorted());
  for (const { path, method } of mounted) {
    assert.ok(page.includes(`<code>${path}</code>`), path);
    assert.ok(page.includes(`curl call of ${method} ${path}`), path);
  }
  assert.doesNotMatch(page, /favicon\.ico<\/code>/);
});

test('a curl call asks for JSON where curl would be given a page, and only there', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const asking = site.shell.describe().filter(({ curl }) => curl.includes(" -H 'Accept: application/json' "));
  assert.deepEqual(asking.map(({ path }) => path).toSorted(), ['/', '/metrics']);
});

test('the filter works by the form alone and finds words of path, purpose, method and access', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const page = await site.page('/?q=HEALTH+every');
  assert.match(page, /<code>\/health\/extended<\/code>/);
  assert.doesNotMatch(page, /<code>\/metrics\/prometheus<\/code>/);
  assert.match(await site.page('/?q=%3Cscript%3Ealert(1)'), /No endpoint has all of these words/);
  assert.doesNotMatch(await site.page('/?q=%3Cscript%3Ealert(1)'), /<script>alert/);
});

test('the status strip tells of listeners, sessions, messages and disk', async (t) => {
  let now = Date.UTC(2026, 10, 21, 23, 59);
  const site = await openPluginSite(t, monitoring, { configuration, clock: { now: () => now, monotonic: () => now } });
  const chain = site.pipeline.snapshot();
  const [first, second] = [sessionFrom('192.0.2.1'), sessionFrom('192.0.2.2')];
  await chain.decide('connect', { session: first });
  await chain.decide('connect', { session: second });
  chain.emit('accepted', { transaction: transactionIn(first, 'anna@example.org'), recipients: [], size: 2000, ms: 12 });
  chain.emit('closed', { session: first, ms: 40, messages: 1 });
  const model = (await site.json('/')) as unknown as Landing;
  assert.equal(model.status, 'UP');
  assert.deepEqual(model.listeners, [
    { name: 'mx', address: '127.0.0.1:2525' },
    { name: 'inside', address: '[::1]:24' },
  ]);
  assert.deepEqual(model.sessions, { open: 1, total: 2 });
  assert.deepEqual([model.messages.today, model.messages.total], [1, 1]);
  const notice = transactionIn({ ...first, listener: { name: 'internal', mode: 'submission' } }, 'anna@example.org');
  chain.emit('accepted', { transaction: { ...notice, reversePath: null }, recipients: [], size: 900, ms: 2 });
  assert.equal(((await site.json('/')) as unknown as Landing).messages.total, 1, 'our own notice does not count');
  assert.ok(model.disk.free > 0 && model.disk.size >= model.disk.free);
  now += 120_000;
  const tomorrow = (await site.json('/')) as unknown as Landing;
  assert.deepEqual([tomorrow.messages.today, tomorrow.messages.total], [0, 1]);
});

const receivedOn = (page: string): string | undefined =>
  /<h3>Received<\/h3>\s*<p class="traffic-total">(\d+)/.exec(page)?.[1];

test('the landing page shows the mail of a day and of thirty, with what is frequent in it', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const pipeline = site.pipeline.snapshot();
  const session = sessionFrom('192.0.2.1');
  const transaction = transactionIn(session, 'anna@example.org');
  const [recipient] = transaction.recipients;
  assert.ok(recipient !== undefined);
  pipeline.emit('accepted', { transaction, recipients: [], size: 2000, ms: 12 });
  const internal = { ...transaction, session: { ...session, internal: true }, reversePath: null };
  pipeline.emit('accepted', { transaction: internal, recipients: [], size: 900, ms: 2 });
  for (const target of ['mailbox', 'relay', 'proxy']) pipeline.emit('delivered', { transaction, recipient, target });
  const outcome = { id: 'x', reversePath: null, recipient: recipient.address, reply: null, nextAttemptAt: null, at: 0 };
  for (const [status, attempts, target] of [
    ['deferred', 1, 'relay'],
    ['deferred', 2, 'relay'],
    ['delivered', 3, 'relay'],
    ['delivered', 1, 'mailbox'],
    ['expired', 9, 'relay'],
  ] as const)
    pipeline.emit('outcome', { ...outcome, status, attempts, target });
  for (const host of ['192.0.2.7', '2001:db8::1'])
    pipeline.emit('rejected', {
      session,
      stage: 'rcptTo',
      code: 550,
      status: '5.7.1',
      text: `No mail from ${host} <b>`,
    });
  await new Promise((resolve) => void setImmediate(resolve));
  for (const range of ['24h', '30d']) {
    const { traffic } = (await site.json(`/?range=${range}`)) as unknown as { traffic: TrafficReport };
    const totals = Object.entries(traffic.counts).map(([kind, { total }]) => [kind, total]);
    assert.deepEqual(Object.fromEntries(totals), {
      received: 1,
      sent: 2,
      deferred: 1,
      bounced: 1,
      rejected: 2,
      notices: 1,
    });
    assert.equal(traffic.counts.received.series.length, range === '24h' ? 24 : 30);
    assert.equal(traffic.failureRate.now, 1 / 3);
    assert.deepEqual(traffic.top.destinations, [{ name: recipient.address.domain, count: 2 }]);
    assert.deepEqual(traffic.top.rejections, [{ name: '550 5.7.1 No mail from … <…>', count: 2 }]);
    const page = await site.page(`/?range=${range}`);
    assert.match(page, /Failure rate 33\.3 %/);
    assert.equal(receivedOn(page), '1');
    assert.match(page, /550 5\.7\.1 No mail from … &lt;…&gt;/);
    assert.match(page, /aria-label="Received by the (hour|day), at most 1"/);
  }
  assert.equal((await site.get('/?range=1y')).status, 400);
  pipeline.emit('accepted', { transaction, recipients: [], size: 2000, ms: 12 });
  await new Promise((resolve) => void setImmediate(resolve));
  for (const range of ['24h', '30d']) assert.equal(receivedOn(await site.page(`/?range=${range}`)), '2');
});

test('health is one word without an account and complete with one', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const anonymous = await site.get('/health', { as: null });
  assert.equal(anonymous.status, 200);
  assert.equal(anonymous.headers.get('cache-control'), 'no-store');
  assert.deepEqual(await anonymous.json(), { status: 'UP' });
  const full = await site.json('/health');
  assert.deepEqual(Object.keys(full), ['status', 'uptime', 'components']);
  assert.deepEqual(Object.keys(full['components'] as object), [
    'disk',
    'disk writes',
    'eventLoop',
    'heapdumps folder',
    'memory',
    'pipeline',
    'sessions',
    'traffic folder',
  ]);
  assert.equal((await site.get('/health/extended', { as: null })).status, 401);
  const page = await site.get('/health', { as: null, headers: { accept: 'text/html' } });
  assert.doesNotMatch(await page.text(), /eventLoop/);
});

test('DOWN answers 503 and DEGRADED does not; the page says why', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  let report: HealthReport = { status: 'degraded', why: 'One <b>disk</b> is slow.' };
  site.health.check('store', 'store', () => report);
  assert.deepEqual((await site.json('/health'))['status'], 'DEGRADED');
  const page = await site.page('/');
  assert.match(page, /One &lt;b&gt;disk&lt;\/b&gt; is slow\./);
  report = { status: 'down', why: 'Gone.' };
  const anonymous = await site.get('/health', { as: null });
  assert.equal(anonymous.status, 503);
  assert.deepEqual(await anonymous.json(), { status: 'DOWN' });
  await site.json('/health/extended', 503);
});

test('the icon is public, cached and shown, not saved', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const answer = await site.get('/favicon.ico', { as: null, headers: { accept: 'image/*' } });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('content-type'), 'image/x-icon');
  assert.equal(answer.headers.get('content-disposition'), null);
  assert.match(answer.headers.get('cache-control') ?? '', /public, max-age=\d+/);
  const icon = Buffer.from(await answer.arrayBuffer());
  assert.deepEqual([icon.readUInt16LE(0), icon.readUInt16LE(2)], [0, 1]);
});

test('a disk below its threshold degrades health, and new options are taken while it runs', async (t) => {
  const disk = { degradedBelowBytes: 2 ** 50, downBelowBytes: 0 };
  const site = await openPluginSite(t, monitoring, { configuration, options: { disk } });
  assert.equal(site.health.status(), 'degraded');
  assert.match(site.health.components()['disk']?.why ?? '', /MiB are free/);
  await site.running.reconfigure?.(monitoring.options.parse({ disk: { degradedBelowBytes: 0, downBelowBytes: 0 } }));
  assert.equal(site.health.status(), 'up');
});
