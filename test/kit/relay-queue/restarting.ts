import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { claiming, newEntry, settlement } from './entries.js';
import {
  accept,
  claimOne,
  entryOf,
  isThe,
  messageOf,
  nextDueOf,
  sizeOf,
  type OpenQueueHarness,
  type TestRegistrar,
} from './harness.js';

/** What a restart leaves. */
export function restarting(test: TestRegistrar, open: OpenQueueHarness): void {
  test('everything is as before when the queue is opened again', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const uids: string[] = [];
    for (let n = 0; n < 6; n++) uids.push((await accept(harness, { to: ['ä@one.example', 'b@two.example'] })).uid);
    const [retried = '', deleted = '', bounced = '', held = '', partly = ''] = uids;
    const at = clock.now();
    for (const lease of await queue.claim(claiming(at, { limit: 12 }))) {
      await queue.settle(lease, settlement(lease, lease.uid === partly ? 'delivered' : 'deferred', { at }));
    }
    await queue.mutate({ uids: [retried] }, { operation: 'retry', at: at + 5000 }, at);
    await queue.mutate({ uids: [deleted] }, { operation: 'delete' }, at);
    await queue.mutate({ uids: [bounced] }, { operation: 'bounce', reason: 'so' }, at);
    await queue.mutate({ uids: [held] }, { operation: 'hold', reason: 'so' }, at);
    const before = await Promise.all(uids.map((uid) => queue.find(uid)));
    const again = await harness.reopen();
    assert.deepEqual(await Promise.all(uids.map((uid) => again.find(uid))), before);
    assert.equal(await sizeOf(harness), 3);
    assert.equal((await again.notices(9)).length, 1);
    assert.equal(await nextDueOf(harness), at + 5000);
    await text(await again.open(retried));
  });

  test('a crash takes what was prepared, and leaves what was committed', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const [prepared, committed] = [newEntry(clock.now()), newEntry(clock.now())];
    await queue.prepare(prepared, await messageOf(harness));
    await (await queue.prepare(committed, await messageOf(harness))).commit();
    const again = await harness.afterCrash();
    assert.equal(await again.find(prepared.uid), undefined);
    assert.equal((await entryOf(again, committed.uid)).state, 'queued');
    assert.equal((await claimOne(harness)).uid, committed.uid, 'it is released');
    assert.ok((await text(await again.open(committed.uid))).endsWith('A line.\r\n'));
  });

  test('a lease of a process that died counts as an attempt that may have delivered', async (t) => {
    const harness = await open(t);
    const { uid } = await accept(harness);
    const lost = await claimOne(harness);
    const again = await harness.afterCrash();
    await again.housekeep(harness.clock.now());
    const { state, attempts, history } = await entryOf(again, uid);
    assert.deepEqual([state, attempts], ['deferred', 1]);
    assert.deepEqual([history.at(-1)?.outcome, history.at(-1)?.possibleDuplicate], ['lost', true]);
    harness.clock.advance(60);
    const lease = await claimOne(harness);
    assert.notEqual(lease.interrupted, false);
    const at = harness.clock.now();
    await assert.rejects(again.settle(lost, settlement(lost, 'delivered', { at })), isThe('conflict'));
    await again.settle(lease, settlement(lease, 'delivered', { at }));
    assert.equal((await entryOf(again, uid)).state, 'delivered');
  });

  test('an entry that was in flight in three processes that died is held', async (t) => {
    const harness = await open(t);
    const { uid } = await accept(harness);
    for (let crashes = 0; crashes < 3; crashes += 1) {
      assert.equal((await claimOne(harness)).uid, uid);
      await (await harness.afterCrash()).housekeep(harness.clock.now());
      harness.clock.advance(60);
    }
    assert.equal((await entryOf(harness.queue, uid)).state, 'held');
    assert.equal(harness.queue.figures().damaged, 1);
  });
}
