import assert from 'node:assert/strict';
import { isProblem } from '../../../core/problem.js';
import { claiming, settlement } from './entries.js';
import { accept, claimOne, entryOf, sizeOf, type OpenQueueHarness, type TestRegistrar } from './harness.js';

/** What operators do. */
export function mutating(test: TestRegistrar, open: OpenQueueHarness): void {
  test('a retry is due at once and does not count as an attempt of the schedule', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    const first = await claimOne(harness);
    await queue.settle(first, settlement(first, 'deferred', { at: clock.now() }));
    const result = await queue.mutate({ uids: [uid, 'unknown'] }, { operation: 'retry' }, clock.now());
    assert.deepEqual([result.requested, result.changed], [2, 1]);
    assert.deepEqual(
      result.results.map(({ outcome }) => outcome),
      ['done', 'notFound'],
    );
    const lease = await claimOne(harness);
    assert.equal(lease.manual, true);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    const entry = await entryOf(queue, uid);
    assert.deepEqual([entry.attempts, entry.history.length], [1, 2]);
    clock.advance(300);
    assert.equal((await claimOne(harness)).manual, false);
  });

  test('a deleted entry is gone from the queue and can be looked up', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    for (const changed of [1, 0]) {
      const result = await queue.mutate({ uids: [uid] }, { operation: 'delete' }, clock.now());
      assert.equal(result.changed, changed);
      assert.equal(result.results[0]?.outcome, 'done');
    }
    assert.equal(await sizeOf(harness), 0);
    assert.equal((await entryOf(queue, uid)).state, 'deleted');
    assert.deepEqual(await queue.notices(1), []);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
  });

  test('a returned entry has a notice with the reason of the operator', async (t) => {
    const harness = await open(t);
    const { uid } = await accept(harness, { to: ['a@one.example', 'b@two.example'] });
    await harness.queue.mutate(
      { uids: [uid] },
      { operation: 'bounce', reason: 'No longer wanted', status: '5.7.1' },
      harness.clock.now(),
    );
    const [pending] = await harness.queue.notices(10);
    assert.equal(pending?.entry.state, 'bounced');
    assert.equal(pending.entry.lastReply?.status, '5.7.1');
    const { kind, reason, recipients } = pending.notice;
    assert.deepEqual([kind, reason, recipients], ['failed', 'No longer wanted', ['a@one.example', 'b@two.example']]);
  });

  test('with criteria of recipients, selected entries keep their other recipients', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness, { to: ['a@one.example', 'b@two.example'] });
    const selector = { uids: [uid], within: { domain: 'two.example' } };
    const { recipients, otherRecipients, newlyHeld } = await queue.mutate(selector, { operation: 'hold' }, clock.now());
    assert.deepEqual([recipients, otherRecipients, newlyHeld], [1, 1, { [uid]: [1] }]);
    const again = await queue.mutate({ uids: [uid] }, { operation: 'hold' }, clock.now());
    assert.deepEqual(again.newlyHeld, { [uid]: [0] }, 'the other one was held before');
    await queue.mutate({ recipients: { [uid]: [0] } }, { operation: 'release' }, clock.now());
    const states = (await entryOf(queue, uid)).recipients.map(({ state }) => state);
    assert.deepEqual(states, ['queued', 'held']);
  });

  test('a mutation of many entries reports each durable batch and ends when it is cancelled', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    for (let count = 0; count < 300; count += 1) await accept(harness);
    const abort = new AbortController();
    const seen: number[] = [];
    const run = {
      signal: abort.signal,
      progress: ({ done, total }: { readonly done: number; readonly total: number }) => {
        assert.equal(total, 300);
        seen.push(done);
        abort.abort();
      },
    };
    const result = await queue.mutate({ filter: {} }, { operation: 'hold' }, clock.now(), run);
    assert.deepEqual([seen.length, result.requested, result.results.length], [1, 300, seen[0]]);
    assert.equal(result.recipients, seen[0]);
    assert.equal(await queue.count({ state: ['held'] }), result.recipients);
  });

  test('a held entry is not tried until it is released', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    await queue.mutate({ uids: [uid] }, { operation: 'hold', reason: 'wait' }, clock.now());
    assert.equal((await entryOf(queue, uid)).hold, 'wait');
    await queue.mutate({ uids: [uid] }, { operation: 'retry' }, clock.now());
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    await queue.mutate({ uids: [uid] }, { operation: 'release' }, clock.now());
    assert.deepEqual([(await entryOf(queue, uid)).state, (await entryOf(queue, uid)).hold], ['queued', null]);
    await claimOne(harness);
  });

  test('an entry that is held until then is released then', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    await queue.mutate({ uids: [uid] }, { operation: 'hold', until: clock.now() + 60_000 }, clock.now());
    await queue.housekeep(clock.now());
    assert.equal((await entryOf(queue, uid)).state, 'held');
    clock.advance(60);
    await queue.housekeep(clock.now());
    await claimOne(harness);
  });

  for (const [operation, behind] of [
    ['delete', 'deleted'],
    ['bounce', 'bounced'],
    ['hold', 'held'],
  ] as const) {
    test(`what is in flight is ${behind} after its attempt, and not before`, async (t) => {
      const harness = await open(t);
      const { queue, clock } = harness;
      const { uid } = await accept(harness, { to: ['a@one.example', 'b@one.example'] });
      const lease = await claimOne(harness);
      for (let n = 0; n < 2; n++) {
        const result = await queue.mutate({ uids: [uid] }, { operation }, clock.now());
        assert.equal(result.results[0]?.outcome, 'active');
      }
      const entry = await entryOf(queue, uid);
      assert.deepEqual([entry.state, entry.pendingOperation, entry.hasMessage], ['active', operation, true]);
      const settled = settlement(lease, 'deferred', { at: clock.now() });
      const [first, second] = settled.results;
      assert.ok(first !== undefined && second !== undefined);
      await queue.settle(lease, { ...settled, results: [{ ...first, state: 'delivered' }, second] });
      assert.deepEqual(
        (await entryOf(queue, uid)).recipients.map(({ state }) => state),
        ['delivered', behind],
      );
      assert.equal((await entryOf(queue, uid)).pendingOperation, null);
      assert.equal((await queue.notices(9)).length, operation === 'bounce' ? 1 : 0);
    });
  }

  test('a recipient that is released during the attempt of another is not held after it', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness, { to: ['a@one.example', 'b@two.example'] });
    const room = (destination: string): number => (destination === 'one.example' ? 1 : 0);
    const [first] = await queue.claim(claiming(clock.now(), { room }));
    assert.ok(first);
    await queue.mutate({ uids: [uid] }, { operation: 'hold' }, clock.now());
    const selector = { uids: [uid], within: { recipient: 'b@two.example' } };
    const { recipients } = await queue.mutate(selector, { operation: 'release' }, clock.now());
    assert.equal(recipients, 1);
    const second = await claimOne(harness);
    await queue.settle(second, settlement(second, 'deferred', { at: clock.now() }));
    const states = async () => (await entryOf(queue, uid)).recipients.map(({ state }) => state);
    assert.deepEqual(await states(), ['active', 'deferred']);
    await queue.settle(first, settlement(first, 'deferred', { at: clock.now() }));
    assert.deepEqual(await states(), ['held', 'deferred']);
  });

  test('a retry leaves what is in flight as it is, and does not promise more', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness);
    const lease = await claimOne(harness);
    const at = clock.now() + 3_600_000;
    const { changed, results } = await queue.mutate({ uids: [uid] }, { operation: 'retry', at }, clock.now());
    assert.deepEqual([changed, results], [0, [{ uid, outcome: 'done', detail: 'It is being sent now.' }]]);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    assert.notEqual((await entryOf(queue, uid)).nextAttempt, at);
  });

  test('nothing is done when a filter lets through another number than was expected', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const filter = { domain: 'one.example' };
    for (let n = 0; n < 3; n += 1) await accept(harness);
    await assert.rejects(
      queue.mutate({ filter, expect: 2 }, { operation: 'delete' }, clock.now()),
      (error) => isProblem(error) && error.problem === 'conflict',
    );
    assert.equal(await sizeOf(harness), 3);
    await queue.mutate({ filter, expect: 3 }, { operation: 'delete' }, clock.now());
    assert.equal(await sizeOf(harness), 0);
  });

  test('what an operator holds is kept, though its attempt would have had it discarded', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness, { sender: null, to: ['a@one.example', 'b@one.example'] });
    const lease = await claimOne(harness);
    await queue.mutate({ uids: [uid] }, { operation: 'hold', reason: 'mine' }, clock.now());
    const settled = settlement(lease, 'deferred', { at: clock.now() });
    const [first, second] = settled.results;
    assert.ok(first !== undefined && second !== undefined);
    const held = { ...first, state: 'held', hold: 'nobody', discardAt: clock.now() + 1000 } as const;
    await queue.settle(lease, { ...settled, results: [held, second] });
    const { hold, discardAt } = await entryOf(queue, uid);
    assert.deepEqual([hold, discardAt], ['mine', null]);
  });

  test('entries are changed by a filter, and only those that match', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    for (let n = 0; n < 6; n++) await accept(harness, { to: [n % 2 === 0 ? 'a@one.example' : 'b@two.example'] });
    const filter = { domain: 'two.example' };
    const result = await queue.mutate({ filter }, { operation: 'delete' }, clock.now());
    assert.deepEqual([result.requested, result.changed], [3, 3]);
    assert.equal(await queue.count({}), 3);
    assert.equal(await queue.count(filter), 0);
    assert.equal(await queue.count({ ...filter, state: ['deleted'] }), 3);
  });

  const both = ['a@one.example', 'b@two.example'];
  for (const filter of [
    { domain: 'TWO.example' },
    { destination: 'two.example' },
    { recipient: 'B@two.example' },
    { recipient: '@two.example' },
  ]) {
    for (const [operation, state] of [
      ['bounce', 'bounced'],
      ['delete', 'deleted'],
      ['hold', 'held'],
    ] as const) {
      test(`${operation} by ${JSON.stringify(filter)} changes only the recipients that match`, async (t) => {
        const harness = await open(t);
        const { queue, clock } = harness;
        const { uid } = await accept(harness, { to: both });
        const reach = { recipients: 1, messages: 1, otherRecipients: 1 };
        const { sample, ...expected } = await queue.preview({ filter }, { operation }, clock.now());
        assert.deepEqual([expected, sample.map(({ addresses }) => addresses)], [reach, [['b@two.example']]]);
        const { results: _results, newlyHeld, ...counts } = await queue.mutate({ filter }, { operation }, clock.now());
        assert.deepEqual(counts, { requested: 1, changed: 1, ...reach });
        assert.deepEqual(newlyHeld, operation === 'hold' ? { [uid]: [1] } : undefined);
        const states = (await entryOf(queue, uid)).recipients.map((one) => one.state);
        assert.deepEqual(states, ['queued', state]);
        const notices = (await queue.notices(9)).flatMap(({ notice }) => notice.recipients);
        assert.deepEqual(notices, operation === 'bounce' ? ['b@two.example'] : []);
        const [lease] = await queue.claim(claiming(clock.now()));
        assert.deepEqual(
          lease?.recipients.map(({ address }) => address),
          ['a@one.example'],
        );
      });
    }
  }

  test('retry and release by a filter leave the other recipients as they are', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const { uid } = await accept(harness, { to: both });
    await queue.mutate({ uids: [uid] }, { operation: 'hold', reason: 'mine' }, clock.now());
    const filter = { domain: 'two.example' };
    const released = await queue.mutate({ filter }, { operation: 'release' }, clock.now());
    assert.deepEqual([released.recipients, released.otherRecipients], [1, 1]);
    const entry = await entryOf(queue, uid);
    assert.deepEqual([entry.recipients.map(({ state }) => state), entry.hold], [['held', 'queued'], 'mine']);
    await queue.mutate({ uids: [uid] }, { operation: 'release' }, clock.now());
    const at = clock.now() + 3_600_000;
    await queue.mutate({ filter }, { operation: 'retry', at }, clock.now());
    const due = (await entryOf(queue, uid)).recipients.map(({ nextAttempt }) => nextAttempt === at);
    assert.deepEqual([due, (await entryOf(queue, uid)).hold], [[false, true], null]);
  });

  test('a recipient in an attempt is bounced after it, and the other one in flight is not', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const to = ['a@one.example', 'b@one.example'];
    const { uid } = await accept(harness, { to });
    const lease = await claimOne(harness);
    const filter = { recipient: 'b@one.example' };
    const { results, ...counts } = await queue.mutate({ filter }, { operation: 'bounce' }, clock.now());
    assert.deepEqual([results[0]?.outcome, counts.recipients, counts.otherRecipients], ['active', 1, 1]);
    const other = { recipient: 'a@one.example' };
    const refused = await queue.mutate({ filter: other }, { operation: 'delete' }, clock.now());
    assert.deepEqual([refused.changed, refused.results[0]?.outcome], [0, 'active']);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    const states = (await entryOf(queue, uid)).recipients.map(({ state }) => state);
    assert.deepEqual(states, ['deferred', 'bounced']);
    assert.deepEqual(
      (await queue.notices(9)).flatMap(({ notice }) => notice.recipients),
      ['b@one.example'],
    );
  });

  test('criteria of recipients hold for one and the same recipient', async (t) => {
    const harness = await open(t);
    await accept(harness, { to: both });
    assert.equal(await harness.queue.count({ domain: 'one.example', recipient: 'a@one.example' }), 1);
    assert.equal(await harness.queue.count({ domain: 'one.example', recipient: 'b@two.example' }), 0);
  });
}
