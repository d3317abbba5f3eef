import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { AppendFailed, CommitLog, type CommitLogOptions, LogFull } from '../../../core/spool/commit-log.js';
import { nodeFiles } from '../../../core/disk/file-layer.js';
import { uniqueId } from '../../../core/disk/id.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';
import { FaultyFiles } from './faulty-files.js';
import { ForgetfulFiles } from './forgetful-files.js';
import { rememberingLog } from './remembering-log.js';
import { segmentsListed } from './spool-fixture.js';

const segmentBytes = 64 * 1024;

interface Fixture {
  readonly folder: string;
  readonly files: FaultyFiles;
  readonly open: (options?: Partial<CommitLogOptions>) => Promise<CommitLog>;
}

async function fixtureOf(t: Parameters<typeof temporaryFolder>[0]): Promise<Fixture> {
  const folder = join(await temporaryFolder(t), 'log');
  const files = new FaultyFiles();
  const { log } = rememberingLog();
  return { folder, files, open: (options = {}) => CommitLog.open(folder, { files, log, segmentBytes, ...options }) };
}

const append = (log: CommitLog, text: string) => log.append(7, [Buffer.from(text)]);

async function textsIn(log: CommitLog): Promise<readonly string[]> {
  const texts: string[] = [];
  await log.replay(({ payload }) => void texts.push(payload.toString()));
  return texts;
}

test('appended records are replayed by the next start, in order', async (t) => {
  const { open } = await fixtureOf(t);
  const log = await open();
  const numbers = await Promise.all(Array.from({ length: 500 }, (_, n) => append(log, `record ${n} ${'x'.repeat(n)}`)));
  assert.deepEqual(
    numbers,
    Array.from({ length: 500 }, (_, n) => n + 1),
  );
  const next = await open();
  assert.deepEqual(
    (await textsIn(next)).map((text) => text.trimEnd().split(' ')[1]),
    Array.from({ length: 500 }, (_, n) => String(n)),
  );
  assert.equal(await append(next, 'later'), 501);
});

test('all waiting records share one write and one fdatasync', async (t) => {
  const { files, open } = await fixtureOf(t);
  const log = await open({ maxSegments: 1 });
  await append(log, 'first');
  await segmentsListed(files);
  files.calls.length = 0;
  await Promise.all(Array.from({ length: 100 }, (_, n) => append(log, `record ${n}`)));
  assert.deepEqual([files.count('write'), files.count('fdatasync'), files.calls.length], [1, 1, 2]);
});

test('nothing is acknowledged before it is durable', async (t) => {
  const { files, open } = await fixtureOf(t);
  const log = await open();
  const release = files.hold('fdatasync');
  let acknowledged = false;
  const appended = append(log, 'waits').then(() => (acknowledged = true));
  while (files.count('fdatasync') === 0) await new Promise(setImmediate);
  assert.equal(acknowledged, false);
  release();
  await appended;
});

test('released segments are used again, and their records are not replayed', async (t) => {
  const { folder, open } = await fixtureOf(t);
  const log = await open();
  for (let n = 0; n < 100; n += 1) {
    await append(log, `${n} ${'x'.repeat(10_000)}`);
    await log.release(log.last);
  }
  assert.ok((await segmentsIn(folder)).length <= 3);
  await append(log, 'wanted');
  assert.deepEqual(await textsIn(await open()), ['wanted']);
});

test('released records stay released after a crash, whatever is left of older segments', async (t) => {
  const { open } = await fixtureOf(t);
  const log = await open();
  for (let n = 0; n < 20; n += 1) await append(log, `${n} ${'x'.repeat(10_000)}`);
  await log.release(15);
  const texts = await textsIn(await open());
  assert.deepEqual(
    texts.map((text) => text.split(' ')[0]),
    ['15', '16', '17', '18', '19'],
  );
});

test('a log that was closed with all records released has nothing to read', async (t) => {
  const { folder, open } = await fixtureOf(t);
  const log = await open();
  await append(log, 'a');
  await log.release(log.last);
  await log.close();
  for (const name of await segmentsIn(folder)) {
    assert.ok((await readFile(join(folder, name))).subarray(0, 32).every((byte) => byte === 0));
  }
  assert.equal((await open()).hasUnreleased, false);
});

test('a closing log writes waiting records and refuses others, and clears its segments', async (t) => {
  const { open } = await fixtureOf(t);
  const log = await open();
  const early = append(log, 'early');
  const closing = log.close();
  await assert.rejects(append(log, 'late'), LogFull);
  await Promise.all([early, closing]);
  await assert.rejects(append(log, 'later'), LogFull);
  assert.deepEqual(await textsIn(await open()), ['early']);
});

