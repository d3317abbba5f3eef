import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  unlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { CacheGround } from './cache-ground.js';

suite('what is kept of a folder', () => {
  test('serves a restart: the messages are not read again', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(30);
    const before = await ground.shown();
    await ground.restart();
    // Other text in the same files: whoever reads them again shows it.
    await ground.overwriteAll('Subject: other\r\n\r\n');
    assert.deepEqual(await ground.shown(), before);
    assert.deepEqual(await ground.shown({ q: 'm7' }), ['m7']);
  });

  test('is brought up to date with what other programs did meanwhile', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(10);
    await ground.shown();
    await ground.restart();
    await ground.remove('m3');
    await ground.flag('m4', 'FS');
    await ground.add('m11');
    const shown = await ground.shown();
    assert.deepEqual(shown, ['m11', 'm10', 'm9', 'm8', 'm7', 'm6', 'm5', 'm4', 'm2', 'm1']);
    assert.deepEqual(await ground.shown({ flagged: true }), ['m4']);
    assert.deepEqual(await ground.shown({ q: 'm11' }), ['m11']);
  });

  test('is not needed: it may go at any time, and comes again', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(10);
    const before = await ground.shown();
    await ground.restart();
    assert.equal((await readdir(ground.files)).length, 2);
    await rm(ground.files, { recursive: true });
    assert.deepEqual(await ground.shown(), before);
    await ground.restart();
    assert.deepEqual(await ground.shown({ q: 'm2' }), ['m2']);
    await rm(ground.files, { recursive: true });
    await ground.add('m11');
    assert.deepEqual(await ground.shown(), ['m11', ...before]);
    await ground.restart();
    await ground.overwriteAll('Subject: other\r\n\r\n');
    assert.deepEqual(await ground.shown(), ['m11', ...before], 'it came again, whole');
  });

  for (const kind of ['index', 'summaries'] as const) {
    test(`is left out where it is in doubt: ${kind}`, async (t) => {
      const ground = await CacheGround.open(t);
      await ground.fill(10);
      const before = await ground.shown();
      await ground.restart();
      const path = await ground.file(kind);
      const whole = await readFile(path);
      const harms: readonly [string, () => Promise<unknown>][] = [
        ['cut off', () => truncate(path, whole.length - 100)],
        ['cut off at its beginning', () => truncate(path, 20)],
        ['empty', () => truncate(path, 0)],
        ['something else', () => writeFile(path, 'something else\n'.repeat(1000))],
        ['zeros at the end', () => writeFile(path, Buffer.concat([whole.subarray(0, -500), Buffer.alloc(500)]))],
        ['a bit', () => writeFile(path, flipped(whole, Math.floor(whole.length / 2)))],
        ['longer', () => writeFile(path, Buffer.concat([whole, Buffer.from('more')]))],
        ['gone', () => unlink(path)],
        ['the file of another folder', () => ground.exchangeWithOther(kind)],
      ];
      for (const [harm, inflict] of harms) {
        await writeFile(path, whole);
        await inflict();
        assert.deepEqual(await ground.shown(), before, harm);
        assert.deepEqual(await ground.shown({ q: 'm1' }), ['m10', 'm1'], harm);
        assert.deepEqual(await ground.shown({ q: 'm9' }), ['m9'], harm);
        await ground.restart();
      }
    });
  }

  test('is noticed to be damaged while it is used', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(40);
    const before = await ground.shown();
    await ground.restart();
    await ground.shown({ limit: 1 });
    const path = await ground.file('summaries');
    await writeFile(path, flipped(await readFile(path), 3000), { flag: 'r+' });
    assert.deepEqual(await ground.shown({ q: 'm' }), before);
    assert.deepEqual(await ground.shown(), before);
  });

  test('of small folders there are no files', async (t) => {
    const ground = await CacheGround.open(t, { keptFrom: 50 });
    await ground.fill(49);
    assert.equal((await ground.shown()).length, 49);
    await ground.restart();
    assert.deepEqual(await readdir(ground.files), []);
  });

  test('takes no more room than it may: what is left of other folders goes first', async (t) => {
    const ground = await CacheGround.open(t, { diskBytes: 1000 });
    await ground.fill(60);
    for (const name of ['A', 'B']) {
      await ground.reading.makeFolder(name);
      for (let n = 0; n < 60; n++) await ground.add(`${name}${n}`, name);
      await ground.shown({}, name);
    }
    await ground.restart();
    for (const name of await readdir(ground.files)) await utimes(join(ground.files, name), 1000, 1000);
    await ground.shown();
    await ground.restart();
    await writeFile(join(ground.files, 'foreign'), 'x'.repeat(100_000));
    await writeFile(join(ground.files, `${'0'.repeat(32)}.index.abc.tmp`), 'half');
    await ground.shown();
    await ground.restart();
    const left = await readdir(ground.files);
    assert.ok(left.includes('foreign'), 'what is not ours stays');
    assert.ok(left.length <= 3, left.join(' '));
  });

  test('leaves alone what has a name of its files and is none', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(60);
    const key = '0'.repeat(32);
    const odd = [`${key}.index`, `${key}.summaries`, `${key}.summaries.new`] as const;
    await mkdir(join(ground.files, odd[1]), { recursive: true });
    execFileSync('mkfifo', [join(ground.files, odd[0])]);
    await symlink('/etc/hostname', join(ground.files, odd[2]));
    assert.equal((await ground.list({})).total, 60);
    const left = await readdir(ground.files);
    for (const name of odd) assert.ok(left.includes(name), name);
  });

  test('does not keep what was read of messages that are gone', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(1200);
    assert.equal((await ground.list({ q: 'm' })).total, 1200);
    await ground.restart();
    const before = (await stat(await ground.file('summaries'))).size;
    await ground.removeAllBut(20);
    assert.deepEqual((await ground.shown({ q: 'm' })).slice(0, 2), ['m1200', 'm1199']);
    await ground.restart();
    const after = (await stat(await ground.file('summaries'))).size;
    assert.ok(after * 20 < before, `${before} bytes, then ${after}`);
    await ground.overwriteAll('Subject: other\r\n\r\n');
    assert.equal((await ground.shown({ q: 'm' })).length, 20);
  });

  test('goes when its folder does', async (t) => {
    const ground = await CacheGround.open(t);
    for (const name of ['A', 'B']) {
      await ground.reading.makeFolder(name);
      for (let n = 0; n < 10; n++) await ground.add(`${name}${n}`, name);
      await ground.shown({}, name);
    }
    await ground.restart();
    assert.equal((await readdir(ground.files)).length, 4);
    await rm(ground.reading.pathOf('A'), { recursive: true });
    assert.equal((await ground.shown({}, 'B')).length, 10);
    assert.equal((await readdir(ground.files)).length, 2);
    const { path } = await (
      await ground.reader()
    ).mailboxFolders.find(ground.reading.mailbox, ground.reading.folder('B'));
    await rm(path, { recursive: true });
    const { messages } = (await ground.reader()).mailboxFolders;
    await assert.rejects(messages.totals({ mailbox: ground.reading.mailbox, name: ground.reading.folder('B'), path }));
    assert.deepEqual(await readdir(ground.files), []);
  });

  test('of many folders only the last ones stay in memory, and all are right', async (t) => {
    const ground = await CacheGround.open(t, { memoryBytes: 20_000, keptFrom: 5 });
    const names = ['A', 'B', 'C', 'D', 'E'];
    for (const name of names) {
      await ground.reading.makeFolder(name);
      for (let n = 0; n < 20; n++) await ground.add(`${name}${n}`, name);
    }
    for (let round = 0; round < 3; round++) {
      for (const name of names) {
        await ground.add(`${name}-${round}`, name);
        const shown = await ground.shown({ q: name.toLowerCase() }, name);
        assert.deepEqual([shown.length, shown[0]], [21 + round, `${name}-${round}`]);
      }
    }
  });
});

