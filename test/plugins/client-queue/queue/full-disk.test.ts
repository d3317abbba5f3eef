import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isProblem } from '../../../../core/problem.js';
import { claiming, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, claimOne, entryOf } from '../../../kit/relay-queue/harness.js';
import { bodiesOf, fileQueueFixture } from './queue-fixture.js';

const isFull = (error: unknown): boolean => isProblem(error) && error.problem === 'storage-full';

for (const call of ['write', 'fdatasync'] as const) {
  test(`an entry that cannot be written (${call}) is nowhere, now and after a restart`, async (t) => {
    const fixture = await fileQueueFixture(t);
    fixture.files.order({ call, code: 'ENOSPC', path: 'journal' });
    await assert.rejects(accept(fixture), isFull);
    assert.equal(fixture.queue.size, 0);
    assert.deepEqual(await bodiesOf(fixture.folder), []);
    fixture.files.order();
    await fixture.reopen();
    assert.equal(fixture.queue.size, 0);
    await accept(fixture);
  });
}

test('an outcome that cannot be written is kept, and nothing is sent meanwhile, until the disk takes it', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { queue, clock } = fixture;
  const { uid } = await accept(fixture);
  const other = await accept(fixture);
  const told: string[] = [];
  queue.onOutcome(({ state }) => told.push(state));
  const lease = await claimOne(fixture);
  fixture.files.order({ call: 'write', code: 'ENOSPC', path: 'journal' });
  let settled = false;
  const settling = queue
    .settle(lease, settlement(lease, 'delivered', { at: clock.now() }))
    .then(() => (settled = true));
  await assert.rejects(accept(fixture), isFull);
  assert.deepEqual(await queue.claim(claiming(clock.now())), []);
  await assert.rejects(queue.mutate({ uids: [other.uid] }, { operation: 'delete' }, clock.now()), isFull);
  assert.equal((await entryOf(queue, other.uid)).state, 'queued', 'nothing is half done');
  assert.match(queue.complaint?.() ?? '', /cannot be written/);
  assert.equal(settled, false);
  assert.deepEqual(told, [], 'nobody hears of what is not on the disk');
  fixture.files.order();
  await settling;
  assert.deepEqual(told, ['delivered']);
  assert.equal(queue.complaint?.(), undefined);
  assert.equal((await queue.claim(claiming(clock.now()))).length, 1, 'the other one flows again');
  await fixture.afterCrash();
  assert.equal((await entryOf(fixture.queue, uid)).state, 'delivered');
});

test('an outcome that was never written is made up for at the next start', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  const lease = await claimOne(fixture);
  fixture.files.order({ call: 'write', code: 'ENOSPC' });
  const settling = fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
  const refused = assert.rejects(settling, (error) => isProblem(error) && error.problem === 'unavailable');
  await fixture.queue.close();
  await refused;
  fixture.files.order();
  await fixture.afterCrash();
  assert.equal((await entryOf(fixture.queue, uid)).state, 'deferred');
});

test('a lease that cannot be written is not given, and its mail is tried when the disk works again', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  fixture.files.order({ call: 'fdatasync', code: 'EIO', path: 'journal' });
  assert.deepEqual(await fixture.queue.claim(claiming(fixture.clock.now())), []);
  assert.equal((await entryOf(fixture.queue, uid)).state, 'queued');
  fixture.files.order();
  await fixture.reopen();
  const { state, attempts } = await entryOf(fixture.queue, uid);
  assert.deepEqual([state, attempts], ['queued', 0]);
  await claimOne(fixture);
});

test('an entry whose removal the disk refuses keeps its message', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  fixture.files.order({ call: 'write', code: 'ENOSPC', path: 'journal' });
  await assert.rejects(fixture.queue.drop(await fixture.queue.wholes([uid])), isFull);
  await fixture.afterCrash();
  fixture.files.order();
  assert.equal((await entryOf(fixture.queue, uid)).state, 'queued');
  assert.equal((await bodiesOf(fixture.folder)).length, 1);
});

test('a snapshot that cannot be written does no harm', async (t) => {
  const fixture = await fileQueueFixture(t, { journalBytes: 2000, segmentBytes: 64 * 1024, maxSegments: 32 });
  fixture.files.order({ call: 'write', code: 'ENOSPC', path: 'snapshot-' });
  const uids: string[] = [];
  for (let n = 0; n < 10; n++) uids.push((await accept(fixture)).uid);
  await fixture.afterCrash();
  fixture.files.order();
  for (const uid of uids) await entryOf(fixture.queue, uid);
  for (let n = 0; n < 10; n++) uids.push((await accept(fixture)).uid);
  await fixture.reopen();
  for (const uid of uids) await entryOf(fixture.queue, uid);
});

test('a journal that is full makes room by a snapshot', async (t) => {
  const fixture = await fileQueueFixture(t, { journalBytes: 10_000_000, segmentBytes: 64 * 1024, maxSegments: 2 });
  const { clock } = fixture;
  const uids: string[] = [];
  for (let n = 0; n < 300; n++) {
    uids.push((await accept(fixture)).uid);
  }
  const leases = await fixture.queue.claim(claiming(clock.now(), { limit: 1000, room: () => 1000 }));
  await Promise.all(
    leases.map((lease) => fixture.queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }))),
  );
  await fixture.reopen();
  for (const uid of uids) await entryOf(fixture.queue, uid);
  await accept(fixture);
});

test('a folder of messages that cannot be read holds up no other work, and is looked through when it can be', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { queue, clock, files, folder } = fixture;
  const { uid } = await accept(fixture);
  await claimOne(fixture);
  await writeFile(join(folder, '3', 'unknown.eml'), 'x');
  files.order({ call: 'readdir', code: 'EIO', path: 'queue/3' });
  clock.advance(86_400);
  await queue.housekeep(clock.now());
  assert.equal((await entryOf(queue, uid)).state, 'deferred', 'its lease is over');
  assert.equal((await queue.statistics(0)).quarantined, 0);
  files.order();
  await queue.housekeep(clock.now());
  assert.equal((await queue.statistics(0)).quarantined, 1);
});