test('a full log refuses records without writing them, and accepts them after a release', async (t) => {
  const { open } = await fixtureOf(t);
  const log = await open({ maxSegments: 2 });
  let taken = 0;
  await assert.rejects(async () => {
    for (; ; taken += 1) await append(log, 'x'.repeat(10_000));
  }, LogFull);
  assert.equal(log.isFull, true);
  assert.ok(taken >= 6);
  await log.release(log.last);
  assert.equal(log.isFull, false);
  assert.equal(await append(log, 'taken again'), taken + 2);
});

test('on a full disk the log is full and nothing is left of the segment that could not be created', async (t) => {
  const { folder, files, open } = await fixtureOf(t);
  const log = await open();
  files.order({ call: 'write', code: 'ENOSPC' });
  await assert.rejects(append(log, 'a'), LogFull);
  assert.equal(log.isFull, true);
  assert.deepEqual(await readdir(folder), []);
  files.order();
  await log.prepare();
  await append(log, 'b');
  assert.deepEqual(await textsIn(await open()), ['b']);
});

test('a log that was full for want of a segment is worth a try a while later, with no release in between', async (t) => {
  const { files, open } = await fixtureOf(t);
  const clock = new HandClock();
  const log = await open({ clock });
  files.order({ call: 'open', code: 'EMFILE', path: '.segment' });
  await assert.rejects(append(log, 'a'), LogFull);
  clock.advance(9);
  assert.equal(log.isFull, true);
  clock.advance(2);
  assert.equal(log.isFull, false);
  await assert.rejects(append(log, 'b'), LogFull);
  assert.equal(log.isFull, true, 'it failed again');
  files.order();
  clock.advance(11);
  assert.equal(log.isFull, false);
  await append(log, 'c');
  assert.equal(log.isFull, false);
});

for (const call of ['write', 'fdatasync'] as const) {
  test(`when ${call} fails, all waiting records fail, and the next one goes into another segment`, async (t) => {
    const { files, open } = await fixtureOf(t);
    const log = await open();
    await append(log, 'before');
    files.order({ call, code: 'EIO', nth: 1 });
    const results = await Promise.allSettled([append(log, 'a'), append(log, 'b')]);
    const numbers = results.map((result) => {
      assert.ok(result.status === 'rejected' && result.reason instanceof AppendFailed);
      return result.reason.number;
    });
    assert.deepEqual(numbers, [2, 3]);
    assert.equal(await append(log, 'after'), 4);
    const texts = await textsIn(await open());
    assert.deepEqual([texts[0], texts.at(-1)], ['before', 'after']);
  });
}

test('a disk that refuses all writes costs no more segments, however many attempts', async (t) => {
  const { folder, files, open } = await fixtureOf(t);
  const log = await open();
  await append(log, 'before');
  files.order({ call: 'fdatasync', code: 'EIO' });
  for (let n = 0; n < 40; n += 1) await assert.rejects(append(log, `${n}`), AppendFailed);
  assert.ok((await segmentsIn(folder)).length <= 3);
  files.order();
  await append(log, 'after');
  const texts = await textsIn(await open());
  assert.deepEqual([texts[0], texts.at(-1)], ['before', 'after']);
});

test('a segment that cannot be opened for lack of descriptors is used later, and none is created instead', async (t) => {
  const { folder, files, open } = await fixtureOf(t);
  const log = await open();
  await log.prepare();
  for (let n = 0; n < 5; n += 1) {
    files.order({ call: 'open', code: 'EMFILE', path: '.segment' });
    await assert.rejects(append(log, 'refused'), LogFull);
    files.order();
    await log.prepare();
  }
  assert.equal((await readdir(folder)).length, 1);
  await append(log, 'taken');
  assert.deepEqual(await textsIn(await open()), ['taken']);
});

test('records acknowledged after a fault survive a power cut, although the kernel takes lost pages for clean', async (t) => {
  for (let nth = 1; nth <= 8; nth += 1) {
    const { folder } = await fixtureOf(t);
    const files = new ForgetfulFiles();
    const log = await CommitLog.open(folder, { files, log: rememberingLog().log, segmentBytes });
    files.order({ call: 'fdatasync', code: 'EIO', nth }, { call: 'fdatasync', code: 'EIO', nth: nth + 2 });
    const kept: string[] = [];
    for (let n = 0; n < 12; n += 1) {
      const text = `${n} ${'x'.repeat(5000)}`;
      await append(log, text).then(
        () => kept.push(text),
        () => undefined,
      );
    }
    assert.equal(kept.length, 10);
    await files.cutPower();
    const texts = new Set(await textsIn(await CommitLog.open(folder, { files: nodeFiles, log: rememberingLog().log })));
    assert.deepEqual(
      kept.filter((text) => !texts.has(text)),
      [],
      `fault ${nth}`,
    );
  }
});

