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

/** How mail comes in. */
export function acceptance(test: TestRegistrar, open: OpenQueueHarness): void {
  test('an entry is there from its commit on, with its message from the first trace header field', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const entry = newEntry(clock.now(), { to: ['a@one.example', 'b@two.example'], ret: 'hdrs', envelopeId: 'x' });
    const message = await messageOf(harness, 'Subject: hello\r\n\r\nA line.\r\n');
    const prepared = await queue.prepare(entry, message);
    assert.equal(await sizeOf(harness), 0);
    assert.equal(await queue.find(entry.uid), undefined);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    await prepared.commit();
    prepared.release();
    await message.release();
    const found = await entryOf(queue, entry.uid);
    assert.equal(await sizeOf(harness), 1);
    assert.equal(found.state, 'queued');
    assert.deepEqual(found.accepted, { ...entry, size: found.size });
    assert.deepEqual(
      found.recipients.map(({ state, attempts, nextAttempt }) => ({ state, attempts, nextAttempt })),
      [1, 2].map(() => ({ state: 'queued', attempts: 0, nextAttempt: clock.now() })),
    );
    const sent = await text(await queue.open(entry.uid));
    assert.match(sent, /^Received: /);
    assert.ok(sent.endsWith('A line.\r\n'));
    assert.equal(sent.length, found.size);
    assert.equal((await queue.bytes?.(entry.uid))?.toString() ?? sent, sent);
  });

  test('an entry is not claimed before it is released, and then at once', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const prepared = await queue.prepare(newEntry(clock.now()), await messageOf(harness));
    await prepared.commit();
    assert.equal(await nextDueOf(harness), null);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    const woken = new Promise<void>((resolve) => queue.onDue(resolve));
    prepared.release();
    await woken;
    assert.equal((await queue.claim(claiming(clock.now()))).length, 1);
  });

  test('what is revoked before or after its commit leaves nothing', async (t) => {
    const harness = await open(t);
    for (const commits of [false, true]) {
      const entry = newEntry(harness.clock.now());
      const prepared = await harness.queue.prepare(entry, await messageOf(harness));
      if (commits) await prepared.commit();
      await prepared.abort();
      await prepared.abort();
      assert.equal(await harness.queue.find(entry.uid), undefined);
      await assert.rejects(harness.queue.open(entry.uid), isThe('not-found'));
    }
    assert.deepEqual(await harness.queue.claim(claiming(harness.clock.now())), []);
    await harness.reopen();
    assert.equal(await sizeOf(harness), 0);
  });

  test('a uid is used once, whether its entry is coming, open or finished', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const entry = newEntry(clock.now());
    const prepared = await queue.prepare(entry, await messageOf(harness));
    const again = async () => queue.prepare(entry, await messageOf(harness));
    await assert.rejects(again(), isThe('unavailable'), 'nobody knows yet whether it will be one');
    await prepared.commit();
    prepared.release();
    await assert.rejects(again(), isThe('conflict'));
    const lease = await claimOne(harness);
    await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    await assert.rejects(again(), isThe('conflict'));
  });

  test('a full queue takes nothing, and takes again when something has left', async (t) => {
    const harness = await open(t, { maxEntries: 1 });
    const { uid } = await accept(harness);
    assert.equal(await sizeOf(harness), 1);
    await assert.rejects(accept(harness), isThe('unavailable'));
    await harness.queue.mutate({ uids: [uid] }, { operation: 'delete' }, harness.clock.now());
    assert.equal(await sizeOf(harness), 0);
    await accept(harness);
    assert.equal(await sizeOf(harness), 1);
  });

  test('an entry may be held from the beginning, or wait for its first attempt', async (t) => {
    const harness = await open(t);
    const { queue, clock } = harness;
    const held = await accept(harness, { hold: 'looked at first' });
    await accept(harness, { nextAttempt: clock.now() + 60_000 });
    assert.equal((await entryOf(queue, held.uid)).hold, 'looked at first');
    assert.equal(await nextDueOf(harness), clock.now() + 60_000);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    clock.advance(60);
    assert.equal((await queue.claim(claiming(clock.now()))).length, 1);
  });
}
