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
import { CacheFixture } from './cache-fixture.js';

suite('what is kept of a folder', () => {
  test('serves a restart: the messages are not read again', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(30);
    const before = await fixture.shown();
    await fixture.restart();
    // Other text in the same files: whoever reads them again shows it.
    await fixture.overwriteAll('Subject: other\r\n\r\n');
    assert.deepEqual(await fixture.shown(), before);
    assert.deepEqual(await fixture.shown({ q: 'm7' }), ['m7']);
  });

  test('is brought up to date with what other programs did meanwhile', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(10);
    await fixture.shown();
    await fixture.restart();
    await fixture.remove('m3');
    await fixture.flag('m4', 'FS');
    await fixture.add('m11');
    const shown = await fixture.shown();
    assert.deepEqual(shown, ['m11', 'm10', 'm9', 'm8', 'm7', 'm6', 'm5', 'm4', 'm2', 'm1']);
    assert.deepEqual(await fixture.shown({ flagged: true }), ['m4']);
    assert.deepEqual(await fixture.shown({ q: 'm11' }), ['m11']);
  });

  test('is not needed: it may go at any time, and comes again', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(10);
    const before = await fixture.shown();
    await fixture.restart();
    assert.equal((await readdir(fixture.files)).length, 2);
    await rm(fixture.files, { recursive: true });
    assert.deepEqual(await fixture.shown(), before);
    await fixture.restart();
    assert.deepEqual(await fixture.shown({ q: 'm2' }), ['m2']);
    await rm(fixture.files, { recursive: true });
    await fixture.add('m11');
    assert.deepEqual(await fixture.shown(), ['m11', ...before]);
    await fixture.restart();
    await fixture.overwriteAll('Subject: other\r\n\r\n');
    assert.deepEqual(await fixture.shown(), ['m11', ...before], 'it came again, whole');
  });

  for (const kind of ['index', 'summaries'] as const) {
    test(`is left out where it is in doubt: ${kind}`, async (t) => {
      const fixture = await CacheFixture.open(t);
      await fixture.fill(10);
      const before = await fixture.shown();
      await fixture.restart();
      const path = await fixture.file(kind);
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
        ['the file of another folder', () => fixture.exchangeWithOther(kind)],
      ];
      for (const [harm, inflict] of harms) {
        await writeFile(path, whole);
        await inflict();
        assert.deepEqual(await fixture.shown(), before, harm);
        assert.deepEqual(await fixture.shown({ q: 'm1' }), ['m10', 'm1'], harm);
        assert.deepEqual(await fixture.shown({ q: 'm9' }), ['m9'], harm);
        await fixture.restart();
      }
    });
  }

  test('is noticed to be damaged while it is used', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(40);
    const before = await fixture.shown();
    await fixture.restart();
    await fixture.shown({ limit: 1 });
    const path = await fixture.file('summaries');
    await writeFile(path, flipped(await readFile(path), 3000), { flag: 'r+' });
    assert.deepEqual(await fixture.shown({ q: 'm' }), before);
    assert.deepEqual(await fixture.shown(), before);
  });

  test('of small folders there are no files', async (t) => {
    const fixture = await CacheFixture.open(t, { keptFrom: 50 });
    await fixture.fill(49);
    assert.equal((await fixture.shown()).length, 49);
    await fixture.restart();
    assert.deepEqual(await readdir(fixture.files), []);
  });

  test('takes no more room than it may: what is left of other folders goes first', async (t) => {
    const fixture = await CacheFixture.open(t, { diskBytes: 1000 });
    await fixture.fill(60);
    for (const name of ['A', 'B']) {
      await fixture.reading.makeFolder(name);
      for (let n = 0; n < 60; n++) await fixture.add(`${name}${n}`, name);
      await fixture.shown({}, name);
    }
    await fixture.restart();
    for (const name of await readdir(fixture.files)) await utimes(join(fixture.files, name), 1000, 1000);
    await fixture.shown();
    await fixture.restart();
    await writeFile(join(fixture.files, 'foreign'), 'x'.repeat(100_000));
    await writeFile(join(fixture.files, `${'0'.repeat(32)}.index.abc.tmp`), 'half');
    await fixture.shown();
    await fixture.restart();
    const left = await readdir(fixture.files);
    assert.ok(left.includes('foreign'), 'what is not ours stays');
    assert.ok(left.length <= 3, left.join(' '));
  });

  test('leaves alone what has a name of its files and is none', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(60);
    const key = '0'.repeat(32);
    const odd = [`${key}.index`, `${key}.summaries`, `${key}.summaries.new`] as const;
    await mkdir(join(fixture.files, odd[1]), { recursive: true });
    execFileSync('mkfifo', [join(fixture.files, odd[0])]);
    await symlink('/etc/hostname', join(fixture.files, odd[2]));
    assert.equal((await fixture.list({})).total, 60);
    const left = await readdir(fixture.files);
    for (const name of odd) assert.ok(left.includes(name), name);
  });

  test('does not keep what was read of messages that are gone', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(1200);
    assert.equal((await fixture.list({ q: 'm' })).total, 1200);
    await fixture.restart();
    const before = (await stat(await fixture.file('summaries'))).size;
    await fixture.removeAllBut(20);
    assert.deepEqual((await fixture.shown({ q: 'm' })).slice(0, 2), ['m1200', 'm1199']);
    await fixture.restart();
    const after = (await stat(await fixture.file('summaries'))).size;
    assert.ok(after * 20 < before, `${before} bytes, then ${after}`);
    await fixture.overwriteAll('Subject: other\r\n\r\n');
    assert.equal((await fixture.shown({ q: 'm' })).length, 20);
  });

  test('goes when its folder does', async (t) => {
    const fixture = await CacheFixture.open(t);
    for (const name of ['A', 'B']) {
      await fixture.reading.makeFolder(name);
      for (let n = 0; n < 10; n++) await fixture.add(`${name}${n}`, name);
      await fixture.shown({}, name);
    }
    await fixture.restart();
    assert.equal((await readdir(fixture.files)).length, 4);
    await rm(fixture.reading.pathOf('A'), { recursive: true });
    assert.equal((await fixture.shown({}, 'B')).length, 10);
    assert.equal((await readdir(fixture.files)).length, 2);
    const { path } = await (
      await fixture.reader()
    ).mailboxFolders.find(fixture.reading.mailbox, fixture.reading.folder('B'));
    await rm(path, { recursive: true });
    const { messages } = (await fixture.reader()).mailboxFolders;
    await assert.rejects(
      messages.totals({ mailbox: fixture.reading.mailbox, name: fixture.reading.folder('B'), path }),
    );
    assert.deepEqual(await readdir(fixture.files), []);
  });

  test('of many folders only the last ones stay in memory, and all are right', async (t) => {
    const fixture = await CacheFixture.open(t, { memoryBytes: 20_000, keptFrom: 5 });
    const names = ['A', 'B', 'C', 'D', 'E'];
    for (const name of names) {
      await fixture.reading.makeFolder(name);
      for (let n = 0; n < 20; n++) await fixture.add(`${name}${n}`, name);
    }
    for (let round = 0; round < 3; round++) {
      for (const name of names) {
        await fixture.add(`${name}-${round}`, name);
        const shown = await fixture.shown({ q: name.toLowerCase() }, name);
        assert.deepEqual([shown.length, shown[0]], [21 + round, `${name}-${round}`]);
      }
    }
  });
});

