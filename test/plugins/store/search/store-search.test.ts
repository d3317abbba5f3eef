import assert from 'node:assert/strict';
import { mkdir, readdir, rename, rm, truncate, unlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { test } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import type { MailSearchRequest } from '../../../../core/contracts/mail-search.js';
import { FolderThread } from '../../../../plugins/store/cache/folder-thread.js';
import { StoreReader } from '../../../../plugins/store/messages/store-reader.js';
import { folderHref } from '../../../../plugins/store/http/view-model.js';
import { StoreSearch } from '../../../../plugins/store/search/store-search.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { message } from '../reading-fixture.js';

const thread = new FolderThread();

/** Mailboxes that another program fills, and a search over them that keeps its files between restarts. */
class SearchFixture {
  readonly root: string;
  readonly files: string;
  #reader: StoreReader | undefined;
  #search: StoreSearch | undefined;
  #count = 0;

  private constructor(root: string, files: string) {
    this.root = root;
    this.files = files;
  }

  static async open(test: Ending): Promise<SearchFixture> {
    const fixture = new SearchFixture(await temporaryFolder(test), await temporaryFolder(test));
    atEnd(test, () => fixture.restart());
    return fixture;
  }

  async restart(): Promise<void> {
    await this.#reader?.close();
    this.#reader = undefined;
    this.#search = undefined;
  }

  pathOf(mailbox: string, folder = ''): string {
    const [user = '', domain = ''] = mailbox.split('@');
    return join(this.root, domain, user, folder);
  }

  /** A message that is newer than all before. */
  async add(mailbox: string, subject: string, { folder = '', lines = [] as readonly string[] } = {}): Promise<void> {
    this.#count += 1;
    const path = this.pathOf(mailbox, folder);
    for (const part of ['new', 'cur', 'tmp']) await mkdir(join(path, part), { recursive: true });
    const bytes = message(`Subject: ${subject}`, ...lines, '', 'Text.');
    const seconds = 1_700_000_000 + this.#count;
    const file = join(path, 'cur', `${seconds}.M1P1Q${this.#count}.host,S=${bytes.length}:2,`);
    await writeFile(file, bytes);
    await utimes(file, seconds, seconds);
  }

  async fill(mailbox: string, subject: string, count: number): Promise<void> {
    for (let n = 1; n <= count; n++) await this.add(mailbox, `${subject} ${n}`);
  }

  async find(q: string, request: Partial<MailSearchRequest> = {}) {
    this.#reader ??= await StoreReader.open({
      root: this.root,
      clock: systemClock,
      cache: { thread, files: this.files, keptFrom: 2 },
    });
    this.#search ??= new StoreSearch(this.#reader, folderHref);
    return this.#search.search({ q, limit: 10, timeoutMs: 20_000, mayOpen: () => true, ...request });
  }

  async subjects(q: string, request: Partial<MailSearchRequest> = {}): Promise<readonly string[]> {
    return (await this.find(q, request)).items.map(({ subject }) => subject);
  }
}

test('words are found in every mailbox and folder, the newest messages first', async (t) => {
  const fixture = await SearchFixture.open(t);
  await fixture.add('ann@example.org', 'Offer of May');
  await fixture.add('bob@example.net', 'offer of June', { folder: '.Archive.2026' });
  await fixture.add('ann@example.org', 'Picnic');
  await fixture.add('cy@example.org', 'The OFFER of July', { lines: ['From: Dee <dee@sender.example>'] });
  const { items, ...rest } = await fixture.find('OFFER of');
  assert.deepEqual(rest, { total: 3, mailboxes: 3, searched: 3 });
  assert.deepEqual(
    items.map(({ mailbox, folder, subject }) => [mailbox, folder, subject]),
    [
      ['cy@example.org', 'INBOX', 'The OFFER of July'],
      ['bob@example.net', 'Archive.2026', 'offer of June'],
      ['ann@example.org', 'INBOX', 'Offer of May'],
    ],
  );
  const [newest, archived] = items;
  assert.deepEqual(newest?.marks, [
    [4, 9],
    [10, 12],
  ]);
  assert.deepEqual(newest?.from, { name: 'Dee', address: 'dee@sender.example' });
  assert.match(archived?.href ?? '', /^\/store\/example\.net\/bob\/folders\/Archive\.2026\/messages\/17000/);
});

test('the limit keeps the newest of all mailboxes, and the total counts the others', async (t) => {
  const fixture = await SearchFixture.open(t);
  for (let n = 1; n <= 12; n++) await fixture.add(`user${n % 3}@example.org`, `number ${n}`);
  const { items, total } = await fixture.find('number', { limit: 4 });
  assert.deepEqual(
    items.map(({ subject }) => subject),
    ['number 12', 'number 11', 'number 10', 'number 9'],
  );
  assert.equal(total, 12);
});

