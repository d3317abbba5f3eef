import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rename, rm, truncate, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { openSpool, type FileSpool, type SpoolOptions } from '../../../core/spool/file-spool.js';
import type { FileSystemFlush } from '../../../core/disk/folder.js';
import { contentOf, largeMessage, openGround, received, whole, type SpoolGround } from './spool-fixture.js';
import { until } from '../../support/until.js';
import { FaultyFiles } from './faulty-files.js';
import { rememberingLog } from './remembering-log.js';

const never = 1e9;
const segmentBytes = 1024 * 1024;
const log = { durability: 'log', checkpointMs: never, checkpointBytes: never, segmentBytes } as const;

/** The next life of a spool whose process was killed: nothing of the old one was closed. */
async function nextLife(ground: SpoolGround, options: Partial<SpoolOptions> = {}): Promise<FileSpool> {
  const spool = await openSpool(join(ground.root, 'spool'), {
    ...log,
    reserveBytes: 0,
    files: new FaultyFiles(),
    log: rememberingLog().log,
    ...options,
  });
  await spool.recover();
  return spool;
}

async function delivered(ground: SpoolGround, name: string, spool = ground.spool, body?: Buffer): Promise<void> {
  const message = await received(spool, body);
  await message.sync();
  await message.link([{ folder: ground.inbox, name }]);
  await message.release();
  await spool.settled();
}

const spoolIsEmpty = async (ground: SpoolGround) => assert.deepEqual(await readdir(join(ground.root, 'spool')), []);

test('a message that is placed by the log is there at once, with no fsync of its own', async (t) => {
  const ground = await openGround(t, { ...log, maxSegments: 1 });
  await delivered(ground, 'first');
  await until('the list of segments', () => {
    const { calls } = ground.files;
    const listed = calls.findIndex((call) => call.startsWith('rename ') && call.includes('segments.json'));
    return (listed >= 0 && calls.slice(listed).some((call) => call.startsWith('close '))) || undefined;
  });
  ground.files.calls.length = 0;
  await delivered(ground, 'a');
  assert.ok((await contentOf(ground, 'a')).equals(whole));
  assert.deepEqual([ground.files.count('fsync'), ground.files.count('fdatasync')], [0, 1]);
  await spoolIsEmpty(ground);
});

test('nothing is visible before the record is durable', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'first');
  const release = ground.files.hold('fdatasync');
  const placed = delivered(ground, 'a');
  while (ground.files.count('fdatasync') < 2) await new Promise(setImmediate);
  assert.deepEqual(await readdir(ground.inbox), ['first']);
  release();
  await placed;
  assert.equal((await readdir(ground.inbox)).length, 2);
});

test('messages whose files are lost, cut short or full of zeros after a power cut are written again', async (t) => {
  const ground = await openGround(t, log);
  for (const name of ['whole', 'lost', 'empty', 'short', 'zeros']) await delivered(ground, name);
  await unlink(join(ground.inbox, 'lost'));
  await truncate(join(ground.inbox, 'empty'), 0);
  await truncate(join(ground.inbox, 'short'), 10);
  await writeFile(join(ground.inbox, 'zeros'), Buffer.alloc(whole.length));
  await nextLife(ground);
  for (const name of ['whole', 'lost', 'empty', 'short', 'zeros']) {
    assert.ok((await contentOf(ground, name)).equals(whole), name);
  }
  await spoolIsEmpty(ground);
});

test('a replay is done once: what is removed behind it does not come back', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'a');
  await nextLife(ground);
  await unlink(join(ground.inbox, 'a'));
  await nextLife(ground);
  assert.deepEqual(await readdir(ground.inbox), []);
});

test('a message that was moved is found where it is, and left alone', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'a');
  const moved = join(ground.root, 'elsewhere');
  await rename(join(ground.inbox, 'a'), moved);
  const spool = await openSpool(join(ground.root, 'spool'), { ...log, log: rememberingLog().log });
  await spool.recover(() => Promise.resolve(moved));
  assert.deepEqual(await readdir(ground.inbox), []);
  assert.ok((await readFile(moved)).equals(whole));
});

