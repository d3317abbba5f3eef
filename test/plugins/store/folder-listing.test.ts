import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { isProblem } from '../../../core/problem.js';
import { message, ReadingGround } from './reading-ground.js';

const mail = (subject: string) =>
  message(`Subject: ${subject}`, 'From: Ann <ann@example.org>', '', `Text of ${subject}`);
const subjects = (page: { readonly items: readonly { readonly subject: string }[] }) =>
  page.items.map(({ subject }) => subject);
const notFound = (error: unknown) => isProblem(error) && error.problem === 'not-found';
const badRequest = (error: unknown) => isProblem(error) && error.problem === 'bad-request';

async function withMessages(ground: ReadingGround, count: number): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let n = 1; n <= count; n++) ids.push(await ground.file(mail(`m${n}`)));
  return ids;
}

suite('the list of a folder', () => {
  test('is newest first, in pages that lead forth and back', async (t) => {
    const ground = await ReadingGround.open(t);
    await withMessages(ground, 7);
    const first = await ground.list({ limit: 3 });
    assert.deepEqual([subjects(first), first.total, first.prevCursor], [['m7', 'm6', 'm5'], 7, null]);
    const second = await ground.list({ limit: 3, cursor: first.nextCursor ?? '' });
    assert.deepEqual(subjects(second), ['m4', 'm3', 'm2']);
    const third = await ground.list({ limit: 3, cursor: second.nextCursor ?? '' });
    assert.deepEqual([subjects(third), third.nextCursor], [['m1'], null]);
    const back = await ground.list({ limit: 3, cursor: third.prevCursor ?? '' });
    assert.deepEqual(subjects(back), ['m4', 'm3', 'm2']);
    const oldest = await ground.list({ limit: 3, order: 'oldest' });
    assert.deepEqual(subjects(oldest), ['m1', 'm2', 'm3']);
    assert.deepEqual(subjects(await ground.list({ limit: 3, order: 'oldest', cursor: oldest.nextCursor ?? '' })), [
      'm4',
      'm5',
      'm6',
    ]);
  });

  test('cursors stay right while mail arrives and goes', async (t) => {
    const ground = await ReadingGround.open(t);
    const ids = await withMessages(ground, 6);
    const first = await ground.list({ limit: 2 });
    await ground.file(mail('m7'));
    await rm(join(ground.home, 'new', ids[4] ?? ''));
    const second = await ground.list({ limit: 2, cursor: first.nextCursor ?? '' });
    assert.deepEqual(subjects(second), ['m4', 'm3']);
    assert.deepEqual(subjects(await ground.list({ limit: 2, cursor: second.prevCursor ?? '' })), ['m7', 'm6']);
    await assert.rejects(ground.list({ cursor: 'bm9wZQ' }), badRequest);
  });

  test('filters by flags, time and words', async (t) => {
    const ground = await ReadingGround.open(t);
    await ground.file(mail('red apple'), { at: 1_700_000_000, flags: 'S' });
    await ground.file(mail('red flag'), { at: 1_700_000_100, flags: 'FS' });
    await ground.file(mail('green APPLE'), { at: 1_700_000_200 });
    assert.deepEqual(subjects(await ground.list({ unread: true })), ['green APPLE']);
    assert.deepEqual(subjects(await ground.list({ unread: false })), ['red flag', 'red apple']);
    assert.deepEqual(subjects(await ground.list({ flagged: true })), ['red flag']);
    assert.deepEqual(subjects(await ground.list({ q: 'apple' })), ['green APPLE', 'red apple']);
    assert.deepEqual(subjects(await ground.list({ q: 'apple RED' })), ['red apple']);
    assert.deepEqual(subjects(await ground.list({ q: 'text ann@' })), ['green APPLE', 'red flag', 'red apple']);
    assert.deepEqual(subjects(await ground.list({ since: 1_700_000_100_000 })), ['green APPLE', 'red flag']);
    assert.deepEqual(subjects(await ground.list({ before: 1_700_000_100_000 })), ['red apple']);
    const found = await ground.list({ q: 'apple', limit: 1 });
    assert.deepEqual([found.total, found.folder.total], [2, 3]);
  });

  test('finds a message by its Message-ID and its recipients, and not by the rest of its text', async (t) => {
    const ground = await ReadingGround.open(t);
    const head = ['Message-ID: <Ab.1@mail.example>', 'To: "Bücher, AG" <buch@example.net>, c@example.net'];
    await ground.file(
      message('Subject: one', ...head, '', ...Array.from({ length: 20 }, () => 'Words of a text.'), 'End.'),
    );
    await ground.file(mail('two'));
    for (const q of ['ab.1@MAIL', '<ab.1@mail.example>', 'BÜCHER', 'c@example.net buch@', 'one words']) {
      assert.deepEqual(subjects(await ground.list({ q })), ['one'], q);
    }
    assert.deepEqual(subjects(await ground.list({ q: 'end' })), []);
  });

  test('is right again as soon as a message came, went or got a flag', async (t) => {
    const ground = await ReadingGround.open(t);
    const [id = ''] = await withMessages(ground, 1);
    assert.equal((await ground.list()).folder.unread, 1);
    await rename(join(ground.home, 'new', id), join(ground.home, 'cur', `${id}:2,S`));
    assert.deepEqual(
      (await ground.list()).items.map(({ unread }) => unread),
      [false],
    );
    await rename(join(ground.home, 'cur', `${id}:2,S`), join(ground.home, 'cur', `${id}:2,FRSTa`));
    const [changed] = (await ground.list()).items;
    assert.deepEqual(
      [changed?.flagged, changed?.answered, changed?.draft, changed?.unread],
      [true, true, false, false],
    );
    await rm(join(ground.home, 'cur', `${id}:2,FRSTa`));
    assert.equal((await ground.list()).total, 0);
  });

  test('shows every message once while another program moves them from new to cur', async (t) => {
    const ground = await ReadingGround.open(t);
    const ids = await withMessages(ground, 200);
    const work = { moving: true };
    const mover = (async () => {
      for (const id of ids) await rename(join(ground.home, 'new', id), join(ground.home, 'cur', `${id}:2,S`));
      work.moving = false;
    })();
    do {
      const page = await ground.list({ limit: 1000 });
      assert.equal(page.items.length, 200);
      assert.equal(new Set(page.items.map(({ id }) => id)).size, 200);
    } while (work.moving);
    await mover;
    assert.equal((await ground.list()).folder.unread, 0);
  });

  test('takes names of other programs: without size, without time, with keywords', async (t) => {
    const ground = await ReadingGround.open(t);
    await ground.put('cur/1700000000.abc.host:2,Sab', mail('other'));
    await ground.put('new/no-time-in-front', mail('odd'));
    await ground.put('cur/.hidden', mail('hidden'));
    await ground.put('dovecot-uidlist', '3 V1 N1');
    const page = await ground.list();
    assert.deepEqual(subjects(page).toSorted(), ['odd', 'other']);
    assert.equal(page.folder.size, Buffer.byteLength(mail('other')) + Buffer.byteLength(mail('odd')));
    assert.equal((await ground.view('no-time-in-front')).subject, 'odd');
  });

  test('leaves out links, folders and FIFOs, and reads through none of them', async (t) => {
    const ground = await ReadingGround.open(t);
    const id = await ground.file(mail('real'));
    const outside = join(ground.root, 'secret');
    await writeFile(outside, mail('secret'));
    await symlink(outside, join(ground.home, 'new', '1700009999.link.host'));
    await symlink(join(ground.home, 'missing'), join(ground.home, 'new', '1700009998.dangling.host'));
    await mkdir(join(ground.home, 'cur', '1700009997.dir.host'));
    execFileSync('mkfifo', [join(ground.home, 'cur', '1700009996.fifo.host:2,S')]);
    assert.deepEqual(subjects(await ground.list()), ['real']);
    for (const name of ['1700009999.link.host', '1700009996.fifo.host', '1700009997.dir.host']) {
      await assert.rejects(ground.view(name), notFound, name);
    }
    assert.equal((await ground.view(id)).subject, 'real');
  });

  test('does not follow a folder that is a link', async (t) => {
    const ground = await ReadingGround.open(t);
    const elsewhere = join(ground.root, 'elsewhere');
    for (const part of ['new', 'cur', 'tmp']) await mkdir(join(elsewhere, part), { recursive: true });
    await writeFile(join(elsewhere, 'new', '1700000000.M1P1.host'), mail('secret'));
    await symlink(elsewhere, join(ground.home, '.Linked'));
    await ground.makeFolder('Half');
    await rm(join(ground.pathOf('Half'), 'new'), { recursive: true });
    await symlink(join(elsewhere, 'new'), join(ground.pathOf('Half'), 'new'));
    await assert.rejects(ground.list({}, 'Linked'), notFound);
    assert.deepEqual(subjects(await ground.list({}, 'Half')), []);
    const names = (await ground.reader.folders(ground.mailbox)).map(({ name }) => name);
    assert.deepEqual(names, ['INBOX', 'Half']);
  });

  test('nothing is read through a folder that is swapped for a link again and again', async (t) => {
    const ground = await ReadingGround.open(t);
    await ground.makeFolder('Swap');
    const elsewhere = join(ground.root, 'elsewhere');
    for (const part of ['new', 'cur']) await mkdir(join(elsewhere, part), { recursive: true });
    const name = '1700000000.M1P1.host';
    await writeFile(join(elsewhere, 'new', name), mail('secret'));
    await writeFile(join(ground.pathOf('Swap'), 'new', name), mail('own'));
    const place = { mailbox: ground.mailbox, folder: ground.folder('Swap'), id: name };
    await symlink(elsewhere, join(ground.home, 'link'));
    const work = { reading: true };
    const swapper = (async () => {
      while (work.reading) {
        await rename(ground.pathOf('Swap'), join(ground.home, 'aside'));
        await rename(join(ground.home, 'link'), ground.pathOf('Swap'));
        await rename(ground.pathOf('Swap'), join(ground.home, 'link'));
        await rename(join(ground.home, 'aside'), ground.pathOf('Swap'));
      }
    })();
    let read = 0;
    for (let n = 0; n < 500; n++) {
      const raw = await ground.reader.rawHead(place).catch((error: unknown) => {
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
    const ground = await ReadingGround.open(t);
    const [id = ''] = await withMessages(ground, 1);
    assert.equal((await ground.view(id)).unread, true);
    await rename(join(ground.home, 'new', id), join(ground.home, 'cur', `${id}:2,S`));
    assert.equal((await ground.view(id)).unread, false);
    await rm(join(ground.home, 'cur', `${id}:2,S`));
    await assert.rejects(ground.view(id), notFound);
  });

  test('is read while another program changes its flags', async (t) => {
    const ground = await ReadingGround.open(t);
    const [id = ''] = await withMessages(ground, 1);
    const place = { mailbox: ground.mailbox, folder: ground.folder(), id };
    const nameWith = (flags: string) => join(ground.home, 'cur', `${id}:2,${flags}`);
    await rename(join(ground.home, 'new', id), nameWith(''));
    for (let n = 0; n < 200; n++) {
      const [from, to] = n % 2 === 0 ? ['', 'S'] : ['S', ''];
      const [raw] = await Promise.all([ground.reader.rawHead(place), rename(nameWith(from), nameWith(to))]);
      assert.match(raw.bytes.toString(), /^Subject: m1/);
    }
  });
});
