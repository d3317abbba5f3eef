import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { openSpool } from '../../../../core/spool/file-spool.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, claimOne, entryOf } from '../../../kit/relay-queue/harness.js';
import { bodiesOf, fileQueueFixture, type FileQueueFixture } from './queue-fixture.js';

const inLog = { durability: 'log', checkpointMs: 1e9, checkpointBytes: 1e9 } as const;
const grounded = (t: TestContext): Promise<FileQueueFixture> => fileQueueFixture(t, {}, inLog);

/** The process has died; the log of its spool is replayed. */
async function crashed(fixture: FileQueueFixture): Promise<void> {
  const queue = await fixture.afterCrash();
  const { log } = rememberingLog();
  const spool = await openSpool(join(dirname(fixture.folder), 'spool'), { ...inLog, log, reserveBytes: 0 });
  await spool.recover(() => (placement) => queue.locate(placement));
}

async function deliver(fixture: FileQueueFixture): Promise<void> {
  const lease = await claimOne(fixture);
  await fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
}

test('a message that is delivered soon is never a file', async (t) => {
  const fixture = await grounded(t);
  const { uid } = await accept(fixture);
  assert.match(await text(await fixture.queue.open(uid)), /^Received: from a by b;[^]*A line\.\r\n$/);
  assert.match(String(await fixture.queue.bytes?.(uid)), /^Received: from a/);
  await fixture.queue.housekeep(fixture.clock.now());
  assert.equal((await entryOf(fixture.queue, uid)).hold, null, 'nobody misses its file');
  await deliver(fixture);
  await fixture.spool.close();
  assert.deepEqual(await bodiesOf(fixture.folder), []);
  assert.equal(fixture.files.count('unlink'), 0);
});

test('a crash leaves what is still to be delivered, and nothing of the rest', async (t) => {
  const fixture = await grounded(t);
  await accept(fixture);
  await deliver(fixture);
  const { uid } = await accept(fixture);
  await crashed(fixture);
  assert.deepEqual(await bodiesOf(fixture.folder), [uid]);
  await fixture.queue.housekeep(fixture.clock.now());
  assert.match(await text(await fixture.queue.open(uid)), /A line/);
  await deliver(fixture);
  await fixture.queue.close();
  assert.deepEqual(await bodiesOf(fixture.folder), []);
});

test('a message that waits becomes a file when the log lets go of it, and is removed when it is delivered', async (t) => {
  const fixture = await grounded(t);
  const { uid } = await accept(fixture);
  const inMemory = await fixture.queue.bytes?.(uid);
  await fixture.spool.close();
  assert.deepEqual(await bodiesOf(fixture.folder), [uid]);
  assert.match(await text(await fixture.queue.open(uid)), /A line/);
  assert.deepEqual(await fixture.queue.bytes?.(uid), inMemory);
  await deliver(fixture);
  await fixture.queue.close();
  assert.deepEqual(await bodiesOf(fixture.folder), []);
});

test('what was revoked leaves nothing, and its uid may come again', async (t) => {
  const fixture = await grounded(t);
  const { uid, ...entry } = newEntry(fixture.clock.now());
  const prepared = await fixture.queue.prepare({ uid, ...entry }, await fixture.message());
  await prepared.abort();
  await crashed(fixture);
  assert.deepEqual(await bodiesOf(fixture.folder), []);
  assert.equal(await fixture.queue.find(uid), undefined);
});