test('a sender, a recipient, a Message-ID and the first words are found as well', async (t) => {
  const fixture = await SearchFixture.open(t);
  const lines = ['From: Eve <eve@sender.example>', 'To: Ann <ann@example.org>', 'Message-ID: <abc.1@sender.example>'];
  await fixture.add('ann@example.org', 'x', { lines });
  await fixture.add('ann@example.org', 'y');
  for (const q of ['eve@sender.example', 'ANN@example.org', '<abc.1@sender.example>']) {
    assert.deepEqual(await fixture.subjects(q), ['x'], q);
  }
  assert.deepEqual(await fixture.subjects('text.'), ['y', 'x']);
});

test('hostile words find what they say, or nothing', async (t) => {
  const fixture = await SearchFixture.open(t);
  await fixture.add('ann@example.org', 'a.*b "c" \\d');
  assert.deepEqual(await fixture.subjects('.*b "c" \\d'), ['a.*b "c" \\d']);
  for (const q of ['a.b', '\0', 'x'.repeat(998), '../..', '(', '\ud800', 'a\0b']) {
    assert.deepEqual(await fixture.subjects(q), [], JSON.stringify(q.slice(0, 9)));
  }
  assert.deepEqual(await fixture.find(' \n '), { items: [], total: 0, mailboxes: 0, searched: 0 });
});

test('what other programs did since the last search counts', async (t) => {
  const fixture = await SearchFixture.open(t);
  await fixture.fill('ann@example.org', 'offer', 5);
  await fixture.fill('bob@example.org', 'offer', 5);
  assert.equal((await fixture.find('offer')).total, 10);
  const cur = join(fixture.pathOf('ann@example.org'), 'cur');
  await unlink(join(cur, (await readdir(cur)).toSorted()[0] ?? ''));
  await fixture.add('bob@example.org', 'offer of today');
  assert.deepEqual((await fixture.subjects('offer'))[0], 'offer of today');
  await rename(fixture.pathOf('ann@example.org'), fixture.pathOf('zoe@example.org'));
  const renamed = await fixture.find('offer');
  assert.deepEqual([renamed.total, renamed.mailboxes], [10, 2]);
  assert.ok(renamed.items.every(({ mailbox }) => mailbox !== 'ann@example.org'));
  assert.ok(renamed.items.some(({ mailbox }) => mailbox === 'zoe@example.org'));
  await rm(fixture.pathOf('bob@example.org'), { recursive: true });
  const left = await fixture.find('offer');
  assert.deepEqual([left.total, left.mailboxes, left.searched], [4, 1, 1]);
});

test('a damaged or missing file of the cache costs nothing but time', async (t) => {
  const fixture = await SearchFixture.open(t);
  await fixture.fill('ann@example.org', 'offer', 20);
  const before = await fixture.subjects('offer 1');
  const harms: readonly ((path: string) => Promise<unknown>)[] = [
    (path) => truncate(path, 100),
    (path) => writeFile(path, 'something else'),
    (path) => unlink(path),
  ];
  for (const harm of harms) {
    await fixture.restart();
    const names = await readdir(fixture.files);
    assert.equal(names.length, 2);
    for (const name of names) await harm(join(fixture.files, name));
    assert.deepEqual(await fixture.subjects('offer 1'), before);
  }
});

test('a search whose time is up says how much it has searched, and the background completes it', async (t) => {
  const fixture = await SearchFixture.open(t);
  for (const user of ['ann', 'bob', 'cy']) await fixture.fill(`${user}@example.org`, 'offer', 100);
  const first = await fixture.find('offer', { timeoutMs: 0 });
  assert.deepEqual([first.total, first.mailboxes, first.searched], [0, 3, 0]);
  let last = first;
  for (let round = 0; round < 100 && last.searched < 3; round++) {
    await pause(100);
    // Too short to read a mailbox, long enough to search three that were read.
    last = await fixture.find('offer', { timeoutMs: 50 });
  }
  assert.deepEqual([last.total, last.searched], [300, 3]);
});

test('mailboxes and folders that the account may not open are neither searched nor counted', async (t) => {
  const fixture = await SearchFixture.open(t);
  await fixture.add('ann@example.org', 'offer');
  await fixture.add('ann@example.org', 'offer', { folder: '.Private' });
  await fixture.add('boss@example.org', 'offer');
  const asked: string[] = [];
  const mayOpen = (path: string): boolean => {
    asked.push(path);
    return !path.startsWith('/store/example.org/boss/') && !path.includes('/Private/messages/');
  };
  const { items, ...rest } = await fixture.find('offer', { mayOpen });
  assert.deepEqual(rest, { total: 1, mailboxes: 1, searched: 1 });
  assert.equal(items[0]?.mailbox, 'ann@example.org');
  assert.ok(asked.includes('/store/example.org/boss/folders/INBOX'));
  assert.equal((await fixture.find('offer', { mayOpen: () => false })).mailboxes, 0);
});

test('searches are limited: one too many is told to come again', async (t) => {
  const fixture = await SearchFixture.open(t);
  await fixture.fill('ann@example.org', 'offer', 3);
  await fixture.find('offer');
  const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => fixture.find('offer')));
  const refused = outcomes.filter(({ status }) => status === 'rejected');
  assert.equal(refused.length, 2);
  assert.match(String((refused[0] as PromiseRejectedResult).reason), /Too many searches/);
  assert.equal((await fixture.find('offer')).total, 3);
});
