import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { openSpool } from '../../../../core/spool/file-spool.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { newEntry, settlement } from '../../../support/queue-entries.js';
import { accept, claimOne, entryOf } from '../../../support/relay-queue/ground.js';
import { bodiesOf, fileQueueGround, type FileQueueGround } from './queue-ground.js';

const inLog = { durability: 'log', checkpointMs: 1e9, checkpointBytes: 1e9 } as const;
const grounded = (t: TestContext): Promise<FileQueueGround> => fileQueueGround(t, {}, inLog);

/** The process has died; the log of its spool is replayed. */
async function crashed(ground: FileQueueGround): Promise<void> {
  const queue = await ground.afterCrash();
  const { log } = rememberingLog();
  const spool = await openSpool(join(dirname(ground.folder), 'spool'), { ...inLog, log, reserveBytes: 0 });
  await spool.recover((placement) => queue.locate(placement));
}

async function deliver(ground: FileQueueGround): Promise<void> {
  const lease = await claimOne(ground);
  await ground.queue.settle(lease, settlement(lease, 'delivered', { at: ground.clock.now() }));
}

test('a message that is delivered soon is never a file', async (t) => {
  const ground = await grounded(t);
  const { uid } = await accept(ground);
  assert.match(await text(await ground.queue.open(uid)), /^Received: from a by b;[^]*A line\.\r\n$/);
  assert.match(String(await ground.queue.bytes?.(uid)), /^Received: from a/);
  await ground.queue.housekeep(ground.clock.now());
  assert.equal((await entryOf(ground.queue, uid)).hold, null, 'nobody misses its file');
  await deliver(ground);
  await ground.spool.close();
  assert.deepEqual(await bodiesOf(ground.folder), []);
  assert.equal(ground.files.count('unlink'), 0);
});

test('a crash leaves what is still to be delivered, and nothing of the rest', async (t) => {
  const ground = await grounded(t);
  await accept(ground);
  await deliver(ground);
  const { uid } = await accept(ground);
  await crashed(ground);
  assert.deepEqual(await bodiesOf(ground.folder), [uid]);
  await ground.queue.housekeep(ground.clock.now());
  assert.match(await text(await ground.queue.open(uid)), /A line/);
  await deliver(ground);
  await ground.queue.close();
  assert.deepEqual(await bodiesOf(ground.folder), []);
});

test('a message that waits becomes a file when the log lets go of it, and is removed when it is delivered', async (t) => {
  const ground = await grounded(t);
  const { uid } = await accept(ground);
  await ground.spool.close();
  assert.deepEqual(await bodiesOf(ground.folder), [uid]);
  assert.match(await text(await ground.queue.open(uid)), /A line/);
  await deliver(ground);
  await ground.queue.close();
  assert.deepEqual(await bodiesOf(ground.folder), []);
});

test('what was taken back leaves nothing, and its uid may come again', async (t) => {
  const ground = await grounded(t);
  const { uid, ...entry } = newEntry(ground.clock.now());
  const prepared = await ground.queue.prepare({ uid, ...entry }, await ground.message());
  await prepared.abort();
  await crashed(ground);
  assert.deepEqual(await bodiesOf(ground.folder), []);
  assert.equal(await ground.queue.find(uid), undefined);
});
