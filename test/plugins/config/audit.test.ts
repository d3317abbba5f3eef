import assert from 'node:assert/strict';
import { appendFile, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { auditPath } from '../../../core/log/file.js';
import { AuditFile } from '../../../core/http/shell/audit.js';
import { type AuditEntry, auditReader, type AuditReader } from '../../../core/contracts/http-records.js';
import { provide } from '../../../core/contracts/service.js';
import { problem } from '../../../core/problem.js';
import { readAudit } from '../../../plugins/config/audit-trail.js';
import { config } from '../../../plugins/config/index.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { plantedSecrets } from '../../core/log/planted-secrets.js';
import { configurationOf, openPluginSite } from '../plugin-site.js';

const entry = (number: number, more: Partial<AuditEntry> = {}): AuditEntry => ({
  at: new Date(Date.UTC(2026, 10, 21, 12, 0, number)).toISOString(),
  by: number % 2 === 0 ? 'anna' : 'boss',
  from: '127.0.0.1',
  requestId: `request-${number}`,
  method: 'POST',
  route: '/users/{username}',
  params: { username: `user${number}@example.org` },
  status: 200,
  ...more,
});

const lines = (entries: readonly AuditEntry[]): string => entries.map((one) => `${JSON.stringify(one)}\n`).join('');
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => entry(from + index));
const ids = (items: readonly AuditEntry[]) => items.map(({ requestId }) => Number(requestId.slice('request-'.length)));

test('entries come newest first, over all files, and a cursor continues where the page ended', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(auditPath(folder, 1), lines(range(0, 10)));
  await writeFile(auditPath(folder, 0), lines(range(10, 25)));
  const seen: number[] = [];
  let cursor: string | undefined;
  do {
    const page = await readAudit(folder, { limit: 4, cursor });
    seen.push(...ids(page.items));
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  assert.deepEqual(
    seen,
    Array.from({ length: 25 }, (_, index) => 24 - index),
  );
});

test('a cursor stays good when entries come and the file is set aside', async (t) => {
  const folder = await temporaryFolder(t);
  const file = new AuditFile(folder, pino({ level: 'silent' }), { maxFileBytes: 2000, keepFiles: 20 });
  for (const one of range(0, 20)) file.write(JSON.stringify(one));
  await file.close();
  const { items, nextCursor } = await readAudit(folder, { limit: 5 });
  assert.deepEqual(ids(items), [19, 18, 17, 16, 15]);
  const again = new AuditFile(folder, pino({ level: 'silent' }), { maxFileBytes: 2000, keepFiles: 20 });
  for (const one of range(20, 60)) again.write(JSON.stringify(one));
  await again.close();
  assert.deepEqual(ids((await readAudit(folder, { limit: 3, cursor: nextCursor ?? '' })).items), [14, 13, 12]);
});

test('the log is bounded: no file grows beyond its size, no more are kept, and only this user may read them', async (t) => {
  const folder = await temporaryFolder(t);
  const file = new AuditFile(folder, pino({ level: 'silent' }), { maxFileBytes: 1000, keepFiles: 3 });
  for (const one of range(0, 50)) file.write(JSON.stringify(one));
  await file.close();
  const names = (await readdir(folder)).sort();
  assert.deepEqual(names, ['audit.1.log', 'audit.2.log', 'audit.log']);
  for (const name of names) {
    const { size, mode } = await stat(join(folder, name));
    assert.ok(size > 0 && size <= 1000, `${name}: ${size}`);
    assert.equal(mode & 0o777, 0o600);
  }
  const kept = ids((await readAudit(folder, { limit: 100 })).items);
  assert.deepEqual(
    kept,
    Array.from({ length: kept.length }, (_, index) => 49 - index),
  );
});

test('what cannot be set aside is written on, and what stands in the way stays', async (t) => {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'audit.2.log'));
  await writeFile(join(folder, 'audit.2.log', 'theirs'), '');
  const file = new AuditFile(folder, pino({ level: 'silent' }), { maxFileBytes: 1000, keepFiles: 3 });
  for (const one of range(0, 50)) file.write(JSON.stringify(one));
  await file.close();
  assert.deepEqual((await readdir(folder)).sort(), ['audit.2.log', 'audit.log']);
  assert.deepEqual(await readdir(join(folder, 'audit.2.log')), ['theirs']);
  assert.equal(await readFile(join(folder, 'audit.log'), 'utf8'), lines(range(0, 50)));
});

test('a line that a crash has cut off has no other one behind it', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(auditPath(folder, 0), `${lines([entry(1)])}{"at":"2026-`);
  const file = new AuditFile(folder, pino({ level: 'silent' }));
  file.write(JSON.stringify(entry(2)));
  await file.close();
  assert.deepEqual(ids((await readAudit(folder, { limit: 9 })).items), [2, 1]);
});

test('filters select by who, from, method, path, action and time; a line cut off by a crash is passed over', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(
    auditPath(folder, 0),
    `${lines([
      entry(1, { action: 'config.reload' }),
      entry(2, { from: '192.0.2.7', method: 'DELETE' }),
      entry(3),
    ])}{"at":"2026-`,
  );
  const found = async (query: object) => ids((await readAudit(folder, { limit: 10, ...query })).items);
  assert.deepEqual(await found({}), [3, 2, 1]);
  assert.deepEqual(await found({ who: 'ANNA' }), [2]);
  assert.deepEqual(await found({ from: '192.0.2.' }), [2]);
  assert.deepEqual(await found({ method: 'DELETE' }), [2]);
  assert.deepEqual(await found({ path: '/users/user3@' }), [3]);
  assert.deepEqual(await found({ action: 'reload' }), [1]);
  assert.deepEqual(await found({ since: '2026-11-21T12:00:02Z', until: '2026-11-21T12:00:03Z' }), [2]);
});