test('no call to the disk that fails loses what was acknowledged or leaves a descriptor open', async (t) => {
  for (const call of ['open', 'write', 'fdatasync', 'fsync', 'close', 'rename', 'lstat', 'readdir', 'mkdir'] as const) {
    for (let nth = 1; nth <= 8; nth += 1) {
      const { files, open } = await fixtureOf(t);
      files.order({ call, code: 'EIO', nth });
      const log = await open().catch(() => undefined);
      const kept: string[] = [];
      const attempts = log === undefined ? [] : Array.from({ length: 20 }, (_, n) => `${n} ${'x'.repeat(9000)}`);
      for (const text of attempts) {
        await log?.append(7, [Buffer.from(text)]).then(
          () => kept.push(text),
          () => undefined,
        );
      }
      files.order();
      const texts = new Set(await textsIn(await open()));
      assert.deepEqual(
        kept.filter((text) => !texts.has(text)),
        [],
        `${call} ${nth}`,
      );
      assert.ok(log === undefined || kept.length >= 10, `${call} ${nth}: only ${kept.length} were taken`);
      await log?.close().catch(() => undefined);
      assert.equal(files.opened.size, 0, `${call} ${nth}`);
    }
  }
});

test('unreadable files are set aside, whatever they are, and the log continues', async (t) => {
  const { folder, open } = await fixtureOf(t);
  const log = await open();
  await append(log, 'kept');
  await writeFile(join(folder, 'notes.txt'), 'somebody else');
  await writeFile(join(folder, `${uniqueId()}.segment`), 'no segment at all, and long enough to hold a header');
  await writeFile(join(folder, `${uniqueId()}.segment`), '');
  await mkdir(join(folder, `${uniqueId()}.segment`));
  await symlink('/etc/hostname', join(folder, `${uniqueId()}.segment`));
  const next = await open();
  assert.equal(await next.countAside(), 5);
  assert.deepEqual(await textsIn(next), ['kept']);
  assert.equal((await readdir(join(folder, 'aside'))).length, 5);
});

test('a truncated segment keeps its complete records', async (t) => {
  const { folder, open } = await fixtureOf(t);
  const log = await open();
  await append(log, 'kept');
  await append(log, 'cut');
  const [name = ''] = await segmentsIn(folder);
  await truncate(join(folder, name), 32 + 32 + 'kept'.length + 10);
  assert.deepEqual(await textsIn(await open()), ['kept']);
});

test('a damaged segment is read around the damage and set aside when released, with a note', async (t) => {
  const { folder, open } = await fixtureOf(t);
  const log = await open();
  for (const text of ['one', 'two', 'three']) await append(log, text);
  const [name = ''] = await segmentsIn(folder);
  const bytes = await readFile(join(folder, name));
  bytes.fill(0, bytes.indexOf('two'), bytes.indexOf('two') + 3);
  await writeFile(join(folder, name), bytes);
  const next = await open();
  assert.deepEqual(
    next.damage.map(({ records }) => records),
    [1],
  );
  assert.deepEqual(await textsIn(next), ['one', 'three']);
  assert.equal(await next.countAside(), 1);
  await next.release(next.last);
  assert.equal(await next.countAside(), 2);
  // It may be creating another segment.
  await next.close();
  const later = await open();
  assert.deepEqual([later.damage, await later.countAside()], [[], 2], 'the note tells of it until somebody removes it');
});

const segmentsIn = async (folder: string): Promise<readonly string[]> =>
  (await readdir(folder)).filter((name) => name.endsWith('.segment')).sort();

/** Records, five in each segment, and the names of the segments in the order of their numbers. */
async function filled(t: Parameters<typeof temporaryFolder>[0]) {
  const fixture = await fixtureOf(t);
  const log = await fixture.open();
  for (let n = 1; n <= 18; n += 1) await append(log, `${n} ${'x'.repeat(9_000)}`);
  await untilTrue('the list of segments', async () => (await listed(fixture.folder)).length === 4);
  const names = (await listed(fixture.folder)).map(({ name }) => name);
  const firsts = (await listed(fixture.folder)).map(({ first }) => first);
  return { ...fixture, names, firsts };
}

async function listed(folder: string): Promise<readonly { readonly name: string; readonly first: number }[]> {
  const list = await readFile(join(folder, 'segments.json'), 'utf8').catch(() => '{"segments":[]}');
  return (JSON.parse(list) as { segments: { name: string; first: number }[] }).segments;
}

const numbersIn = async (log: CommitLog) => (await textsIn(log)).map((text) => Number(text.split(' ')[0]));
const upTo = (last: number) => Array.from({ length: last }, (_, n) => n + 1);
const zeros = (bytes: Buffer, from: number, to: number): Buffer => bytes.fill(0, from, to);

