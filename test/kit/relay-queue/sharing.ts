import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { claiming, settlement } from './entries.js';
import { accept, claimOne, entryOf, type OpenQueueHarness, type QueueHarness, type TestRegistrar } from './harness.js';

/** What several servers see of one queue; nothing where each has its own. */
export function sharing(test: TestRegistrar, open: OpenQueueHarness): void {
  const shared = (title: string, run: (harness: QueueHarness, other: Other) => Promise<void>): unknown =>
    test(title, async (t) => {
      const harness = await open(t);
      const other = await harness.another?.();
      if (other !== undefined) await run(harness, other);
    });

  shared('what one server accepts another one sends, once', async (harness, { queue: other }) => {
    const { queue, clock } = harness;
    const uids = new Set<string>();
    for (let n = 0; n < 40; n += 1) uids.add((await accept(harness, { to: [`a@d${n % 4}.example`] })).uid);
    const leased: string[] = [];
    const drain = async (from: typeof queue): Promise<void> => {
      for (let tries = 0; tries < 20; tries += 1) {
        for (const lease of await from.claim(claiming(clock.now(), { limit: 3 }))) {
          leased.push(lease.uid);
          assert.match(await text(await from.open(lease.uid)), /^Received: /);
          await from.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
        }
      }
    };
    await Promise.all([drain(queue), drain(other)]);
    assert.equal(leased.length, 40);
    assert.deepEqual(new Set(leased), uids);
  });

  shared('a change at one server is one at the other', async (harness, { queue: other }) => {
    const { clock } = harness;
    const { uid } = await accept(harness);
    await other.mutate({ uids: [uid] }, { operation: 'hold', reason: 'so' }, clock.now());
    assert.equal((await entryOf(harness.queue, uid)).hold, 'so');
    assert.deepEqual(await harness.queue.claim(claiming(clock.now())), []);
    const lease = await accept(harness).then(() => claimOne(harness));
    const { results } = await other.mutate({ uids: [lease.uid] }, { operation: 'bounce' }, clock.now());
    assert.equal(results[0]?.outcome, 'active');
    await harness.queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    assert.equal((await entryOf(other, lease.uid)).state, 'bounced');
  });

  shared(
    'leases of a server that died go to another one, and its own outcomes come too late',
    async (harness, died) => {
      const { queue, clock } = harness;
      const { uid } = await accept(harness);
      const lost = await claimOne({ queue: died.queue, clock });
      await died.die();
      assert.equal(await lost.holds?.(), false, 'its holder knows');
      await queue.housekeep(clock.now());
      clock.advance(60);
      const lease = await claimOne(harness);
      assert.equal(lease.uid, uid);
      await assert.rejects(died.queue.settle(lost, settlement(lost, 'delivered', { at: clock.now() })));
      assert.equal((await entryOf(queue, uid)).state, 'active');
    },
  );
}

type Other = Awaited<ReturnType<NonNullable<QueueHarness['another']>>>;
