import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rename, rm, truncate, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FileSystemFlush } from '../../../core/disk/folder.js';
import type { FindLinked } from '../../../core/spool/restoration.js';
import {
  contentOf,
  inLog,
  largeMessage,
  nextLife,
  openFixture,
  received,
  segmentsListed,
  whole,
  type SpoolFixture,
} from './spool-fixture.js';
import { untilTrue } from '../../support/until.js';
import { FaultyFiles } from './faulty-files.js';

async function delivered(fixture: SpoolFixture, name: string, spool = fixture.spool, body?: Buffer): Promise<void> {
  const message = await received(spool, body);
  await message.prepare();
  await message.link([{ folder: fixture.inbox, name }]);
  await message.release();
  await spool.settled();
}

const spoolIsEmpty = async (fixture: SpoolFixture) => assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);

test('a logged message is visible at once, without a separate fsync', async (t) => {
  const fixture = await openFixture(t, { ...inLog, maxSegments: 1 });
  await delivered(fixture, 'first');
  await segmentsListed(fixture.files);
  fixture.files.calls.length = 0;
  await delivered(fixture, 'a');
  assert.ok((await contentOf(fixture, 'a')).equals(whole));
  assert.deepEqual([fixture.files.count('fsync'), fixture.files.count('fdatasync')], [0, 1]);
  await spoolIsEmpty(fixture);
});

test('nothing is visible before the record is durable', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'first');
  const release = fixture.files.hold('fdatasync');
  const placed = delivered(fixture, 'a');
  while (fixture.files.count('fdatasync') < 2) await new Promise(setImmediate);
  assert.deepEqual(await readdir(fixture.inbox), ['first']);
  release();
  await placed;
  assert.equal((await readdir(fixture.inbox)).length, 2);
});

test('messages whose files are lost, cut short or full of zeros after a power cut are written again', async (t) => {
  const fixture = await openFixture(t, inLog);
  for (const name of ['whole', 'lost', 'empty', 'short', 'zeros']) await delivered(fixture, name);
  await unlink(join(fixture.inbox, 'lost'));
  await truncate(join(fixture.inbox, 'empty'), 0);
  await truncate(join(fixture.inbox, 'short'), 10);
  await writeFile(join(fixture.inbox, 'zeros'), Buffer.alloc(whole.length));
  await nextLife(fixture);
  for (const name of ['whole', 'lost', 'empty', 'short', 'zeros']) {
    assert.ok((await contentOf(fixture, name)).equals(whole), name);
  }
  await spoolIsEmpty(fixture);
});

test('a replay runs once: a message removed after it is not restored', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  await nextLife(fixture);
  await unlink(join(fixture.inbox, 'a'));
  await nextLife(fixture);
  assert.deepEqual(await readdir(fixture.inbox), []);
});

test('a message that was moved is found and left alone', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  const moved = join(fixture.root, 'elsewhere');
  await rename(join(fixture.inbox, 'a'), moved);
  await nextLife(fixture, { finder: () => () => Promise.resolve(moved) });
  assert.deepEqual(await readdir(fixture.inbox), []);
  assert.ok((await readFile(moved)).equals(whole));
});

test('a replay does not restore a removed mailbox', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  await rm(fixture.inbox, { recursive: true });
  await nextLife(fixture);
  await assert.rejects(readdir(fixture.inbox), { code: 'ENOENT' });
});

test('a data folder that was moved after the crash is restored at its new path', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  await unlink(join(fixture.inbox, 'a'));
  const root = join(fixture.root, 'moved');
  await mkdir(root);
  for (const name of ['new', 'spool', 'spool-log']) await rename(join(fixture.root, name), join(root, name));
  await nextLife({ ...fixture, root });
  assert.ok((await readFile(join(root, 'new', 'a'))).equals(whole));
});

test('a message that was rolled back is not restored', async (t) => {
  const fixture = await openFixture(t, inLog);
  const message = await received(fixture.spool);
  const placements = [
    { folder: fixture.inbox, name: 'a' },
    { folder: fixture.inbox, name: 'b' },
  ];
  await message.link(placements);
  assert.equal(await message.rollback(placements), true);
  assert.deepEqual(await readdir(fixture.inbox), []);
  await nextLife(fixture);
  assert.deepEqual(await readdir(fixture.inbox), []);
});

test('a kill between the two steps of a rollback leaves nothing after the replay', async (t) => {
  const fixture = await openFixture(t, inLog);
  const message = await received(fixture.spool);
  const placement = { folder: fixture.inbox, name: 'a' };
  await message.link([placement]);
  fixture.files.order({ call: 'unlink', code: 'EIO', path: fixture.inbox });
  assert.equal(await message.rollback([placement]), false);
  await nextLife(fixture);
  assert.deepEqual(await readdir(fixture.inbox), []);
});