suite('a folder that other programs change', () => {
  test('is right at once, however quickly one change follows another', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(20);
    for (let round = 0; round < 60; round++) {
      await ground.flag('m5', round % 2 === 0 ? 'S' : '');
      assert.equal((await ground.shown({ unread: true })).includes('m5'), round % 2 === 1, `round ${round}`);
      await ground.add(`n${round}`);
      assert.equal((await ground.shown())[0], `n${round}`);
      await ground.remove(`n${round}`);
      assert.equal((await ground.shown({ limit: 1 }))[0], 'm20');
    }
  });

  test('is right when its time is set back as if nothing had happened', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(5);
    const times = [new Date(1_600_000_000_000), new Date(1_600_000_000_000)] as const;
    const cur = join(ground.reading.home, 'cur');
    await utimes(cur, ...times);
    await ground.reading.settled();
    assert.equal((await ground.shown()).length, 5);
    await ground.remove('m2');
    await utimes(cur, ...times);
    assert.equal((await ground.shown()).length, 4);
  });

  test('is right when a whole directory takes its place', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(5);
    await ground.reading.makeFolder('Other');
    await ground.add('elsewhere', 'Other');
    await ground.reading.settled();
    assert.equal((await ground.shown()).length, 5);
    await rename(join(ground.reading.home, 'cur'), join(ground.reading.home, 'aside'));
    await rename(join(ground.reading.pathOf('Other'), 'cur'), join(ground.reading.home, 'cur'));
    assert.deepEqual(await ground.shown(), ['elsewhere']);
  });

  test('has pages that stay where they are while mail arrives and goes', async (t) => {
    const ground = await CacheGround.open(t);
    await ground.fill(60);
    const seen: string[] = [];
    let cursor: string | null = '';
    for (let page = 0; cursor !== null; page++) {
      const list = await ground.list({ limit: 7, q: 'm', ...(cursor === '' ? {} : { cursor }) });
      seen.push(...list.items.map(({ subject }) => subject));
      await ground.add(`late${page}`);
      await ground.flag(`m${60 - page}`, page % 2 === 0 ? 'S' : 'F');
      cursor = list.nextCursor;
    }
    assert.deepEqual(
      seen,
      Array.from({ length: 60 }, (_, n) => `m${60 - n}`),
    );
  });
});

function flipped(bytes: Buffer, at: number): Buffer {
  const changed = Buffer.from(bytes);
  changed[at] = (changed[at] ?? 0) ^ 1;
  return changed;
}