test('the total counts all that fit, whatever the page, and is null for a log that is too long', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(auditPath(folder, 1), lines(range(0, 10)));
  await writeFile(auditPath(folder, 0), `${lines(range(10, 25))}{"at":"2026-`);
  const first = await readAudit(folder, { limit: 4 });
  assert.equal(first.total, 25);
  const second = await readAudit(folder, { limit: 4, cursor: first.nextCursor ?? '' });
  assert.deepEqual([second.total, ids(second.items)], [25, [20, 19, 18, 17]]);
  assert.equal((await readAudit(folder, { limit: 4, who: 'anna' })).total, 13);
  assert.equal((await readAudit(folder, { limit: 50, who: 'anna' })).total, 13);
  const long = entry(99, { selector: 'x'.repeat(1000) });
  await writeFile(auditPath(folder, 2), `${JSON.stringify(long)}\n`.repeat(17_000));
  assert.equal((await readAudit(folder, { limit: 4 })).total, null);
});

test('the page is for administrators, shows hostile values as text, and no planted secret', async (t) => {
  const site = await openPluginSite(t, config, { configuration: configurationOf([]) });
  const folder = join(site.data, 'logs');
  await mkdir(folder, { recursive: true });
  assert.match(await site.page('/audit'), /Nothing has been changed/);
  const hostile = entry(1, {
    action: '<script>alert(1)</script>',
    selector: plantedSecrets.map(({ fields }) => fields),
  });
  await appendFile(auditPath(folder, 0), lines([hostile, ...range(2, 60)]));
  assert.equal((await site.get('/audit', { as: 'operator' })).status, 403);
  const page = await site.page('/audit?limit=1000');
  assert.doesNotMatch(page, /<script>alert/);
  const answer = JSON.stringify(await site.json('/audit?limit=1000'));
  for (const { plain } of plantedSecrets.filter(({ text }) => text === undefined)) {
    assert.ok(!page.includes(plain) && !answer.includes(plain), plain);
  }
  assert.match(
    await site.page('/audit?who=boss&limit=5'),
    /rel="next" href="\/audit\?who=boss&amp;limit=5&amp;cursor=/,
  );
  assert.equal((await site.get('/audit?cursor=nonsense')).status, 400);
  assert.equal((await site.get('/audit?since=yesterday')).status, 400);
});

test('a search since a time ends at older entries, and finds those that a clock has put before them', async (t) => {
  const folder = await temporaryFolder(t);
  const at = (iso: string) => ({ at: iso });
  await writeFile(
    auditPath(folder, 0),
    lines([
      entry(0, at('2026-11-21T12:00:00.000Z')),
      entry(1, at('2026-11-01T12:00:00.000Z')),
      entry(2, at('2026-11-21T12:00:01.000Z')),
      entry(3, at('2026-11-21T11:00:00.000Z')),
      entry(4, at('2026-11-21T12:00:02.000Z')),
    ]),
  );
  const page = await readAudit(folder, { limit: 50, since: '2026-11-21T12:00:00Z' });
  assert.deepEqual([ids(page.items), page.total, page.nextCursor], [[4, 2], 2, null]);
});

test('the page shows what another reader has, and the files of this server while that is unavailable', async (t) => {
  let isThere = true;
  const reader: AuditReader = {
    node: 'mx1',
    read: ({ limit }) => {
      if (!isThere) return Promise.reject(problem('unavailable', 'The database is away.'));
      return Promise.resolve({ items: [entry(7, { node: 'mx2' })], total: 1, limit, nextCursor: 'next' });
    },
  };
  const site = await openPluginSite(t, config, {
    configuration: configurationOf([]),
    lent: [provide(auditReader, reader)],
  });
  await mkdir(join(site.data, 'logs'), { recursive: true });
  await writeFile(auditPath(join(site.data, 'logs'), 0), lines([entry(0), entry(1)]));
  const shown = async () => {
    const { items, source } = await site.json('/audit?limit=1');
    return [source, ...(items as readonly AuditEntry[]).map(({ requestId, node }) => `${requestId} ${node ?? ''}`)];
  };
  assert.deepEqual(await shown(), ['cluster', 'request-7 mx2']);
  assert.match(await site.page('/audit'), /Of all nodes of the cluster.*mx2/s);
  isThere = false;
  assert.deepEqual(await shown(), ['server', 'request-1 mx1']);
  assert.match(await site.page('/audit'), /these are the changes at this node alone, mx1/);
  assert.equal((await site.get('/audit?node=mx2')).status, 503);
  const { nextCursor } = await site.json('/audit?limit=1');
  isThere = true;
  const cursor = `/audit?limit=1&cursor=${String(nextCursor)}`;
  assert.equal((await site.json(cursor))['source'], 'server', 'it continues where it began');
  isThere = false;
  assert.equal((await site.get('/audit?cursor=next')).status, 503);
});