test('messages of a mailbox that was removed do not bring it back', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'a');
  await rm(ground.inbox, { recursive: true });
  await nextLife(ground);
  await assert.rejects(readdir(ground.inbox), { code: 'ENOENT' });
});

test('a data folder that was moved after the crash is restored in its new place', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'a');
  await unlink(join(ground.inbox, 'a'));
  const root = join(ground.root, 'moved');
  await mkdir(root);
  for (const name of ['new', 'spool', 'spool-log']) await rename(join(ground.root, name), join(root, name));
  await nextLife({ ...ground, root });
  assert.ok((await readFile(join(root, 'new', 'a'))).equals(whole));
});

test('a message that was withdrawn does not come back', async (t) => {
  const ground = await openGround(t, log);
  const message = await received(ground.spool);
  const placements = [
    { folder: ground.inbox, name: 'a' },
    { folder: ground.inbox, name: 'b' },
  ];
  await message.link(placements);
  assert.equal(await message.rollback(placements), true);
  assert.deepEqual(await readdir(ground.inbox), []);
  await nextLife(ground);
  assert.deepEqual(await readdir(ground.inbox), []);
});

test('a kill between the two steps of a withdrawal leaves nothing after the replay', async (t) => {
  const ground = await openGround(t, log);
  const message = await received(ground.spool);
  const placement = { folder: ground.inbox, name: 'a' };
  await message.link([placement]);
  ground.files.order({ call: 'unlink', code: 'EIO', path: ground.inbox });
  assert.equal(await message.rollback([placement]), false);
  await nextLife(ground);
  assert.deepEqual(await readdir(ground.inbox), []);
});

test('a message is in all of its places or in none, now and after a crash', async (t) => {
  const ground = await openGround(t, log);
  await writeFile(join(ground.inbox, 'b'), 'mine');
  const message = await received(ground.spool);
  const placements = ['a', 'b', 'c'].map((name) => ({ folder: ground.inbox, name }));
  await assert.rejects(message.link(placements), { code: 'EEXIST' });
  assert.deepEqual(await readdir(ground.inbox), ['b']);
  await nextLife(ground);
  assert.deepEqual(await readdir(ground.inbox), ['b']);
  assert.equal((await contentOf(ground, 'b')).toString(), 'mine');
});

test('a large message is a durable file, log or not', async (t) => {
  const ground = await openGround(t, log);
  ground.files.calls.length = 0;
  const message = await received(ground.spool, largeMessage);
  await message.link([{ folder: ground.inbox, name: 'a' }]);
  assert.deepEqual([ground.files.count('fsync'), ground.files.count('fdatasync')], [2, 0]);
});

test('when the log is full a message becomes a durable file', async (t) => {
  const ground = await openGround(t, { ...log, segmentBytes: 256 * 1024, maxSegments: 1 });
  const body = Buffer.alloc(60_000, 'text\r\n');
  for (let n = 0; n < 10; n += 1) {
    const message = await received(ground.spool, body);
    await message.link([{ folder: ground.inbox, name: `m${n}` }]);
    await message.release();
  }
  assert.ok(ground.files.count('fsync', 'spool/') > 0);
  assert.equal((await readdir(ground.inbox)).length, 10);
});

/** Counts how often it was asked. */
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

test('records are released behind a flush of the file system, and no sooner than their files are there', async (t) => {
  const flush = flushOf(() => Promise.resolve(true));
  const ground = await openGround(t, { ...log, checkpointBytes: 1, flush });
  await delivered(ground, 'a');
  await ground.spool.close();
  assert.ok(flush.asked >= 1);
  await unlink(join(ground.inbox, 'a'));
  await nextLife(ground);
  assert.deepEqual(await readdir(ground.inbox), []);
});

