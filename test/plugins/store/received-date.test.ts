import assert from 'node:assert/strict';
import { readdir, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Ending } from '../../support/ending.js';
import { message, ReadingFixture } from './reading-fixture.js';
import { openSite } from './store-site.js';

const home = '/store/example.org/ann';
const bytes = message('Subject: migrated', '', 'Text.');
const second = 1000;
/** Named by a migration a moment ago; received when the file says. */
const migrated = (n: number) => `${Math.floor(Date.now() / second)}.M${n}P77.imap.example.org,S=${bytes.length}:2,S`;
const longAgo = Date.UTC(2019, 4, 6, 7, 8, 9, 250) / second;

interface Listed {
  readonly items: readonly { readonly id: string; readonly receivedAt: string }[];
}

/** A message that another program filed, and one that Postern names. */
async function openMigrated(t: Ending) {
  const fixture = await ReadingFixture.open(t);
  const { operator } = await openSite(t, fixture);
  await operator.json(`${home}/folders`, { json: { name: 'Work' } }, 201);
  const name = migrated(1);
  await fixture.put(`cur/${name}`, bytes);
  await utimes(join(fixture.home, 'cur', name), longAgo, longAgo);
  const list = async (folder = 'INBOX', query = '') =>
    ((await operator.json(`${home}/folders/${folder}${query}`)) as Listed).items;
  return { fixture, operator, list };
}

test('a message that another program filed was received when its file says', async (t) => {
  const { operator, list } = await openMigrated(t);
  await operator.request(`${home}/folders/INBOX/messages`, {
    body: bytes,
    headers: { 'Content-Type': 'message/rfc822' },
  });
  const [own, foreign] = await list();
  assert.equal(foreign?.receivedAt, '2019-05-06T07:08:09.250Z');
  assert.ok(Date.now() - Date.parse(own?.receivedAt ?? '') < 60 * second);
  assert.deepEqual(
    (await list('INBOX', '?before=2020-01-01')).map(({ id }) => id),
    [foreign.id],
  );
  const path = `${home}/folders/INBOX/messages/${encodeURIComponent(foreign.id)}`;
  assert.equal(((await operator.json(path)) as { receivedAt: string }).receivedAt, foreign.receivedAt);
  const cleanup = { folder: 'INBOX', months: 12 };
  assert.deepEqual(await operator.json(`${home}/messages/cleanup`, { json: cleanup }), { affected: 1 });
  assert.deepEqual(
    (await list()).map(({ id }) => id),
    [own?.id],
  );
});

test('the received date stays when a message is moved, or copied with its folder, also for IMAP', async (t) => {
  const { fixture, operator, list } = await openMigrated(t);
  const move = { fromFolder: 'INBOX', toFolder: 'Work', filter: { all: true } };
  await operator.json(`${home}/messages/move`, { json: move });
  await operator.json(`${home}/folders/Work/copy`, { json: { newName: 'Copy' } }, 201);
  for (const folder of ['Work', 'Copy']) {
    assert.deepEqual(
      (await list(folder)).map(({ receivedAt }) => receivedAt),
      ['2019-05-06T07:08:09.250Z'],
      folder,
    );
    const path = join(fixture.pathOf(folder), 'cur');
    const [name = ''] = await readdir(path);
    assert.equal((await stat(join(path, name))).mtimeMs, longAgo * second);
  }
});

test('messages of another program keep their dates when their folder changes, and times out of range do no harm', async (t) => {
  const { fixture, list } = await openMigrated(t);
  for (const [n, seconds] of [-1e9, 1e8, 4e9].entries()) {
    await list();
    const name = migrated(n + 2);
    await fixture.put(`cur/${name}`, bytes);
    const date = new Date(seconds * second);
    await utimes(join(fixture.home, 'cur', name), date, date);
  }
  assert.deepEqual(
    (await list()).map(({ receivedAt }) => receivedAt.slice(0, 10)),
    ['2096-10-02', '2019-05-06', '1973-03-03', '1970-01-01'],
  );
});
