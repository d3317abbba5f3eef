import assert from 'node:assert/strict';
import { claiming, settlement } from './entries.js';
import { accept, claimOne, entryOf, type OpenQueueHarness, type TestRegistrar } from './harness.js';

/** What time does. */
export function aging(test: TestRegistrar, open: OpenQueueHarness): void {
  test('the sender gets one notice of a delay, unless there is no sender', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const warnAt = clock.now() + 60_000;
    const { uid } = await accept(harness, { warnAt });
    await accept(harness, { warnAt, sender: null });
    for (const lease of await queue.claim(claiming(clock.now()))) {
      await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    }
    await queue.housekeep(clock.now());
    assert.deepEqual(await queue.notices(9), []);
    clock.advance(60);
    await queue.housekeep(clock.now());
    await queue.housekeep(clock.now());
    const pending = await queue.notices(9);
    assert.deepEqual(
      pending.map(({ entry, notice }) => [entry.uid, notice.kind]),
      [[uid, 'delayed']],
    );
  });

  test('an entry whose time is over ends when it was tried once more', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness, { expiresAt: clock.now() + 400_000 });
    const first = await claimOne(harness);
    await queue.settle(first, settlement(first, 'deferred', { at: clock.now() }));
    clock.advance(400);
    await queue.housekeep(clock.now());
    assert.equal((await entryOf(queue, uid)).state, 'deferred', 'the clock may have jumped');
    const second = await claimOne(harness);
    await queue.settle(second, settlement(second, 'deferred', { at: clock.now() }));
    await queue.housekeep(clock.now());
    const { state, lastReply } = await entryOf(queue, uid);
    assert.deepEqual([state, lastReply?.code, lastReply?.status], ['expired', 451, '5.4.7']);
    assert.equal(lastReply?.host, null, 'no server has said it');
    assert.match(lastReply?.text ?? '', /451 4\.0\.0 deferred/, 'what a server has said last');
    assert.equal((await queue.notices(9)).length, 1);
  });

  test('mail without a sender to notify is held, not ended, when it expires', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const expiresAt = clock.now() + 400_000;
    const notice = await accept(harness, { expiresAt, sender: null, noticeOf: 'other' });
    const other = await accept(harness, { expiresAt, sender: null });
    for (let tries = 0; tries < 2; tries += 1) {
      for (const lease of await queue.claim(claiming(clock.now()))) {
        await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
      }
      clock.advance(400);
    }
    await queue.housekeep(clock.now());
    await queue.housekeep(clock.now());
    for (const [uid, why] of [
      [notice.uid, /notice of failure/],
      [other.uid, /no sender/],
    ] as const) {
      const { state, hold, lastReply } = await entryOf(queue, uid);
      assert.deepEqual([state, lastReply?.status], ['held', '5.4.7']);
      assert.match(hold ?? '', why);
    }
    assert.deepEqual(await queue.notices(9), []);
  });

  test('mail without a sender to notify is discarded when it was held long enough', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const discardAt = clock.now() + 86_400_000;
    const left = await accept(harness, { sender: null });
    const seen = await accept(harness, { sender: null });
    for (const lease of await queue.claim(claiming(clock.now()))) {
      const [about] = settlement(lease, 'bounced', { at: clock.now() }).results;
      const result = { index: 0, reply: about?.reply ?? null, state: 'held', hold: 'nobody', discardAt } as const;
      await queue.settle(lease, {
        ...settlement(lease, 'bounced', { at: clock.now() }),
        results: [result],
        notices: [],
      });
    }
    const early = await accept(harness, { hold: 'from the beginning', discardAt });
    assert.deepEqual(
      [(await entryOf(queue, left.uid)).discardAt, (await entryOf(queue, early.uid)).discardAt],
      [discardAt, discardAt],
    );
    await queue.mutate({ uids: [seen.uid] }, { operation: 'hold', reason: 'mine' }, clock.now());
    assert.equal((await entryOf(queue, seen.uid)).discardAt, null);
    clock.advance(86_399);
    await queue.housekeep(clock.now());
    assert.equal((await entryOf(queue, left.uid)).state, 'held');
    clock.advance(1);
    await queue.housekeep(clock.now());
    const states = [left, early, seen].map(async ({ uid }) => (await entryOf(queue, uid)).state);
    assert.deepEqual(await Promise.all(states), ['expired', 'expired', 'held']);
    assert.equal((await entryOf(queue, left.uid)).hasMessage, false);
    assert.deepEqual(await queue.notices(9), []);
  });

  test('finished entries are forgotten when they were kept long enough', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    await queue.mutate({ uids: [uid] }, { operation: 'delete' }, clock.now());
    await queue.housekeep(clock.now());
    assert.ok((await queue.find(uid)) !== undefined);
    clock.advance(10 * 86_400);
    await queue.housekeep(clock.now());
    assert.equal(await queue.find(uid), undefined);
  });
}
