import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { drive } from 'postern/testing';
import { greylisting } from './index.js';

const anna = { ip: '192.0.2.7', from: 'anna@example.com', to: 'bob@example.org' };
const pair = { client: '192.0.2.0/24', from: 'anna@example.com', to: 'bob@example.org' };
/** @returns {Promise<Record<'waiting' | 'known', { count: number, newest: Record<string, string>[] }>>} */
const lists = async (/** @type {import('postern/testing').DrivenSite} */ site) =>
  /** @type {any} */ ((await site.call('GET', '/greylisting')).body);

test('a new pair waits, passes when it comes again in time, and is known then', async (t) => {
  const site = await drive(greylisting, { test: t, options: { delay: 60 } });
  const first = await site.rcpt(anna);
  assert.deepEqual([first.code, first.status, first.plugin], [451, '4.7.1', 'greylisting']);
  assert.equal(first.text, 'Greylisted: please try again in 60 seconds');
  await site.clock.advance({ seconds: 59 });
  assert.match((await site.rcpt(anna)).text, /in 1 seconds/);
  await site.clock.advance({ seconds: 1 });
  assert.equal((await site.rcpt({ ...anna, ip: '192.0.2.200' })).code, 250, 'another host of its network');
  assert.equal((await site.rcpt(anna)).code, 250, 'it is known');
  assert.equal((await site.rcpt({ ...anna, to: 'carl@example.org' })).code, 451, 'another pair');
  assert.equal(await site.metric('greylisting_deferred_total'), 3);
  assert.equal(await site.metric('greylisting_passed_total'), 1);
  assert.equal(await site.metric('greylisting_pairs', { list: 'known' }), 1);
});

test('senders of a mailing list are one, case does not matter, and the null reverse-path is a sender too', async (t) => {
  const site = await drive(greylisting, { test: t, options: { delay: 60 } });
  await site.rcpt({ ...anna, from: 'bounce-17+bob=example.org@Lists.example.com' });
  await site.rcpt({ ...anna, from: 'Bounce-18+carl=example.org@lists.example.com', to: 'BOB@example.org' });
  await site.rcpt({ ...anna, from: '' });
  const { waiting } = await lists(site);
  assert.deepEqual(
    waiting.newest.map(({ from }) => from),
    ['', 'bounce-##@lists.example.com'],
  );
});

test('users, submission, allowed networks and unknown recipients never wait', async (t) => {
  const site = await drive(greylisting, {
    test: t,
    options: { allow: ['198.51.100.0/24'] },
    users: ['bob@example.org'],
  });
  assert.equal((await site.rcpt({ ...anna, user: 'bob@example.org', tls: true })).code, 250);
  assert.equal((await site.rcpt({ ...anna, ip: '198.51.100.9' })).code, 250);
  assert.equal((await site.rcpt({ ...anna, to: 'nobody@example.org' })).code, 550);
  assert.equal((await lists(site)).waiting.count, 0);
  await assert.rejects(drive(greylisting, { options: { allow: ['198.51.100.9/24'] } }), /198\.51\.100\.9/);
});

test('whoever does not come again, or is silent for long, is forgotten', async (t) => {
  const site = await drive(greylisting, { test: t, options: { delay: 60, expiry: 3600, retention: 86_400 } });
  await site.rcpt(anna);
  await site.clock.advance({ hours: 2 });
  assert.equal((await site.rcpt(anna)).code, 451, 'it begins anew');
  await site.clock.advance({ minutes: 2 });
  assert.equal((await site.rcpt(anna)).code, 250);
  await site.clock.advance({ hours: 23 });
  assert.equal((await site.rcpt(anna)).code, 250);
  await site.clock.advance({ hours: 23 });
  assert.equal((await site.rcpt(anna)).code, 250, 'each mail counts');
  await site.clock.advance({ hours: 25 });
  assert.equal((await site.rcpt(anna)).code, 451);
});

test('a flood pushes the oldest of those that wait out, and nobody of the known', async (t) => {
  const site = await drive(greylisting, { test: t, options: { delay: 60, mostPairs: 10 } });
  await site.rcpt(anna);
  await site.clock.advance({ minutes: 1 });
  await site.rcpt(anna);
  for (let n = 0; n < 12; n += 1) await site.rcpt({ ...anna, from: `${'x'.repeat(n + 1)}@example.net` });
  const { waiting, known } = await lists(site);
  assert.deepEqual([waiting.count, waiting.newest[0].from, known.count], [10, 'xxxxxxxxxxxx@example.net', 1]);
});

test('an operator releases a pair, on the page or by a call', async (t) => {
  const site = await drive(greylisting, { test: t });
  await site.rcpt(anna);
  const page = await site.page('/greylisting');
  assert.match(page.text, /192\.0\.2\.0\/24 anna@example\.com bob@example\.org/);
  assert.equal((await site.call('POST', '/greylisting/release', { role: 'read', json: pair })).status, 403);
  assert.equal((await site.call('POST', '/greylisting/release', { form: pair })).status, 303);
  assert.equal((await site.rcpt(anna)).code, 250);
  assert.equal((await site.call('POST', '/greylisting/release', { json: pair })).status, 404);
  assert.deepEqual(
    (await lists(site)).known.newest.map(({ client, from, to }) => ({ client, from, to })),
    [pair],
  );
});

test('other options count at once', async (t) => {
  const site = await drive(greylisting, { test: t });
  await site.reconfigure({ allow: ['192.0.2.7'] });
  assert.equal((await site.rcpt(anna)).code, 250);
  assert.equal((await site.rcpt({ ...anna, ip: '192.0.2.8' })).code, 451);
});

test('the lists are there after a restart, and health says when they cannot be written', async (t) => {
  const data = await mkdtemp(join(tmpdir(), 'greylisting-'));
  t.after(() => rm(data, { recursive: true, force: true }));
  const before = await drive(greylisting, { data, options: { delay: 60 } });
  await before.rcpt(anna);
  await before.clock.advance({ seconds: 30 });
  assert.match(await readFile(join(data, 'greylisting', 'pairs.txt'), 'utf8'), /anna@example\.com/);
  await before.rcpt({ ...anna, to: 'carl@example.org' });
  await before.close();

  const after = await drive(greylisting, { data, test: t, options: { delay: 1 } });
  assert.equal((await lists(after)).waiting.count, 2, 'a stop writes them');
  assert.equal(after.health('greylisting').status, 'up');
  await rm(join(data, 'greylisting'), { recursive: true });
  await after.rcpt({ ...anna, to: 'dora@example.org' });
  await after.clock.advance({ minutes: 3 });
  assert.match(after.health('greylisting').why ?? '', /cannot be written/);
});
