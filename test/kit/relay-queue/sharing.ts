import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { ifPermitted } from '../../../core/concurrency.js';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import { claiming, settlement } from './entries.js';
import {
  accept,
  claimOne,
  entryOf,
  isThe,
  type OpenQueueHarness,
  type QueueHarness,
  type TestRegistrar,
} from './harness.js';

/** What several servers see of one queue; skipped where each has its own. */
export function sharing(test: TestRegistrar, open: OpenQueueHarness): void {
  const shared = (title: string, run: (harness: QueueHarness, other: Other) => Promise<void>): unknown =>
    test(title, async (t) => {
      const harness = await open(t);
      const other = await harness.another?.();
      if (other === undefined) t.skip?.('one server at a time has this queue');
      else await run(harness, other);
    });

  shared('what one server accepts another one sends, once', async (harness, { queue: other }) => {
    const { queue, clock } = harness;
    const uids = new Set<string>();
    for (let n = 0; n < 40; n += 1) uids.add((await accept(harness, { to: [`a@d${n % 4}.example`] })).uid);
    const leased: string[] = [];
    const drain = async (from: typeof queue, claims: number): Promise<void> => {
      for (let tries = 0; tries < claims; tries += 1) {
        for (const lease of await from.claim(claiming(clock.now(), { limit: 3 }))) {
          leased.push(lease.uid);
          assert.match(await text(await from.open(lease.uid)), /^Received: /);
          await from.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
        }
      }
    };
    await harness.current?.();
    await drain(other, 2);
    assert.ok(leased.length > 0, 'the other one sends some');
    await Promise.all([drain(queue, 20), drain(other, 20)]);
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

  shared('an outcome at one server leaves what another one has leased of the same entry', async (harness, other) => {
    const { queue, clock } = harness;
    for (let n = 0; n < 3; n += 1) await accept(harness, { to: ['a@one.example', 'b@two.example'] });
    await harness.current?.();
    const only = (name: string) => ({ room: (destination: string) => (destination === name ? 100 : 0) });
    const leases = await queue.claim(claiming(clock.now(), only('one.example')));
    const others = await other.queue.claim(claiming(clock.now(), only('two.example')));
    assert.deepEqual([leases.length, others.length], [3, 3]);
    for (const lease of leases) await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    await harness.current?.();
    assert.deepEqual(await queue.claim(claiming(clock.now())), [], 'the others are under way');
    for (const lease of others) await other.queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    for (const { uid } of leases) assert.equal((await entryOf(queue, uid)).state, 'delivered');
  });

  shared('a server that is taken for dead sends nothing more, and its leases go to others', async (harness, other) => {
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    await harness.current?.();
    const lost = await claimOne({ queue: other.queue, clock });
    assert.equal(await ifPermitted(holding(lost), 5000, () => 'sent'), 'sent');
    await other.presumeDead();
    assert.equal(await ifPermitted(holding(lost), 5000, () => 'sent'), undefined);
    await queue.housekeep(clock.now());
    clock.advance(60);
    const lease = await claimOne(harness);
    assert.deepEqual([lease.uid, (await entryOf(queue, uid)).attempts], [uid, 1]);
    const at = clock.now();
    await assert.rejects(other.queue.settle(lost, settlement(lost, 'delivered', { at })), isThe('conflict'));
    assert.equal((await entryOf(queue, uid)).state, 'active');
  });
}

const holding = (lease: Lease) => (): boolean | Promise<boolean> => lease.holds?.() ?? true;

type Other = Awaited<ReturnType<NonNullable<QueueHarness['another']>>>;
