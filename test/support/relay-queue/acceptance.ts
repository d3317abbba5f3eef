import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { claiming, newEntry, settlement } from '../queue-entries.js';
import { accept, claimOne, entryOf, isThe, type OpenQueueGround } from './ground.js';

/** How mail comes in. */
export function acceptance(open: OpenQueueGround): void {
  test('an entry is there from its commit on, with its message from the first trace header field', async (t) => {
    const ground = await open(t);
    const { queue, clock } = ground;
    const entry = newEntry(clock.now(), { to: ['a@one.example', 'b@two.example'], ret: 'hdrs', envelopeId: 'x' });
    const message = await ground.message('Subject: hello\r\n\r\nA line.\r\n');
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

  test('an entry is given to nobody before it is released, and then at once', async (t) => {
    const ground = await open(t);
    const { queue, clock } = ground;
    const woken: number[] = [];
    queue.onDue(() => woken.push(clock.now()));
    const prepared = await queue.prepare(newEntry(clock.now()), await ground.message());
    await prepared.commit();
    assert.equal(queue.nextDue(), null);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    assert.equal(woken.length, 0);
    prepared.release();
    assert.equal(woken.length, 1);
    assert.equal((await queue.claim(claiming(clock.now()))).length, 1);
  });

  test('what is taken back before or behind its commit leaves nothing', async (t) => {
    const ground = await open(t);
    for (const commits of [false, true]) {
      const entry = newEntry(ground.clock.now());
      const prepared = await ground.queue.prepare(entry, await ground.message());
      if (commits) await prepared.commit();
      await prepared.abort();
      await prepared.abort();
      assert.equal(await ground.queue.find(entry.uid), undefined);
      await assert.rejects(ground.queue.open(entry.uid), isThe('not-found'));
    }
    assert.deepEqual(await ground.queue.claim(claiming(ground.clock.now())), []);
    assert.equal((await ground.reopen()).size, 0);
  });

  test('a uid is used once, whether its entry is coming, open or finished', async (t) => {
    const ground = await open(t);
    const { queue, clock } = ground;
    const entry = newEntry(clock.now());
    const prepared = await queue.prepare(entry, await ground.message());
    const again = async () => queue.prepare(entry, await ground.message());
    await assert.rejects(again(), isThe('unavailable'), 'nobody knows yet whether it will be one');
    await prepared.commit();
    prepared.release();
    await assert.rejects(again(), isThe('conflict'));
    const lease = await claimOne(ground);
    await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    await assert.rejects(again(), isThe('conflict'));
  });

  test('a full queue takes nothing, and takes again when something has left', async (t) => {
    const ground = await open(t, { maxEntries: 1 });
    const { uid } = await accept(ground);
    await assert.rejects(accept(ground), isThe('unavailable'));
    await ground.queue.mutate({ uids: [uid] }, { operation: 'delete' }, ground.clock.now());
    await accept(ground);
    assert.equal(ground.queue.size, 1);
  });

  test('an entry may be held from the beginning, or wait for its first attempt', async (t) => {
    const ground = await open(t);
    const { queue, clock } = ground;
    const held = await accept(ground, { hold: 'looked at first' });
    await accept(ground, { nextAttempt: clock.now() + 60_000 });
    assert.equal((await entryOf(queue, held.uid)).hold, 'looked at first');
    assert.equal(queue.nextDue(), clock.now() + 60_000);
    assert.deepEqual(await queue.claim(claiming(clock.now())), []);
    clock.advance(60);
    assert.equal((await queue.claim(claiming(clock.now()))).length, 1);
  });
}
