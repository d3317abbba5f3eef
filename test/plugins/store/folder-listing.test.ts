import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { isProblem } from '../../../core/problem.js';
import { message, ReadingFixture } from './reading-fixture.js';

const mail = (subject: string) =>
  message(`Subject: ${subject}`, 'From: Ann <ann@example.org>', '', `Text of ${subject}`);
const subjects = (page: { readonly items: readonly { readonly subject: string }[] }) =>
  page.items.map(({ subject }) => subject);
const notFound = (error: unknown) => isProblem(error) && error.problem === 'not-found';
const badRequest = (error: unknown) => isProblem(error) && error.problem === 'bad-request';

async function withMessages(fixture: ReadingFixture, count: number): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let n = 1; n <= count; n++) ids.push(await fixture.file(mail(`m${n}`)));
  return ids;
}

suite('the list of a folder', () => {
  test('is newest first, in pages that lead forth and back', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await withMessages(fixture, 7);
    const first = await fixture.list({ limit: 3 });
    assert.deepEqual([subjects(first), first.total, first.prevCursor], [['m7', 'm6', 'm5'], 7, null]);
    const second = await fixture.list({ limit: 3, cursor: first.nextCursor ?? '' });
    assert.deepEqual(subjects(second), ['m4', 'm3', 'm2']);
    const third = await fixture.list({ limit: 3, cursor: second.nextCursor ?? '' });
    assert.deepEqual([subjects(third), third.nextCursor], [['m1'], null]);
    const back = await fixture.list({ limit: 3, cursor: third.prevCursor ?? '' });
    assert.deepEqual(subjects(back), ['m4', 'm3', 'm2']);
    const oldest = await fixture.list({ limit: 3, order: 'oldest' });
    assert.deepEqual(subjects(oldest), ['m1', 'm2', 'm3']);
    assert.deepEqual(subjects(await fixture.list({ limit: 3, order: 'oldest', cursor: oldest.nextCursor ?? '' })), [
      'm4',
      'm5',
      'm6',
    ]);
  });

  test('cursors stay right while mail arrives and goes', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const ids = await withMessages(fixture, 6);
    const first = await fixture.list({ limit: 2 });
    await fixture.file(mail('m7'));
    await rm(join(fixture.home, 'new', ids[4] ?? ''));
    const second = await fixture.list({ limit: 2, cursor: first.nextCursor ?? '' });
    assert.deepEqual(subjects(second), ['m4', 'm3']);
    assert.deepEqual(subjects(await fixture.list({ limit: 2, cursor: second.prevCursor ?? '' })), ['m7', 'm6']);
    await assert.rejects(fixture.list({ cursor: 'bm9wZQ' }), badRequest);
  });

  test('filters by flags, time and words', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await fixture.file(mail('red apple'), { at: 1_700_000_000, flags: 'S' });
    await fixture.file(mail('red flag'), { at: 1_700_000_100, flags: 'FS' });
    await fixture.file(mail('green APPLE'), { at: 1_700_000_200 });
    assert.deepEqual(subjects(await fixture.list({ unread: true })), ['green APPLE']);
    assert.deepEqual(subjects(await fixture.list({ unread: false })), ['red flag', 'red apple']);
    assert.deepEqual(subjects(await fixture.list({ flagged: true })), ['red flag']);
    assert.deepEqual(subjects(await fixture.list({ q: 'apple' })), ['green APPLE', 'red apple']);
    assert.deepEqual(subjects(await fixture.list({ q: 'apple RED' })), ['red apple']);
    assert.deepEqual(subjects(await fixture.list({ q: 'text ann@' })), ['green APPLE', 'red flag', 'red apple']);
    assert.deepEqual(subjects(await fixture.list({ since: 1_700_000_100_000 })), ['green APPLE', 'red flag']);
    assert.deepEqual(subjects(await fixture.list({ before: 1_700_000_100_000 })), ['red apple']);
    const found = await fixture.list({ q: 'apple', limit: 1 });
    assert.deepEqual([found.total, found.folder.total], [2, 3]);
  });

  test('finds a message by its Message-ID and its recipients, and not by the rest of its text', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const head = ['Message-ID: <Ab.1@mail.example>', 'To: "Bücher, AG" <buch@example.net>, c@example.net'];
    await fixture.file(
      message('Subject: one', ...head, '', ...Array.from({ length: 20 }, () => 'Words of a text.'), 'End.'),
    );
    await fixture.file(mail('two'));
    for (const q of ['ab.1@MAIL', '<ab.1@mail.example>', 'BÜCHER', 'c@example.net buch@', 'one words']) {
      assert.deepEqual(subjects(await fixture.list({ q })), ['one'], q);
    }
    assert.deepEqual(subjects(await fixture.list({ q: 'end' })), []);
  });

  test('is right again as soon as a message came, went or got a flag', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const [id = ''] = await withMessages(fixture, 1);
    assert.equal((await fixture.list()).folder.unread, 1);
    await rename(join(fixture.home, 'new', id), join(fixture.home, 'cur', `${id}:2,S`));
    assert.deepEqual(
      (await fixture.list()).items.map(({ unread }) => unread),
      [false],
    );
    await rename(join(fixture.home, 'cur', `${id}:2,S`), join(fixture.home, 'cur', `${id}:2,FRSTa`));
    const [changed] = (await fixture.list()).items;
    assert.deepEqual(
      [changed?.flagged, changed?.answered, changed?.draft, changed?.unread],
      [true, true, false, false],
    );
    await rm(join(fixture.home, 'cur', `${id}:2,FRSTa`));
    assert.equal((await fixture.list()).total, 0);
  });

  test('shows every message once while another program moves them from new to cur', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const ids = await withMessages(fixture, 200);
    const work = { moving: true };
    const mover = (async () => {
      for (const id of ids) await rename(join(fixture.home, 'new', id), join(fixture.home, 'cur', `${id}:2,S`));
      work.moving = false;
    })();
    do {
      const page = await fixture.list({ limit: 1000 });
      assert.equal(page.items.length, 200);
      assert.equal(new Set(page.items.map(({ id }) => id)).size, 200);
    } while (work.moving);
    await mover;
    assert.equal((await fixture.list()).folder.unread, 0);
  });

  test('takes names of other programs: without size, without time, with keywords', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await fixture.put('cur/1700000000.abc.host:2,Sab', mail('other'));
    await fixture.put('new/no-time-in-front', mail('odd'));
    await fixture.put('cur/.hidden', mail('hidden'));
    await fixture.put('dovecot-uidlist', '3 V1 N1');
    const page = await fixture.list();
    assert.deepEqual(subjects(page).toSorted(), ['odd', 'other']);
    assert.equal(page.folder.size, Buffer.byteLength(mail('other')) + Buffer.byteLength(mail('odd')));
    assert.equal((await fixture.view('no-time-in-front')).subject, 'odd');
  });

  test('leaves out links, folders and FIFOs, and reads through none of them', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const id = await fixture.file(mail('real'));
    const outside = join(fixture.root, 'secret');
    await writeFile(outside, mail('secret'));
    await symlink(outside, join(fixture.home, 'new', '1700009999.link.host'));
    await symlink(join(fixture.home, 'missing'), join(fixture.home, 'new', '1700009998.dangling.host'));
    await mkdir(join(fixture.home, 'cur', '1700009997.dir.host'));
    execFileSync('mkfifo', [join(fixture.home, 'cur', '1700009996.fifo.host:2,S')]);
    assert.deepEqual(subjects(await fixture.list()), ['real']);
    for (const name of ['1700009999.link.host', '1700009996.fifo.host', '1700009997.dir.host']) {
      await assert.rejects(fixture.view(name), notFound, name);
    }
    assert.equal((await fixture.view(id)).subject, 'real');
  });

  test('does not follow a folder that is a link', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const elsewhere = join(fixture.root, 'elsewhere');
    for (const part of ['new', 'cur', 'tmp']) await mkdir(join(elsewhere, part), { recursive: true });
    await writeFile(join(elsewhere, 'new', '1700000000.M1P1.host'), mail('secret'));
    await symlink(elsewhere, join(fixture.home, '.Linked'));
    await fixture.makeFolder('Half');
    await rm(join(fixture.pathOf('Half'), 'new'), { recursive: true });
    await symlink(join(elsewhere, 'new'), join(fixture.pathOf('Half'), 'new'));
    await assert.rejects(fixture.list({}, 'Linked'), notFound);
    assert.deepEqual(subjects(await fixture.list({}, 'Half')), []);
    const names = (await fixture.reader.folders(fixture.mailbox)).map(({ name }) => name);
    assert.deepEqual(names, ['INBOX', 'Half']);
  });

  test('nothing is read through a folder that is swapped for a link again and again', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await fixture.makeFolder('Swap');
    const elsewhere = join(fixture.root, 'elsewhere');
    for (const part of ['new', 'cur']) await mkdir(join(elsewhere, part), { recursive: true });
    const name = '1700000000.M1P1.host';
    await writeFile(join(elsewhere, 'new', name), mail('secret'));
    await writeFile(join(fixture.pathOf('Swap'), 'new', name), mail('own'));
    const place = { mailbox: fixture.mailbox, folder: fixture.folder('Swap'), id: name };
    await symlink(elsewhere, join(fixture.home, 'link'));
    const work = { reading: true };
    const swapper = (async () => {
      while (work.reading) {
        await rename(fixture.pathOf('Swap'), join(fixture.home, 'aside'));
        await rename(join(fixture.home, 'link'), fixture.pathOf('Swap'));
        await rename(fixture.pathOf('Swap'), join(fixture.home, 'link'));
        await rename(join(fixture.home, 'aside'), fixture.pathOf('Swap'));
      }
    })();
    let read = 0;
    for (let n = 0; n < 500; n++) {
      const raw = await fixture.reader.rawHead(place).catch((error: unknown) => {
        assert.ok(notFound(error), String(error));
      });
      if (raw === undefined) continue;
      read += 1;
      assert.match(raw.bytes.toString(), /^Subject: own/);
    }
    work.reading = false;
    await swapper;
    t.diagnostic(`read ${read} times`);
  });
});

suite('a message by its id', () => {
  test('is found wherever it has been moved inside of its folder, and is gone when it is', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const [id = ''] = await withMessages(fixture, 1);
    assert.equal((await fixture.view(id)).unread, true);
    await rename(join(fixture.home, 'new', id), join(fixture.home, 'cur', `${id}:2,S`));
    assert.equal((await fixture.view(id)).unread, false);
    await rm(join(fixture.home, 'cur', `${id}:2,S`));
    await assert.rejects(fixture.view(id), notFound);
  });

  test('is read while another program changes its flags', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const [id = ''] = await withMessages(fixture, 1);
    const place = { mailbox: fixture.mailbox, folder: fixture.folder(), id };
    const nameWith = (flags: string) => join(fixture.home, 'cur', `${id}:2,${flags}`);
    await rename(join(fixture.home, 'new', id), nameWith(''));
    for (let n = 0; n < 200; n++) {
      const [from, to] = n % 2 === 0 ? ['', 'S'] : ['S', ''];
      const [raw] = await Promise.all([fixture.reader.rawHead(place), rename(nameWith(from), nameWith(to))]);
      assert.match(raw.bytes.toString(), /^Subject: m1/);
    }
  });
});
