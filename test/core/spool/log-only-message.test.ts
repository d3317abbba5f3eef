import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { openSpool, type FileSpool, type SpoolOptions } from '../../../core/spool/file-spool.js';
import { LogOnlyMessage } from '../../../core/spool/message-log.js';
import type { FindLinked } from '../../../core/spool/restoration.js';
import type { LoggedMessage } from '../../../core/spool/spool.js';
import { FaultyFiles } from './faulty-files.js';
import { rememberingLog } from './remembering-log.js';
import { contentOf, largeMessage, openGround, received, whole, type SpoolGround } from './spool-fixture.js';

const never = 1e9;
const log = {
  durability: 'log',
  checkpointMs: never,
  checkpointBytes: never,
  segmentBytes: 1024 * 1024,
  maxSegments: 2,
} as const;

/** Kept without a file, and how often it came to its place. */
async function kept(ground: SpoolGround, name: string) {
  const message = await received(ground.spool);
  const counted = { stored: 0 };
  const placement = { folder: ground.inbox, name };
  const found = await message.keepInLog?.(placement, () => (counted.stored += 1));
  return { message, counted, placement, kept: found };
}

async function surely(ground: SpoolGround, name: string): Promise<LoggedMessage> {
  const { message, kept: found } = await kept(ground, name);
  await message.release();
  assert.ok(found !== undefined);
  return found;
}

/** The next life of a spool whose process was killed: nothing of the old one was closed. */
async function nextLife(
  ground: SpoolGround,
  find?: FindLinked,
  options: Partial<SpoolOptions> = {},
): Promise<FileSpool> {
  const spool = await openSpool(join(ground.root, 'spool'), {
    ...log,
    reserveBytes: 0,
    files: new FaultyFiles(),
    log: rememberingLog().log,
    ...options,
  });
  await spool.recover(find);
  return spool;
}

const inbox = (ground: SpoolGround) => readdir(ground.inbox);

test('a message is durable without a file, by one fdatasync, and its bytes are at hand', async (t) => {
  const ground = await openGround(t, { ...log, maxSegments: 1 });
  await surely(ground, 'first');
  ground.files.calls.length = 0;
  const message = await surely(ground, 'a');
  assert.ok(message.content?.equals(whole));
  assert.deepEqual(
    [ground.files.count('fdatasync'), ground.files.count('open'), ground.files.count('lstat')],
    [1, 0, 0],
  );
  assert.deepEqual(await inbox(ground), []);
});

test('a crash brings the message to its place, whole', async (t) => {
  const ground = await openGround(t, log);
  await surely(ground, 'a');
  await nextLife(ground);
  assert.ok((await contentOf(ground, 'a')).equals(whole));
});

test('what nobody wants any more never becomes a file, also not after a crash', async (t) => {
  const ground = await openGround(t, log);
  const message = await surely(ground, 'a');
  assert.equal(message.drop(), true);
  assert.equal(message.content, undefined);
  await nextLife(ground, () => Promise.resolve(null));
  assert.deepEqual(await inbox(ground), []);
  await ground.spool.close();
  assert.deepEqual(await inbox(ground), []);
  assert.equal(ground.files.count('open', 'new/a'), 0);
});

test('what is still wanted when its record has to go comes to its place first', async (t) => {
  const ground = await openGround(t, { ...log, checkpointMs: 5 });
  const { message, counted, kept: found } = await kept(ground, 'a');
  await message.release();
  while (counted.stored === 0) await pause(2);
  assert.ok((await contentOf(ground, 'a')).equals(whole));
  assert.deepEqual([found?.content, found?.drop()], [undefined, false]);
  while (ground.files.count('fdatasync') < 2) await pause(2);
  await nextLife(ground);
  assert.deepEqual(await inbox(ground), ['a']);
});

test('a stop leaves nothing in the log alone', async (t) => {
  const ground = await openGround(t, log);
  await surely(ground, 'a');
  (await surely(ground, 'b')).drop();
  await ground.spool.close();
  assert.deepEqual(await inbox(ground), ['a']);
});

