import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import { claiming, settlement } from '../queue-entries.js';
import { accept, claimOne, entryOf, isThe, type OpenQueueFixture } from './fixture.js';

/** How mail is given to workers. */
export function leasing(open: OpenQueueFixture): void {
  test('recipients of one destination are leased together, those of another on their own', async (t) => {
    const fixture = await open(t);
    await accept(fixture, { to: ['a@one.example', 'b@two.example', 'c@one.example'] });
    const leases = await fixture.queue.claim(claiming(fixture.clock.now()));
    const together = leases.map(({ recipients }) => recipients.map(({ address }) => address).join(' '));
    assert.deepEqual(new Set(together), new Set(['a@one.example c@one.example', 'b@two.example']));
    assert.deepEqual(await fixture.queue.claim(claiming(fixture.clock.now())), []);
    assert.equal(fixture.queue.nextDue(), null);
  });

  test('no destination gets more leases than it has room for, and none gets more than the limit', async (t) => {
    const fixture = await open(t);
    for (let n = 0; n < 5; n++) {
      await accept(fixture, { to: ['a@one.example'] });
      await accept(fixture, { to: ['a@two.example'] });
      await accept(fixture, { to: ['a@full.example'] });
    }
    const room = (destination: string) => ({ 'one.example': 2, 'two.example': 9 })[destination] ?? 0;
    const leases = await fixture.queue.claim(claiming(fixture.clock.now(), { room, limit: 6 }));
    assert.deepEqual(
      ['one.example', 'two.example'].map((name) => leases.filter(({ destination }) => destination === name).length),
      [2, 4],
    );
    assert.equal(leases.length, 6);
  });

  test('destinations of one site share its room and take turns, and one whose site is not known waits', async (t) => {
    const fixture = await open(t);
    for (let n = 0; n < 6; n++) {
      for (const name of ['a', 'b', 'c', 'other', 'unknown']) await accept(fixture, { to: [`x@${name}.example`] });
    }
    const known: Record<string, string> = { 'other.example': 'elsewhere' };
    for (const name of ['a', 'b', 'c']) known[`${name}.example`] = 'shared';
    const sites = { of: (name: string) => known[name], room: (site: string) => (site === 'shared' ? 4 : 2) };
    const room = (destination: string) => (destination === 'c.example' ? 1 : 100);
    const claim = () => fixture.queue.claim(claiming(fixture.clock.now(), { sites, room }));
    const counts = (leases: readonly Lease[]) =>
      ['a', 'b', 'c', 'other', 'unknown'].map(
        (name) => leases.filter(({ destination }) => destination === `${name}.example`).length,
      );
    const first = counts(await claim());
    assert.deepEqual(first.slice(2), [1, 2, 0]);
    assert.equal((first[0] ?? 0) + (first[1] ?? 0), 3);
    assert.ok(Math.min(...first.slice(0, 2)) >= 1, String(first));
    known['unknown.example'] = 'elsewhere';
    known['b.example'] = 'elsewhere';
    const second = counts(await claim());
    assert.equal((second[0] ?? 0) + (second[2] ?? 0), 4);
    assert.equal((second[1] ?? 0) + (second[3] ?? 0) + (second[4] ?? 0), 2);
    for (let left = 30 - 12; left > 0;) {
      const found = await claim();
      assert.ok(found.length > 0, `${left} are never given out`);
      left -= found.length;
    }
    assert.equal(fixture.queue.nextDue(), null);
  });

  test('a destination that has moved to other servers waits no longer for the room of its old ones', async (t) => {
    const fixture = await open(t);
    const names = Array.from({ length: 100 }, (_, n) => `d${n}.example`);
    for (const name of names) await accept(fixture, { to: [`a@${name}`] });
    const moved = new Set<string>();
    const sites = {
      of: (name: string) => (moved.has(name) ? 'new' : 'full'),
      room: (site: string) => (site === 'full' ? 0 : 100),
    };
    const claim = () => fixture.queue.claim(claiming(fixture.clock.now(), { sites }));
    assert.deepEqual(await claim(), []);
    for (const name of names.slice(50)) moved.add(name);
    let found = 0;
    for (let tries = 0; tries < 10; tries += 1) {
      fixture.clock.advance(1);
      found += (await claim()).length;
    }
    assert.equal(found, 50);
  });

  test('senders take turns, however many messages one of them has', async (t) => {
    const fixture = await open(t);
    for (let n = 0; n < 20; n++) await accept(fixture, { sender: 'loud@home.example' });
    await accept(fixture, { sender: 'quiet@home.example' });
    const leases = await fixture.queue.claim(claiming(fixture.clock.now(), { limit: 2 }));
    assert.deepEqual(
      new Set(leases.map(({ entry }) => entry.sender)),
      new Set(['loud@home.example', 'quiet@home.example']),
    );
  });

  test('new mail and retries take turns', async (t) => {
    const fixture = await open(t);
    const { queue, clock } = fixture;
    for (let n = 0; n < 4; n++) await accept(fixture);
    for (const lease of await queue.claim(claiming(clock.now()))) {
      await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    }
    clock.advance(300);
    for (let n = 0; n < 4; n++) await accept(fixture);
    const leases = await queue.claim(claiming(clock.now(), { limit: 4 }));
    assert.equal(leases.filter(({ recipients }) => recipients[0]?.attempts === 0).length, 2);
    assert.equal(leases.length, 4);
  });

  test('a waiter is notified when work comes', async (t) => {
    const fixture = await open(t);
    const { queue, clock } = fixture;
    let told = 0;
    const undo = queue.onDue(() => (told += 1));
    assert.equal(queue.nextDue(), null);
    await accept(fixture);
    assert.ok(told > 0);
    const lease = await claimOne(fixture);
    told = 0;
    assert.equal(queue.nextDue(), null);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    assert.ok(told > 0);
    assert.equal(queue.nextDue(), clock.now() + 300_000);
    told = 0;
    await queue.mutate({ uids: [lease.uid] }, { operation: 'retry' }, clock.now());
    assert.ok(told > 0);
    undo();
    told = 0;
    await accept(fixture);
    assert.equal(told, 0);
  });

  test('a lease that has run out counts as a lost attempt, and its outcome comes too late', async (t) => {
    const fixture = await open(t);
    const { queue, clock } = fixture;
    const { uid } = await accept(fixture);
    const lease = await claimOne(fixture);
    clock.advance(59);
    await queue.housekeep(clock.now());
    assert.equal((await entryOf(queue, uid)).state, 'active');
    clock.advance(1);
    await queue.housekeep(clock.now());
    const entry = await entryOf(queue, uid);
    assert.deepEqual([entry.state, entry.attempts, entry.history.at(-1)?.outcome], ['deferred', 1, 'lost']);
    await assert.rejects(queue.settle(lease, { results: [] }), isThe('conflict'));
    clock.advance(60);
    assert.ok((await claimOne(fixture)).token > lease.token);
  });
}
