import assert from 'node:assert/strict';
import { rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { message, ReadingFixture } from './reading-fixture.js';
import { openSite } from './store-site.js';

const home = '/store/example.org/ann';
const inbox = `${home}/folders/INBOX`;
const mail = (subject: string): string => message(`Subject: ${subject}`, '', 'Text.');

interface Listed {
  readonly items: readonly { readonly id: string; readonly subject: string; readonly flagged: boolean }[];
  readonly total: number;
}

test('pages and JSON of a folder are right at the next request after each change, whoever made it', async (t) => {
  const fixture = await ReadingFixture.open(t);
  await fixture.makeFolder('Work');
  const first = await fixture.file(mail('first'), { flags: '-' });
  const { operator } = await openSite(t, fixture);

  /** Asks twice, so that the second answer may be a kept one; both must be right. */
  async function expect(subjects: readonly string[], counts: Readonly<Record<string, number>>): Promise<Listed> {
    let listed: Listed | undefined;
    for (const state of ['at once', 'settled', 'kept']) {
      if (state !== 'at once') await Promise.all([fixture.settled(), fixture.settled('Work')]);
      listed = (await operator.json(inbox)) as Listed;
      const shown = listed.items.map(({ subject }) => subject);
      assert.deepEqual(shown, subjects, state);
      const { text } = await operator.request(inbox, { accept: 'text/html' });
      const rows = [...text.matchAll(/message-subject">([^<]*)</g)].map(([, subject]) => subject);
      assert.deepEqual(rows, subjects, `page, ${state}`);
      const names = [...text.matchAll(/folder-name">([^<]*)</g)].map(([, name]) => name);
      assert.deepEqual(names, Object.keys(counts), `folders of the page, ${state}`);
      assert.equal(/name="expect" value="(\d+)"/.exec(text)?.[1] ?? '0', String(counts['INBOX']), `count, ${state}`);
      const folders = (await operator.json(home)) as { folders: readonly { name: string; total: number }[] };
      assert.deepEqual(Object.fromEntries(folders.folders.map(({ name, total }) => [name, total])), counts, state);
    }
    return listed ?? { items: [], total: 0 };
  }

  await expect(['first'], { INBOX: 1, Work: 0 });
  const second = await fixture.file(mail('second'));
  await expect(['second', 'first'], { INBOX: 2, Work: 0 });
  await fixture.file(mail('elsewhere'), { folder: 'Work' });
  await expect(['second', 'first'], { INBOX: 2, Work: 1 });
  await rename(join(fixture.home, 'cur', `${first}:2,`), join(fixture.home, 'cur', `${first}:2,F`));
  const { items } = await expect(['second', 'first'], { INBOX: 2, Work: 1 });
  assert.deepEqual(
    items.map(({ flagged }) => flagged),
    [false, true],
  );
  await operator.json(`${home}/messages/move`, {
    json: { fromFolder: 'INBOX', toFolder: 'Work', messageIds: [second] },
  });
  await expect(['first'], { INBOX: 1, Work: 2 });
  await fixture.makeFolder('New');
  await expect(['first'], { INBOX: 1, New: 0, Work: 2 });
  await rm(fixture.pathOf('Work'), { recursive: true });
  await fixture.makeFolder('Work');
  await expect(['first'], { INBOX: 1, New: 0, Work: 0 });
  await rm(join(fixture.home, 'cur', `${first}:2,F`));
  await expect([], { INBOX: 0, New: 0, Work: 0 });
});

test('a page shows its own filters and what has come into other folders, however often it was asked for', async (t) => {
  const fixture = await ReadingFixture.open(t);
  await fixture.makeFolder('Work');
  await fixture.file(mail('first'), { flags: '-' });
  const { operator } = await openSite(t, fixture);
  const page = async (query: string): Promise<string> =>
    (await operator.request(`${inbox}${query}`, { accept: 'text/html' })).text;
  const unreadOf = (text: string): readonly (string | undefined)[] =>
    [...text.matchAll(/folder-unread">(\d+)/g)].map(([, count]) => count);
  await fixture.settled();
  const [q, clear] = [/name="q" value="([^"]*)"/, />Clear</];
  for (let i = 0; i < 2; i += 1) {
    assert.equal(q.exec(await page('?q=first'))?.[1], 'first');
    assert.match(await page('?q=first'), clear);
    assert.equal(q.exec(await page(''))?.[1], '');
    assert.doesNotMatch(await page(''), clear);
  }
  const before = unreadOf(await page(''));
  await fixture.file(mail('elsewhere'), { folder: 'Work' });
  for (const state of ['at once', 'settled', 'kept']) {
    if (state !== 'at once') await Promise.all([fixture.settled(), fixture.settled('Work')]);
    assert.deepEqual(unreadOf(await page('')), [...before, '1'], state);
  }
});

test('the same tag means the same bytes, also for HEAD; a folder that became a link is gone', async (t) => {
  const fixture = await ReadingFixture.open(t);
  await fixture.makeFolder('Work');
  await fixture.file(mail('planted'), { folder: 'Work' });
  const { operator } = await openSite(t, fixture);
  const work = `${home}/folders/Work`;
  await fixture.settled('Work');
  const [one, other] = [await operator.request(work), await operator.request(work)];
  assert.equal(one.text, other.text);
  assert.equal(one.headers.get('etag'), other.headers.get('etag'));
  const head = await operator.request(work, { method: 'HEAD' });
  assert.equal(head.headers.get('content-length'), String(Buffer.byteLength(one.text)));
  const known = { 'If-None-Match': one.headers.get('etag') ?? '' };
  assert.equal((await operator.request(work, { headers: known })).status, 304);
  await rename(fixture.pathOf('Work'), join(fixture.root, 'moved'));
  await symlink(join(fixture.root, 'moved'), fixture.pathOf('Work'));
  assert.equal((await operator.request(work)).status, 404);
  assert.equal((await operator.request(work, { headers: known })).status, 404);
});