suite('a folder that other programs change', () => {
  test('is right at once, however quickly one change follows another', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(20);
    for (let round = 0; round < 60; round++) {
      await fixture.flag('m5', round % 2 === 0 ? 'S' : '');
      assert.equal((await fixture.shown({ unread: true })).includes('m5'), round % 2 === 1, `round ${round}`);
      await fixture.add(`n${round}`);
      assert.equal((await fixture.shown())[0], `n${round}`);
      await fixture.remove(`n${round}`);
      assert.equal((await fixture.shown({ limit: 1 }))[0], 'm20');
    }
  });

  test('is right when its time is set back as if nothing had happened', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(5);
    const times = [new Date(1_600_000_000_000), new Date(1_600_000_000_000)] as const;
    const cur = join(fixture.reading.home, 'cur');
    await utimes(cur, ...times);
    await fixture.reading.settled();
    assert.equal((await fixture.shown()).length, 5);
    await fixture.remove('m2');
    await utimes(cur, ...times);
    assert.equal((await fixture.shown()).length, 4);
  });

  test('is right when a whole directory takes its place', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(5);
    await fixture.reading.makeFolder('Other');
    await fixture.add('elsewhere', 'Other');
    await fixture.reading.settled();
    assert.equal((await fixture.shown()).length, 5);
    await rename(join(fixture.reading.home, 'cur'), join(fixture.reading.home, 'aside'));
    await rename(join(fixture.reading.pathOf('Other'), 'cur'), join(fixture.reading.home, 'cur'));
    assert.deepEqual(await fixture.shown(), ['elsewhere']);
  });

  test('has pages that stay where they are while mail arrives and goes', async (t) => {
    const fixture = await CacheFixture.open(t);
    await fixture.fill(60);
    const seen: string[] = [];
    let cursor: string | null = '';
    for (let page = 0; cursor !== null; page++) {
      const list = await fixture.list({ limit: 7, q: 'm', ...(cursor === '' ? {} : { cursor }) });
      seen.push(...list.items.map(({ subject }) => subject));
      await fixture.add(`late${page}`);
      await fixture.flag(`m${60 - page}`, page % 2 === 0 ? 'S' : 'F');
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
