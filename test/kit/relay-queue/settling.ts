import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { claiming, settlement } from './entries.js';
import { accept, claimOne, entryOf, isThe, sizeOf, type OpenQueueHarness, type TestRegistrar } from './harness.js';

/** What becomes of what was tried. */
export function settling(test: TestRegistrar, open: OpenQueueHarness): void {
  test('each recipient ends separately, and the entry is open until the last one has ended', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness, { to: ['a@one.example', 'b@one.example', 'c@one.example'] });
    const first = await claimOne(harness);
    const at = clock.now();
    const mixed = settlement(first, 'delivered', { at });
    const [a, b] = mixed.results;
    assert.ok(a !== undefined && b !== undefined);
    await queue.settle(first, {
      ...mixed,
      results: [a, { ...b, state: 'deferred', nextAttempt: at + 60_000 }],
    });
    let entry = await entryOf(queue, uid);
    assert.deepEqual(
      entry.recipients.map(({ state, attempts }) => [state, attempts]),
      [
        ['delivered', 1],
        ['deferred', 1],
        ['queued', 0],
      ],
    );
    assert.equal(entry.state, 'deferred');
    const second = await claimOne(harness);
    assert.deepEqual(
      second.recipients.map(({ address }) => address),
      ['c@one.example'],
    );
    await queue.settle(second, settlement(second, 'delivered', { at }));
    clock.advance(60);
    const third = await claimOne(harness);
    await queue.settle(third, settlement(third, 'delivered', { at: clock.now() }));
    entry = await entryOf(queue, uid);
    assert.deepEqual([entry.state, entry.hasMessage, entry.nextAttempt], ['delivered', false, null]);
    assert.equal(entry.history.length, 3);
    assert.equal(await sizeOf(harness), 0);
    await assert.rejects(queue.settle(third, { results: [] }), isThe('conflict'));
  });

  test('a returned lease is due as before, and counts no attempt', async (t) => {
    const harness = await open(t);
    const { uid } = await accept(harness);
    await harness.queue.settle(await claimOne(harness), { results: [] });
    const entry = await entryOf(harness.queue, uid);
    assert.deepEqual([entry.state, entry.attempts, entry.history], ['queued', 0, []]);
    await claimOne(harness);
  });

  test('a notice is pending until it is on its way, and the message stays so long', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    const lease = await claimOne(harness);
    await queue.settle(lease, settlement(lease, 'bounced', { at: clock.now() }));
    const [pending] = await queue.notices(10);
    assert.deepEqual([pending?.entry.uid, pending?.notice.kind], [uid, 'failed']);
    assert.equal((await entryOf(queue, uid)).hasMessage, true);
    await text(await queue.open(uid));
    await queue.noticed(uid, [pending?.notice.id ?? '']);
    await queue.noticed(uid, [pending?.notice.id ?? '']);
    assert.deepEqual(await queue.notices(10), []);
    assert.equal((await entryOf(queue, uid)).hasMessage, false);
  });

  test('notices that stay are given in turn, those of an entry together, and leave together', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const uids: string[] = [];
    for (let n = 0; n < 3; n += 1) uids.push((await accept(harness, { to: ['a@one.example', 'b@two.example'] })).uid);
    for (const lease of await queue.claim(claiming(clock.now()))) {
      await queue.settle(lease, settlement(lease, 'bounced', { at: clock.now() }));
    }
    const given: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      const pending = await queue.notices(1);
      assert.equal(pending.length, 2);
      given.push(pending[0]?.entry.uid ?? '');
    }
    assert.deepEqual(new Set(given.slice(0, 3)), new Set(uids));
    assert.equal(given[3], given[0]);
    const [first, second] = await queue.notices(1);
    assert.ok(first !== undefined && second !== undefined);
    await queue.noticed(first.entry.uid, [first.notice.id, second.notice.id]);
    assert.equal((await queue.notices(9)).length, 4);
  });

  test('of many attempts the newest are remembered', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    for (let n = 1; n <= 25; n++) {
      const lease = await claimOne(harness);
      await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now(), text: `try ${n}` }));
      clock.advance(300);
    }
    const { history, attempts } = await entryOf(queue, uid);
    assert.equal(attempts, 25);
    assert.ok(history.length < 25 && history.length > 1);
    assert.equal(history.at(-1)?.reply?.text, 'try 25');
    assert.deepEqual((await entryOf(await harness.reopen(), uid)).history, history);
  });

  test('a recipient may be held with a reason', async (t) => {
    const harness = await open(t);
    const { uid } = await accept(harness);
    const lease = await claimOne(harness);
    await harness.queue.settle(lease, { results: [{ index: 0, state: 'held', reply: null, hold: 'policy' }] });
    const { state, hold } = await entryOf(harness.queue, uid);
    assert.deepEqual({ state, hold }, { state: 'held', hold: 'policy' });
  });
}