test('a checkpoint without files that are new flushes no file system', async (t) => {
  let flushed = 0;
  const flush = { flush: () => Promise.resolve((flushed += 1) > 0) };
  const ground = await openGround(t, { ...log, flush });
  const before = flushed;
  (await surely(ground, 'a')).drop();
  await ground.spool.close();
  assert.equal(flushed, before);
});

test('what is dropped while its file is written leaves no file', async (t) => {
  const ground = await openGround(t, log);
  const message = await surely(ground, 'a');
  const release = ground.files.hold('rename');
  const closing = ground.spool.close();
  while (ground.files.count('rename', 'new/a') === 0) await pause(2);
  assert.equal(message.drop(), true);
  release();
  await closing;
  assert.deepEqual(await inbox(ground), []);
  assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
});

test('what is dropped while its file is written counts no longer, also when that file cannot be removed', async (t) => {
  const ground = await openGround(t);
  const target = { folder: ground.inbox, name: 'a' };
  let settled = 0;
  const input = { target, content: whole, number: 1, onSettled: () => (settled += 1), onLinked: () => undefined };
  const message = new LogOnlyMessage(input);
  ground.files.order({ call: 'unlink', code: 'EIO' });
  const release = ground.files.hold('rename');
  const stored = message.link(ground.files, join(ground.root, 'spool', 'b'));
  while (ground.files.count('rename') === 0) await pause(2);
  assert.equal(message.drop(), true);
  release();
  await assert.rejects(stored, { code: 'EIO' });
  assert.equal(settled, 1);
});

test('what is taken back does not come again, whether its file was written or not', async (t) => {
  const ground = await openGround(t, { ...log, checkpointMs: 5 });
  const one = await kept(ground, 'a');
  assert.equal(await one.message.rollback([one.placement]), true);
  const other = await kept(ground, 'b');
  while (other.counted.stored === 0) await pause(2);
  assert.equal(await other.message.rollback([other.placement]), true);
  assert.deepEqual(await inbox(ground), []);
  await nextLife(ground);
  assert.deepEqual(await inbox(ground), []);
});

test('a record that cannot be written is no promise', async (t) => {
  const ground = await openGround(t, log);
  await surely(ground, 'first');
  ground.files.order({ call: 'fdatasync', code: 'EIO' });
  const message = await received(ground.spool);
  await assert.rejects(async () => message.keepInLog?.({ folder: ground.inbox, name: 'a' }, () => undefined));
  ground.files.order();
  await nextLife(ground, (placement) => Promise.resolve(placement.name === 'first' ? null : undefined));
  assert.deepEqual(await inbox(ground), []);
});

test('a disk that takes no file keeps the record, and the message comes when it does', async (t) => {
  const ground = await openGround(t, { ...log, checkpointMs: 5 });
  ground.files.order({ call: 'open', code: 'ENOSPC', path: `${join(ground.root, 'spool')}/` });
  const { message, counted, kept: found } = await kept(ground, 'a');
  await message.release();
  while (!ground.sentences.some((sentence) => sentence.includes('could not be made durable'))) await pause(2);
  assert.ok(found?.content?.equals(whole));
  const next = await received(ground.spool);
  assert.equal(await next.keepInLog?.({ folder: ground.inbox, name: 'b' }, () => undefined), undefined, 'to be placed');
  ground.files.order();
  while (counted.stored === 0) await pause(2);
  assert.deepEqual(await inbox(ground), ['a']);
});

test('large messages, and all where each is a file of its own, are to be placed', async (t) => {
  const ground = await openGround(t, log);
  const large = await received(ground.spool, largeMessage);
  assert.equal(await large.keepInLog?.({ folder: ground.inbox, name: 'a' }, () => undefined), undefined);
  const files = await openGround(t, { durability: 'file' });
  assert.equal((await kept(files, 'a')).kept, undefined);
  await rm(ground.inbox, { recursive: true });
});