test('where a file system cannot be flushed, each file is fsynced before its record is released', async (t) => {
  const ground = await openGround(t, { ...log, flush: flushOf(() => Promise.resolve(false)) });
  for (const name of ['a', 'b', 'c']) await delivered(ground, name);
  ground.files.calls.length = 0;
  await ground.spool.close();
  for (const name of ['a', 'b', 'c']) assert.equal(ground.files.count('fsync', `new/${name}`), 1);
  assert.ok(ground.files.calls.findLastIndex((call) => call.endsWith('/new')) > 0, 'and its folder');
});

test('when the flush reports a fault every message is written anew, never taken for written', async (t) => {
  let fails = true;
  const flush = flushOf(() => (fails ? Promise.reject(new Error('EIO')) : Promise.resolve(true)));
  const ground = await openGround(t, { ...log, flush });
  for (const name of ['a', 'b']) await delivered(ground, name);
  ground.files.calls.length = 0;
  await ground.spool.close();
  assert.equal(ground.files.count('rename', 'new/'), 2);
  assert.ok(ground.files.count('fsync', 'spool/') >= 2);
  for (const name of ['a', 'b']) assert.ok((await contentOf(ground, name)).equals(whole));
  fails = false;
  await nextLife(ground);
});

test('what cannot be restored stays in the log, is told in health, and is restored by the next start', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'a');
  await unlink(join(ground.inbox, 'a'));
  const files = new FaultyFiles();
  files.order({ call: 'rename', code: 'ENOSPC', path: 'new/a' });
  const hindered = await nextLife(ground, { files });
  assert.equal(hindered.report().status, 'degraded');
  await delivered(ground, 'b', hindered);
  await hindered.close();
  await nextLife(ground);
  assert.deepEqual((await readdir(ground.inbox)).sort(), ['a', 'b']);
});

test('F-R25: a log that a burst has made large is one segment again when nothing comes', async (t) => {
  const size = 256 * 1024;
  const ground = await openGround(t, { ...log, checkpointMs: 20, segmentBytes: size, idleMs: 200 });
  const segments = async (): Promise<number> =>
    (await readdir(`${ground.root}/spool-log`)).filter((name) => name.endsWith('.segment')).length;
  for (let n = 0; n < 30; n += 1) await delivered(ground, `m${n}`, ground.spool, largeMessage.subarray(0, 60_000));
  assert.ok((await segments()) > 2);
  await until('one segment', async () => (await segments()) === 1 || undefined);
  await delivered(ground, 'after');
  assert.ok((await readdir(ground.inbox)).includes('after'));
});

test('a log that nobody uses any more is still replayed', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'a');
  await unlink(join(ground.inbox, 'a'));
  const spool = await nextLife(ground, { durability: 'file' });
  assert.ok((await contentOf(ground, 'a')).equals(whole));
  await delivered(ground, 'b', spool);
  await spool.close();
  await unlink(join(ground.inbox, 'a'));
  await nextLife(ground, { durability: 'file' });
  assert.deepEqual(await readdir(ground.inbox), ['b']);
});

test('foreign files in the folder of the log are set aside and shown, and the start goes on', async (t) => {
  const ground = await openGround(t, log);
  await delivered(ground, 'a');
  await writeFile(join(ground.root, 'spool-log', 'notes.txt'), 'somebody else');
  const spool = await nextLife(ground);
  const { status, why } = spool.report();
  assert.equal(status, 'degraded');
  assert.match(why ?? '', /1 file .* set aside/);
  const [name = ''] = await readdir(join(ground.root, 'spool-log', 'aside'));
  assert.equal(await readFile(join(ground.root, 'spool-log', 'aside', name), 'utf8'), 'somebody else');
  await unlink(join(ground.root, 'spool-log', 'aside', name));
  while (spool.report().status !== 'up') await new Promise(setImmediate);
});

test('a log folder that is none does not stop the start', async (t) => {
  const ground = await openGround(t);
  await writeFile(join(ground.root, 'spool-log'), 'a file');
  const spool = await nextLife(ground);
  await delivered(ground, 'a', spool);
  assert.ok((await contentOf(ground, 'a')).equals(whole));
  const { status, why } = spool.report();
  assert.equal(status, 'degraded');
  assert.match(why ?? '', /commit log/);
});
