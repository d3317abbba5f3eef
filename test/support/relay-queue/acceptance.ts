import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { claiming, newEntry, settlement } from '../queue-entries.js';
import { accept, claimOne, entryOf, isThe, type OpenQueueFixture } from './fixture.js';

/** How mail comes in. */
export function acceptance(open: OpenQueueFixture): void {
  test('an entry is there from its commit on, with its message from the first trace header field', async (t) => {
    const fixture = await open(t);
    const { queue, clock } = fixture;
    const entry = newEntry(clock.now(), { to: ['a@one.example', 'b@two.example'], ret: 'hdrs', envelopeId: 'x' });
    const message = await fixture.message('Subject: hello\r\n\r\nA line.\r\n');
    const prepared = await queue.prepare(entry, message);
    assert.equal(queue.size, 0);
    assert.equal(await queue.find(entry.uid), undefined);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    await prepared.commit();
    prepared.release();
    await message.release();
    const found = await entryOf(queue, entry.uid);
    assert.equal(queue.size, 1);
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
    const fixture = await open(t);
    const { queue, clock } = fixture;
    const woken: number[] = [];
    queue.onDue(() => woken.push(clock.now()));
    const prepared = await queue.prepare(newEntry(clock.now()), await fixture.message());
    await prepared.commit();
    assert.equal(queue.nextDue(), null);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    assert.equal(woken.length, 0);
    prepared.release();
    assert.equal(woken.length, 1);
    assert.equal((await queue.claim(claiming(clock.now()))).length, 1);
  });

  test('what is revoked before or after its commit leaves nothing', async (t) => {
    const fixture = await open(t);
    for (const commits of [false, true]) {
      const entry = newEntry(fixture.clock.now());
      const prepared = await fixture.queue.prepare(entry, await fixture.message());
      if (commits) await prepared.commit();
      await prepared.abort();
      await prepared.abort();
      assert.equal(await fixture.queue.find(entry.uid), undefined);
      await assert.rejects(fixture.queue.open(entry.uid), isThe('not-found'));
    }
    assert.deepEqual(await fixture.queue.claim(claiming(fixture.clock.now())), []);
    assert.equal((await fixture.reopen()).size, 0);
  });

  test('a uid is used once, whether its entry is coming, open or finished', async (t) => {
    const fixture = await open(t);
    const { queue, clock } = fixture;
    const entry = newEntry(clock.now());
    const prepared = await queue.prepare(entry, await fixture.message());
    const again = async () => queue.prepare(entry, await fixture.message());
    await assert.rejects(again(), isThe('unavailable'), 'nobody knows yet whether it will be one');
    await prepared.commit();
    prepared.release();
    await assert.rejects(again(), isThe('conflict'));
    const lease = await claimOne(fixture);
    await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    await assert.rejects(again(), isThe('conflict'));
  });

  test('a full queue takes nothing, and takes again when something has left', async (t) => {
    const fixture = await open(t, { maxEntries: 1 });
    const { uid } = await accept(fixture);
    await assert.rejects(accept(fixture), isThe('unavailable'));
    await fixture.queue.mutate({ uids: [uid] }, { operation: 'delete' }, fixture.clock.now());
    await accept(fixture);
    assert.equal(fixture.queue.size, 1);
  });

  test('an entry may be held from the beginning, or wait for its first attempt', async (t) => {
    const fixture = await open(t);
    const { queue, clock } = fixture;
    const held = await accept(fixture, { hold: 'looked at first' });
    await accept(fixture, { nextAttempt: clock.now() + 60_000 });
    assert.equal((await entryOf(queue, held.uid)).hold, 'looked at first');
    assert.equal(queue.nextDue(), clock.now() + 60_000);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    clock.advance(60);
    assert.equal((await queue.claim(claiming(clock.now()))).length, 1);
  });
}