test('a message is at all of its targets or at none, now and after a crash', async (t) => {
  const fixture = await openFixture(t, inLog);
  await writeFile(join(fixture.inbox, 'b'), 'mine');
  const message = await received(fixture.spool);
  const placements = ['a', 'b', 'c'].map((name) => ({ folder: fixture.inbox, name }));
  await assert.rejects(message.link(placements), { code: 'EEXIST' });
  assert.deepEqual(await readdir(fixture.inbox), ['b']);
  await nextLife(fixture);
  assert.deepEqual(await readdir(fixture.inbox), ['b']);
  assert.equal((await contentOf(fixture, 'b')).toString(), 'mine');
});

test('a large message is a durable file, log or not', async (t) => {
  const fixture = await openFixture(t, inLog);
  fixture.files.calls.length = 0;
  const message = await received(fixture.spool, largeMessage);
  await message.link([{ folder: fixture.inbox, name: 'a' }]);
  assert.deepEqual([fixture.files.count('fsync'), fixture.files.count('fdatasync')], [2, 0]);
});

test('when the log is full a message becomes a durable file', async (t) => {
  const fixture = await openFixture(t, { ...inLog, segmentBytes: 256 * 1024, maxSegments: 1 });
  const body = Buffer.alloc(60_000, 'text\r\n');
  for (let n = 0; n < 10; n += 1) {
    const message = await received(fixture.spool, body);
    await message.link([{ folder: fixture.inbox, name: `m${n}` }]);
    await message.release();
  }
  assert.ok(fixture.files.count('fsync', 'spool/') > 0);
  assert.equal((await readdir(fixture.inbox)).length, 10);
});

/** Counts its calls. */
function flushOf(answer: () => Promise<boolean>): FileSystemFlush & { asked: number } {
  const flush = {
    asked: 0,
    flush: (): Promise<boolean> => {
      flush.asked += 1;
      return answer();
    },
  };
  return flush;
}

test('records are released after a flush of the file system that includes their files', async (t) => {
  const flush = flushOf(() => Promise.resolve(true));
  const fixture = await openFixture(t, { ...inLog, checkpointBytes: 1, flush });
  await delivered(fixture, 'a');
  await fixture.spool.close();
  assert.ok(flush.asked >= 1);
  await unlink(join(fixture.inbox, 'a'));
  await nextLife(fixture);
  assert.deepEqual(await readdir(fixture.inbox), []);
});

test('where a file system cannot be flushed, each file is fsynced before its record is released', async (t) => {
  const fixture = await openFixture(t, { ...inLog, flush: flushOf(() => Promise.resolve(false)) });
  for (const name of ['a', 'b', 'c']) await delivered(fixture, name);
  fixture.files.calls.length = 0;
  await fixture.spool.close();
  for (const name of ['a', 'b', 'c']) assert.equal(fixture.files.count('fsync', `new/${name}`), 1);
  assert.ok(fixture.files.calls.findLastIndex((call) => call.endsWith('/new')) > 0, 'and its folder');
});

test('when the flush reports a fault, every message is written again', async (t) => {
  let fails = true;
  const flush = flushOf(() => (fails ? Promise.reject(new Error('EIO')) : Promise.resolve(true)));
  const fixture = await openFixture(t, { ...inLog, flush });
  for (const name of ['a', 'b']) await delivered(fixture, name);
  fixture.files.calls.length = 0;
  await fixture.spool.close();
  assert.equal(fixture.files.count('rename', 'new/'), 2);
  assert.ok(fixture.files.count('fsync', 'spool/') >= 2);
  for (const name of ['a', 'b']) assert.ok((await contentOf(fixture, name)).equals(whole));
  fails = false;
  await nextLife(fixture);
});

test('after a fault of the flush, messages are written again until that succeeds', async (t) => {
  let flushes = 0;
  const files = new FaultyFiles();
  const flush = flushOf(() => {
    flushes += 1;
    if (flushes > 1) return Promise.resolve(true);
    files.calls.length = 0;
    files.order({ call: 'rename', code: 'EIO', path: 'new/a', nth: 1 });
    return Promise.reject(new Error('EIO'));
  });
  const fixture = await openFixture(t, { ...inLog, checkpointMs: 20, flush, files });
  await delivered(fixture, 'a');
  await untilTrue('another flush', () => flushes > 1);
  await fixture.spool.close();
  assert.equal(files.count('rename', 'new/a'), 2);
});

/** The first finder that is asked answers `first`, all others answer `then`. */
function findersOf(first: string | undefined, then: string | undefined): () => FindLinked {
  let asked = 0;
  return () => {
    let nth: number | undefined;
    return () => {
      nth ??= asked++;
      return Promise.resolve(nth === 0 ? first : then);
    };
  };
}

