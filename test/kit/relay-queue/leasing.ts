import assert from 'node:assert/strict';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import { claiming, settlement } from './entries.js';
import { accept, claimOne, entryOf, isThe, nextDueOf, type OpenQueueHarness, type TestRegistrar } from './harness.js';

/** How mail is given to workers. */
export function leasing(test: TestRegistrar, open: OpenQueueHarness): void {
  test('recipients of one destination are leased together, those of another on their own', async (t) => {
    const harness = await open(t);
    await accept(harness, { to: ['a@one.example', 'b@two.example', 'c@one.example'] });
    const leases = await harness.queue.claim(claiming(harness.clock.now()));
    const together = leases.map(({ recipients }) => recipients.map(({ address }) => address).join(' '));
    assert.deepEqual(new Set(together), new Set(['a@one.example c@one.example', 'b@two.example']));
    assert.deepEqual(await harness.queue.claim(claiming(harness.clock.now())), []);
    assert.equal(await nextDueOf(harness), null);
  });

  test('no destination gets more leases than it has room for, and none gets more than the limit', async (t) => {
    const harness = await open(t);
    for (let n = 0; n < 5; n++) {
      await accept(harness, { to: ['a@one.example'] });
      await accept(harness, { to: ['a@two.example'] });
      await accept(harness, { to: ['a@full.example'] });
    }
    const left = new Map([
      ['one.example', 2],
      ['two.example', 9],
    ]);
    const room = (destination: string) => left.get(destination) ?? 0;
    const counts = new Map<string, number>();
    for (let tries = 0; tries < 10; tries += 1) {
      const leases = await harness.queue.claim(claiming(harness.clock.now(), { room, limit: 6 }));
      assert.ok(leases.length <= 6 && (tries > 0 || leases.length > 0), `${leases.length} leases`);
      for (const { destination } of leases) {
        counts.set(destination, (counts.get(destination) ?? 0) + 1);
        left.set(destination, room(destination) - 1);
      }
    }
    assert.deepEqual(
      ['one.example', 'two.example', 'full.example'].map((name) => counts.get(name) ?? 0),
      [2, 5, 0],
    );
  });

  test('destinations of one site share its room and take turns, and one whose site is not known waits', async (t) => {
    const harness = await open(t);
    for (let n = 0; n < 6; n++) {
      for (const name of ['a', 'b', 'c', 'other', 'unknown']) await accept(harness, { to: [`x@${name}.example`] });
    }
    const known: Record<string, string> = { 'other.example': 'elsewhere' };
    for (const name of ['a', 'b', 'c']) known[`${name}.example`] = 'shared';
    const sites = { of: (name: string) => known[name], room: (site: string) => (site === 'shared' ? 4 : 2) };
    const room = (destination: string) => (destination === 'c.example' ? 1 : 100);
    const claim = () => harness.queue.claim(claiming(harness.clock.now(), { sites, room }));
    const counts = (leases: readonly Lease[]) =>
      ['a', 'b', 'c', 'other', 'unknown'].map(
        (name) => leases.filter(({ destination }) => destination === `${name}.example`).length,
      );
    const [a = 0, b = 0, c = 0, other = 0, unknown = 0] = counts(await claim());
    const all = a + b + c + other + unknown;
    assert.ok(a >= 1 && b >= 1 && c <= 1 && a + b + c <= 4 && other >= 1 && other <= 2, `${a} ${b} ${c} ${other}`);
    assert.equal(unknown, 0);
    known['unknown.example'] = 'elsewhere';
    known['b.example'] = 'elsewhere';
    const second = counts(await claim());
    assert.ok((second[0] ?? 0) + (second[2] ?? 0) <= 4, String(second));
    assert.ok((second[1] ?? 0) + (second[3] ?? 0) + (second[4] ?? 0) <= 2, String(second));
    for (let left = 30 - all - second.reduce((sum, one) => sum + one, 0); left > 0;) {
      const found = await claim();
      assert.ok(found.length > 0, `${left} are never given out`);
      left -= found.length;
    }
    assert.equal(await nextDueOf(harness), null);
  });

  test('a destination that has moved to other servers waits no longer for the room of its old ones', async (t) => {
    const harness = await open(t);
    const names = Array.from({ length: 100 }, (_, n) => `d${n}.example`);
    for (const name of names) await accept(harness, { to: [`a@${name}`] });
    const moved = new Set<string>();
    const sites = {
      of: (name: string) => (moved.has(name) ? 'new' : 'full'),
      room: (site: string) => (site === 'full' ? 0 : 100),
    };
    const claim = () => harness.queue.claim(claiming(harness.clock.now(), { sites }));
    assert.deepEqual(await claim(), []);
    for (const name of names.slice(50)) moved.add(name);
    let found = 0;
    for (let tries = 0; tries < 10; tries += 1) {
      harness.clock.advance(1);
      found += (await claim()).length;
    }
    assert.equal(found, 50);
  });

  test('senders take turns, however many messages one of them has', async (t) => {
    const harness = await open(t);
    for (let n = 0; n < 20; n++) await accept(harness, { sender: 'loud@home.example' });
    await accept(harness, { sender: 'quiet@home.example' });
    const leases = await harness.queue.claim(claiming(harness.clock.now(), { limit: 4 }));
    assert.ok(leases.some(({ entry }) => entry.sender === 'quiet@home.example'));
  });

  test('new mail and retries take turns', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    for (let n = 0; n < 4; n++) await accept(harness);
    for (const lease of await queue.claim(claiming(clock.now()))) {
      await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    }
    clock.advance(300);
    for (let n = 0; n < 4; n++) await accept(harness);
    const leases = await queue.claim(claiming(clock.now(), { limit: 4 }));
    const isNew = leases.map(({ recipients }) => recipients[0]?.attempts === 0);
    assert.deepEqual(new Set(isNew), new Set([true, false]));
  });

  test('a waiter is notified when work comes', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    let wake = (): void => undefined;
    const undo = queue.onDue(() => wake());
    const wakes = async (work: () => Promise<unknown>): Promise<void> => {
      const woken = new Promise<void>((resolve) => (wake = resolve));
      await work();
      await woken;
    };
    assert.equal(await nextDueOf(harness), null);
    await wakes(() => accept(harness));
    const lease = await claimOne(harness);
    assert.equal(await nextDueOf(harness), null);
    await wakes(() => queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() })));
    assert.equal(await nextDueOf(harness), clock.now() + 300_000);
    await wakes(() => queue.mutate({ uids: [lease.uid] }, { operation: 'retry' }, clock.now()));
    undo();
    wake = () => assert.fail('nobody listens any more');
    await accept(harness);
    await claimOne(harness);
  });

  test('a lease that has run out counts as a lost attempt, and its outcome comes too late', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    const lease = await claimOne(harness);
    clock.advance(59);
    await queue.housekeep(clock.now());
    assert.equal((await entryOf(queue, uid)).state, 'active');
    clock.advance(1);
    await queue.housekeep(clock.now());
    const entry = await entryOf(queue, uid);
    assert.deepEqual([entry.state, entry.attempts, entry.history.at(-1)?.outcome], ['deferred', 1, 'lost']);
    clock.advance(60);
    assert.notEqual((await claimOne(harness)).token, lease.token);
    await assert.rejects(queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() })), isThe('conflict'));
    assert.equal((await entryOf(queue, uid)).state, 'active');
  });
}
