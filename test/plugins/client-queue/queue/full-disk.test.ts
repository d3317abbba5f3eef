import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isProblem } from '../../../../core/problem.js';
import { claiming, settlement } from '../../../support/queue-entries.js';
import { accept, claimOne, entryOf } from '../../../support/relay-queue/ground.js';
import { bodiesOf, fileQueueGround } from './queue-ground.js';

const isFull = (error: unknown): boolean => isProblem(error) && error.problem === 'storage-full';

for (const call of ['write', 'fdatasync'] as const) {
  test(`an entry that cannot be written (${call}) is nowhere, now and after a restart`, async (t) => {
    const ground = await fileQueueGround(t);
    ground.files.order({ call, code: 'ENOSPC', path: 'journal' });
    await assert.rejects(accept(ground), isFull);
    assert.equal(ground.queue.size, 0);
    assert.deepEqual(await bodiesOf(ground.folder), []);
    ground.files.order();
    await ground.reopen();
    assert.equal(ground.queue.size, 0);
    await accept(ground);
  });
}

test('an outcome that cannot be written is kept, and nothing is sent meanwhile, until the disk takes it', async (t) => {
  const ground = await fileQueueGround(t);
  const { queue, clock } = ground;
  const { uid } = await accept(ground);
  const other = await accept(ground);
  const told: string[] = [];
  queue.onOutcome(({ state }) => told.push(state));
  const lease = await claimOne(ground);
  ground.files.order({ call: 'write', code: 'ENOSPC', path: 'journal' });
  let settled = false;
  const settling = queue
    .settle(lease, settlement(lease, 'delivered', { at: clock.now() }))
    .then(() => (settled = true));
  await assert.rejects(accept(ground), isFull);
  assert.deepEqual(await queue.claim(claiming(clock.now())), []);
  await assert.rejects(queue.mutate({ uids: [other.uid] }, { operation: 'delete' }, clock.now()), isFull);
  assert.equal((await entryOf(queue, other.uid)).state, 'queued', 'nothing is half done');
  assert.match(queue.complaint?.() ?? '', /cannot be written/);
  assert.equal(settled, false);
  assert.deepEqual(told, [], 'nobody hears of what is not on the disk');
  ground.files.order();
  await settling;
  assert.deepEqual(told, ['delivered']);
  assert.equal(queue.complaint?.(), undefined);
  assert.equal((await queue.claim(claiming(clock.now()))).length, 1, 'the other one flows again');
  await ground.afterCrash();
  assert.equal((await entryOf(ground.queue, uid)).state, 'delivered');
});

test('an outcome that was never written is made up for at the next start', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  const lease = await claimOne(ground);
  ground.files.order({ call: 'write', code: 'ENOSPC' });
  const settling = ground.queue.settle(lease, settlement(lease, 'delivered', { at: ground.clock.now() }));
  const refused = assert.rejects(settling, (error) => isProblem(error) && error.problem === 'unavailable');
  await ground.queue.close();
  await refused;
  ground.files.order();
  await ground.afterCrash();
  assert.equal((await entryOf(ground.queue, uid)).state, 'deferred');
});

test('a lease that cannot be written is not given, and its mail is tried when the disk works again', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  ground.files.order({ call: 'fdatasync', code: 'EIO', path: 'journal' });
  assert.deepEqual(await ground.queue.claim(claiming(ground.clock.now())), []);
  assert.equal((await entryOf(ground.queue, uid)).state, 'queued');
  ground.files.order();
  await ground.reopen();
  const { state, attempts } = await entryOf(ground.queue, uid);
  assert.deepEqual([state, attempts], ['queued', 0]);
  await claimOne(ground);
});

test('a snapshot that cannot be written does no harm', async (t) => {
  const ground = await fileQueueGround(t, { journalBytes: 2000, segmentBytes: 64 * 1024, mostSegments: 32 });
  ground.files.order({ call: 'write', code: 'ENOSPC', path: 'snapshot-' });
  const uids: string[] = [];
  for (let n = 0; n < 10; n++) uids.push((await accept(ground)).uid);
  await ground.afterCrash();
  ground.files.order();
  for (const uid of uids) await entryOf(ground.queue, uid);
  for (let n = 0; n < 10; n++) uids.push((await accept(ground)).uid);
  await ground.reopen();
  for (const uid of uids) await entryOf(ground.queue, uid);
});

test('a journal that is full makes room by a snapshot', async (t) => {
  const ground = await fileQueueGround(t, { journalBytes: 10_000_000, segmentBytes: 64 * 1024, mostSegments: 2 });
  const { clock } = ground;
  const uids: string[] = [];
  for (let n = 0; n < 300; n++) {
    uids.push((await accept(ground)).uid);
  }
  const leases = await ground.queue.claim(claiming(clock.now(), { limit: 1000, room: () => 1000 }));
  await Promise.all(
    leases.map((lease) => ground.queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }))),
  );
  await ground.reopen();
  for (const uid of uids) await entryOf(ground.queue, uid);
  await accept(ground);
});