const flushes = {
  'cannot be flushed': () => Promise.resolve(false),
  'reports a fault': () => Promise.reject(new Error('EIO')),
};
for (const [what, answer] of Object.entries(flushes)) {
  for (const seen of ['nowhere', 'where it no longer is'] as const) {
    test(`a message that is moved while the log looks for it, and seen ${seen}, is made durable when the file system ${what}`, async (t) => {
      const fixture = await openFixture(t, { ...inLog, flush: flushOf(answer) });
      const moved = join(fixture.root, 'moved');
      await fixture.spool.recover(findersOf(seen === 'nowhere' ? undefined : join(fixture.inbox, 'a'), moved));
      await delivered(fixture, 'a');
      await rename(join(fixture.inbox, 'a'), moved);
      fixture.files.calls.length = 0;
      await fixture.spool.close();
      const counts = [fixture.files.count('fsync', moved), fixture.files.count('rename', moved)];
      assert.deepEqual(counts, what === 'cannot be flushed' ? [1, 0] : [0, 1]);
      assert.deepEqual(await readdir(fixture.inbox), []);
      assert.ok((await readFile(moved)).equals(whole));
    });
  }
}

test('a message that is found nowhere twice was removed: its record is released', async (t) => {
  const fixture = await openFixture(t, { ...inLog, flush: flushOf(flushes['cannot be flushed']) });
  await delivered(fixture, 'a');
  await unlink(join(fixture.inbox, 'a'));
  await fixture.spool.close();
  await nextLife(fixture);
  assert.deepEqual(await readdir(fixture.inbox), []);
});

test('a message that is moved while a start looks for it does not keep the log from use', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  const moved = join(fixture.root, 'moved');
  await rename(join(fixture.inbox, 'a'), moved);
  const spool = await nextLife(fixture, { finder: findersOf(join(fixture.inbox, 'a'), moved) });
  assert.equal(spool.report().status, 'up');
  assert.deepEqual(await readdir(fixture.inbox), []);
  await spool.close();
});

test('a record whose file a start could not make durable is not released', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  const files = new FaultyFiles();
  files.order({ call: 'fsync', code: 'EIO', path: 'new/a' });
  const hindered = await nextLife(fixture, { files, flush: flushOf(flushes['cannot be flushed']) });
  assert.equal(hindered.report().status, 'degraded');
  await hindered.close();
  await unlink(join(fixture.inbox, 'a'));
  await nextLife(fixture);
  assert.deepEqual(await readdir(fixture.inbox), ['a']);
});

test('a message that cannot be restored stays in the log, degrades health, and is restored by the next start', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  await unlink(join(fixture.inbox, 'a'));
  const files = new FaultyFiles();
  files.order({ call: 'rename', code: 'ENOSPC', path: 'new/a' });
  const hindered = await nextLife(fixture, { files });
  assert.equal(hindered.report().status, 'degraded');
  await delivered(fixture, 'b', hindered);
  await hindered.close();
  await nextLife(fixture);
  assert.deepEqual((await readdir(fixture.inbox)).sort(), ['a', 'b']);
});

test('F-R25: a log enlarged by a burst shrinks to one segment when idle', async (t) => {
  const size = 256 * 1024;
  const fixture = await openFixture(t, { ...inLog, checkpointMs: 20, segmentBytes: size, idleMs: 200 });
  const segments = async (): Promise<number> =>
    (await readdir(`${fixture.root}/spool-log`)).filter((name) => name.endsWith('.segment')).length;
  for (let n = 0; n < 30; n += 1) await delivered(fixture, `m${n}`, fixture.spool, largeMessage.subarray(0, 60_000));
  assert.ok((await segments()) > 2);
  await untilTrue('one segment', async () => (await segments()) === 1);
  await delivered(fixture, 'after');
  assert.ok((await readdir(fixture.inbox)).includes('after'));
});

test('a log is replayed although it is no longer configured', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  await unlink(join(fixture.inbox, 'a'));
  const spool = await nextLife(fixture, { durability: 'file' });
  assert.ok((await contentOf(fixture, 'a')).equals(whole));
  await delivered(fixture, 'b', spool);
  await spool.close();
  await unlink(join(fixture.inbox, 'a'));
  await nextLife(fixture, { durability: 'file' });
  assert.deepEqual(await readdir(fixture.inbox), ['b']);
});

test('unknown files in the folder of the log are set aside and reported, and the start continues', async (t) => {
  const fixture = await openFixture(t, inLog);
  await delivered(fixture, 'a');
  await writeFile(join(fixture.root, 'spool-log', 'notes.txt'), 'somebody else');
  const spool = await nextLife(fixture);
  const { status, why } = spool.report();
  assert.equal(status, 'degraded');
  assert.match(why ?? '', /set aside in spool-log.aside \(1 file,/);
  const [name = ''] = await readdir(join(fixture.root, 'spool-log', 'aside'));
  assert.equal(await readFile(join(fixture.root, 'spool-log', 'aside', name), 'utf8'), 'somebody else');
  await unlink(join(fixture.root, 'spool-log', 'aside', name));
  while (spool.report().status !== 'up') await new Promise(setImmediate);
});

test('a file in place of the log folder does not stop the start', async (t) => {
  const fixture = await openFixture(t);
  await writeFile(join(fixture.root, 'spool-log'), 'a file');
  const spool = await nextLife(fixture);
  await delivered(fixture, 'a', spool);
  assert.ok((await contentOf(fixture, 'a')).equals(whole));
  const { status, why } = spool.report();
  assert.equal(status, 'degraded');
  assert.match(why ?? '', /commit log/);
});
