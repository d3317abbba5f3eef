import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { FileSignInHistory } from '../../../core/auth/sign-in-history.js';
import type { SignInAttempt } from '../../../core/contracts/sign-in-history.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const attempt = (more: Partial<SignInAttempt> = {}): SignInAttempt => ({
  username: 'anna@example.org',
  address: '192.0.2.1',
  protocol: 'smtp',
  result: 'accepted',
  ...more,
});

async function open(t: TestContext, folder?: string, start = '2026-11-24T10:00:00Z') {
  const place = folder ?? join(await temporaryFolder(t), 'sign-ins');
  let now = Date.parse(start);
  const clock = { now: () => now, monotonic: () => now };
  const history = await FileSignInHistory.open({ folder: place, clock, log: pino({ level: 'silent' }) });
  t.after(() => history.close());
  return { folder: place, history, pass: (seconds: number) => (now += seconds * 1000) };
}

test('equal attempts of an hour are one entry with a count, the newest first', async (t) => {
  const { history, pass } = await open(t);
  history.record(attempt());
  pass(60);
  history.record(attempt({ username: 'ANNA@example.org' }));
  pass(60);
  history.record(attempt({ result: 'refused', address: '192.0.2.2' }));
  pass(3600);
  history.record(attempt());
  const { items } = await history.find({ limit: 10 });
  assert.deepEqual(
    items.map(({ address, result, count, first, last }) => [
      address,
      result,
      count,
      first.slice(11, 16),
      last.slice(11, 16),
    ]),
    [
      ['192.0.2.1', 'accepted', 1, '11:02', '11:02'],
      ['192.0.2.2', 'refused', 1, '10:02', '10:02'],
      ['192.0.2.1', 'accepted', 2, '10:00', '10:01'],
    ],
  );
});

test('filters select by name, address, protocol and result, and a cursor goes on where the page ended', async (t) => {
  const { history, pass } = await open(t);
  for (let day = 0; day < 3; day += 1) {
    for (let n = 0; n < 5; n += 1)
      history.record(attempt({ username: `user${n}@example.org`, address: `192.0.2.${n}` }));
    history.record(attempt({ username: 'user1@example.org', protocol: 'basic', result: 'refused' }));
    pass(86_400);
  }
  const count = async (query: object) => (await history.find({ limit: 100, ...query })).items.length;
  assert.equal(await count({}), 18);
  assert.equal(await count({ user: 'USER1' }), 6);
  assert.equal(await count({ username: 'User1@example.org' }), 6);
  assert.equal(await count({ username: 'user1' }), 0);
  assert.equal(await count({ address: '192.0.2.4' }), 3);
  assert.equal(await count({ protocol: 'basic' }), 3);
  assert.equal(await count({ result: 'accepted' }), 15);
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await history.find({ limit: 4, cursor });
    seen.push(...page.items.map(({ username, protocol, last }) => `${username} ${protocol} ${last}`));
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  assert.equal(seen.length, 18);
  assert.equal(new Set(seen).size, 18);
  await assert.rejects(history.find({ limit: 1, cursor: '../x' }), { problem: 'bad-request' });
});

test('names that nobody has are counted by network, and names of users one by one', async (t) => {
  const { history } = await open(t);
  history.addNames(['smtp'], (given) => (given.startsWith('anna') ? 'anna@example.org' : undefined));
  const wrong = (username: string, address: string) =>
    history.record(attempt({ username, address, result: 'refused' }));
  for (let n = 0; n < 100; n += 1) wrong(`guess${n}`, `2001:db8::${n + 1}`);
  wrong('anna', '2001:db8::1');
  const { items } = await history.find({ limit: 10 });
  const told = items.map(({ username, address, names, count }) => `${username} ${address} ${names} ${count}`);
  assert.deepEqual(told.toSorted(), ['anna@example.org 2001:db8::1 one 1', 'guess99 2001:db8:0:0::/64 several 100']);
  assert.equal((await history.find({ limit: 10, username: 'guess99' })).items.length, 0);
});

test('an anonymous client can neither grow a day without bound nor push out what others did', async (t) => {
  const { history, folder } = await open(t);
  history.addNames(['smtp'], (given) => (given === 'anna@example.org' ? given : undefined));
  history.record(attempt());
  history.record(attempt({ result: 'refused' }));
  const hostile = '\u0000\u202e'.repeat(5000);
  for (let n = 0; n < 3000; n += 1) {
    const address = `10.${n % 250}.${Math.floor(n / 250)}.1`;
    history.record(attempt({ username: `${n}${hostile}`, address, result: 'refused' }));
    history.record(attempt({ address, result: 'refused' }));
  }
  await history.close();
  const { items } = await history.find({ limit: 10_000 });
  assert.equal(items.filter(({ result }) => result === 'accepted').length, 1);
  assert.ok(items.some(({ address, count }) => address === '192.0.2.1' && count === 1));
  assert.ok(items.length < 1010, `${items.length} entries`);
  assert.equal(
    items.reduce((sum, { count }) => sum + count, 0),
    6002,
  );
  assert.ok(items.every(({ username }) => username.length <= 100));
  const { size, mode } = await stat(join(folder, '2026-11-24.json'));
  assert.ok(size < 600_000, `${size} bytes`);
  assert.equal(mode & 0o077, 0);
});

test('what was written is there after a restart and counted on; a damaged file costs its own day', async (t) => {
  const first = await open(t);
  first.history.record(attempt());
  await first.history.flush();
  await writeFile(join(first.folder, '2026-11-23.json'), '[{"username":');
  await writeFile(join(first.folder, 'notes.txt'), 'theirs');
  const again = await open(t, first.folder);
  again.history.record(attempt());
  const { items } = await again.history.find({ limit: 10 });
  assert.deepEqual(
    items.map(({ count }) => count),
    [2],
  );
  again.history.record(attempt({ result: 'refused' }));
  assert.equal(
    (await again.history.find({ limit: 10, result: 'refused' })).items[0]?.names,
    'one',
    'who signed in once is known',
  );
  assert.equal(await readFile(join(first.folder, 'notes.txt'), 'utf8'), 'theirs');
});

test('a day is forgotten after 90 days', async (t) => {
  const { history, folder, pass } = await open(t);
  history.record(attempt());
  await history.flush();
  pass(91 * 86_400);
  history.record(attempt());
  await history.flush();
  assert.deepEqual(await readdir(folder), ['2027-02-23.json']);
});