for (const [title, which, harm, lost] of [
  ['that is gone', 1, undefined, [6, 7, 8, 9, 10]],
  ['at the beginning that is gone', 0, undefined, [1, 2, 3, 4, 5]],
  ['that is newest and gone', 3, undefined, [16, 17, 18]],
  ['that is empty', 1, (bytes: Buffer) => bytes.subarray(0, 0), [6, 7, 8, 9, 10]],
  ['that was cut in half', 1, (bytes: Buffer) => bytes.subarray(0, bytes.length / 2), [9, 10]],
  ['whose first 4 KiB are zero', 1, (bytes: Buffer) => zeros(bytes, 0, 4096), [6]],
  ['that is newest and whose first 4 KiB are zero', 3, (bytes: Buffer) => zeros(bytes, 0, 4096), [16]],
  ['whose header is zero', 2, (bytes: Buffer) => zeros(bytes, 0, 32), []],
  ['whose header has another byte', 2, (bytes: Buffer) => bytes.fill(88, 9, 10), []],
  ['that is newest, with a byte changed before its end', 3, (bytes: Buffer) => bytes.fill(88, 9500, 9501), [17]],
] as const) {
  test(`a segment ${title} is damage with a time: everything else is read, and an operator clears it`, async (t) => {
    const { folder, open, names } = await filled(t);
    const path = join(folder, names[which] ?? '');
    if (harm === undefined) await rm(path);
    else await writeFile(path, harm(await readFile(path)));
    const next = await open();
    assert.deepEqual(
      await numbersIn(next),
      upTo(18).filter((n) => !(lost as readonly number[]).includes(n)),
    );
    assert.equal(next.damage.length, 1);
    const [{ sentence, records } = { sentence: '', records: 0 }] = next.damage;
    assert.ok(records === undefined || records === lost.length, sentence);
    if (lost.length > 0) assert.match(sentence, /between \d{4}-.*Z and \d{4}-.*Z/);
    const aside = await next.countAside();
    assert.ok(aside > 0);
    await next.release(next.last);
    await append(next, 'later');
    await next.close();
    const later = await open();
    assert.deepEqual(later.damage, []);
    assert.ok((await later.countAside()) >= aside);
    await rm(join(folder, 'aside'), { recursive: true });
    assert.equal(await (await open()).countAside(), 0);
  });
}

test('a failed write leaves a gap that is not damage', async (t) => {
  const { files, open } = await fixtureOf(t);
  const log = await open();
  await append(log, 'one');
  files.order({ call: 'fdatasync', code: 'EIO' });
  await assert.rejects(append(log, 'two'), AppendFailed);
  files.order();
  await append(log, 'three');
  assert.deepEqual((await open()).damage, []);
});

test('a released segment may be missing', async (t) => {
  const { folder, open, names } = await filled(t);
  const log = await open();
  await log.release(12);
  await rm(join(folder, names[0] ?? ''));
  const next = await open();
  assert.deepEqual(next.damage, []);
  await next.release(next.last);
  await next.close();
  for (const name of await segmentsIn(folder)) await rm(join(folder, name));
  assert.deepEqual((await open()).damage, []);
});

test('a log of an older version, without a list of its segments, is read', async (t) => {
  const { folder, open, names } = await filled(t);
  await rm(join(folder, 'segments.json'));
  const next = await open();
  assert.deepEqual([await numbersIn(next), next.damage], [upTo(18), []]);
  await rm(join(folder, 'segments.json'), { force: true });
  await rm(join(folder, names[1] ?? ''));
  const [{ sentence } = { sentence: '' }] = (await open()).damage;
  assert.match(sentence, /number 6 to 10, written before/);
});

test('a segment that was being created when the process died is removed', async (t) => {
  const { folder, open } = await fixtureOf(t);
  await open();
  await writeFile(join(folder, `${uniqueId()}.segment.tmp`), Buffer.alloc(100));
  await open();
  assert.deepEqual(await readdir(folder), []);
});

test('an entry with the name of such a segment that is not a file is set aside', async (t) => {
  const { folder, open } = await fixtureOf(t);
  await open();
  await mkdir(join(folder, `${uniqueId()}.segment.tmp`));
  await symlink('/etc/hostname', join(folder, `${uniqueId()}.segment.tmp`));
  assert.equal(await (await open()).countAside(), 2);
  assert.deepEqual(await readdir(folder), ['aside']);
});

test('processes that crash one after the other need no more segments each time', async (t) => {
  const { folder, open } = await fixtureOf(t);
  for (let life = 0; life < 12; life += 1) {
    const log = await open({ maxSegments: 4 });
    await log.prepare();
    const number = await append(log, `life ${life}`);
    await log.release(number);
  }
  assert.ok((await segmentsIn(folder)).length <= 4, String((await readdir(folder)).length));
  assert.deepEqual(await textsIn(await open()), []);
});
