import assert from 'node:assert/strict';
import type { QueueOutcome, RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { claiming, settlement } from './entries.js';
import { accept, claimOne, entryOf, type OpenQueueHarness, type TestRegistrar } from './harness.js';

/** Notes what is told, and in which state the entry is then. */
function listening(queue: RelayQueue) {
  const told: QueueOutcome[] = [];
  return { told, undo: queue.onOutcome((outcome) => told.push(outcome)) };
}

const brief = ({ address, state, attempts, reply }: QueueOutcome): string =>
  [address.charAt(0), state, attempts, ...(reply === null ? [] : [reply.code])].join(' ');

/** Who is told of what. */
export function telling(test: TestRegistrar, open: OpenQueueHarness): void {
  test('the outcome of a recipient is emitted once for each attempt', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { told, undo } = listening(queue);
    const { uid } = await accept(harness, { to: ['a@one.example', 'b@one.example'], envelopeId: 'mine' });
    const first = await claimOne(harness);
    const at = clock.now();
    const { attempt, results } = settlement(first, 'deferred', { at });
    const [a, b] = results;
    assert.ok(attempt !== undefined && a !== undefined && b !== undefined);
    await queue.settle(first, { attempt, results: [{ ...a, state: 'bounced' }, b] });
    assert.deepEqual(told.map(brief), ['a bounced 1 451', 'b deferred 1 451']);
    assert.deepEqual(
      told.map(({ nextAttempt }) => nextAttempt),
      [null, at + 300_000],
    );
    assert.deepEqual([told[0]?.uid, told[0]?.sender, told[0]?.at], [uid, 'sender@home.example', at]);
    assert.equal(told[0]?.accepted().envelopeId, 'mine');
    clock.advance(300);
    const second = await claimOne(harness);
    await queue.settle(second, settlement(second, 'delivered', { at: clock.now() }));
    assert.deepEqual(told.slice(2).map(brief), ['b delivered 2 250']);
    undo();
    const other = await accept(harness);
    await queue.mutate({ uids: [other.uid] }, { operation: 'delete' }, clock.now());
    assert.equal(told.length, 3);
  });

  test('a returned lease, a retry and a release emit no outcome', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    const { told } = listening(queue);
    await queue.settle(await claimOne(harness), { results: [] });
    await queue.mutate({ uids: [uid] }, { operation: 'retry' }, clock.now());
    assert.equal(told.length, 0);
    await queue.mutate({ uids: [uid] }, { operation: 'hold', reason: 'wait' }, clock.now());
    await queue.mutate({ uids: [uid] }, { operation: 'hold', reason: 'wait' }, clock.now());
    await queue.mutate({ uids: [uid] }, { operation: 'release' }, clock.now());
    assert.deepEqual(told.map(brief), ['r held 0']);
    assert.equal(told[0]?.hold, 'wait');
  });

  test('an end by an operator or by age is emitted as well', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { told } = listening(queue);
    const bounced = await accept(harness, { to: ['b@one.example'] });
    const deleted = await accept(harness, { to: ['d@one.example'] });
    await queue.mutate({ uids: [bounced.uid] }, { operation: 'bounce', reason: 'No' }, clock.now());
    await queue.mutate({ uids: [deleted.uid] }, { operation: 'delete' }, clock.now());
    await queue.mutate({ uids: [deleted.uid] }, { operation: 'delete' }, clock.now());
    assert.deepEqual(told.splice(0).map(brief), ['b bounced 0 554', 'd deleted 0']);

    await accept(harness, { to: ['old@one.example'], expiresAt: clock.now() + 10_000 });
    clock.advance(20);
    const lease = await claimOne(harness);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    await queue.housekeep(clock.now());
    assert.deepEqual(told.map(brief), ['o deferred 1 451', 'o expired 1 451']);
  });

  test('an operation that waits for the end of an attempt is emitted together with it', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    const { told } = listening(queue);
    const lease = await claimOne(harness);
    await queue.mutate({ uids: [uid] }, { operation: 'bounce', reason: 'No' }, clock.now());
    assert.deepEqual(told, []);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    assert.deepEqual(told.map(brief), ['r bounced 1 554']);
  });

  test('an outcome is durable when it is emitted, and a second settlement of a lease is ignored', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    const states: Promise<string>[] = [];
    queue.onOutcome(() => states.push(entryOf(queue, uid).then(({ state }) => state)));
    const lease = await claimOne(harness);
    const settled = settlement(lease, 'delivered', { at: clock.now() });
    await queue.settle(lease, settled);
    await assert.rejects(queue.settle(lease, settled));
    assert.deepEqual(await Promise.all(states), ['delivered']);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
  });
}
