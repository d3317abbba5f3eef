import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { claiming, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { fileQueueFixture } from './queue-fixture.js';

/** An entry of which one recipient is in flight, and two others wait. */
async function halfWay(t: TestContext) {
  const fixture = await fileQueueFixture(t);
  const { queue, clock } = fixture;
  const entry = newEntry(clock.now(), { to: ['a@one.example', 'b@two.example', 'c@three.example'] });
  const prepared = await queue.prepare(entry, await fixture.message());
  await prepared.commit();
  prepared.release();
  const room = (destination: string): number => (destination === 'one.example' ? 1 : 0);
  const [lease] = await queue.claim(claiming(clock.now(), { room }));
  assert.ok(lease);
  const states = async () => (await queue.find(entry.uid))?.recipients.map(({ state }) => state);
  return { ...fixture, queue, uid: entry.uid, lease, states };
}

describe('while one recipient is in flight', () => {
  for (const [operation, state] of [
    ['delete', 'deleted'],
    ['bounce', 'bounced'],
    ['hold', 'held'],
  ] as const) {
    test(`the others are ${state} at once, and are not tried meanwhile`, async (t) => {
      const { queue, clock, uid, lease, states } = await halfWay(t);
      const { results } = await queue.mutate({ uids: [uid] }, { operation }, clock.now());
      assert.equal(results[0]?.outcome, 'active');
      assert.deepEqual(await states(), ['active', state, state]);
      assert.deepEqual(await queue.claim(claiming(clock.now())), []);
      await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
      assert.deepEqual(await states(), [state, state, state]);
    });
  }

  test('the sender gets one notice for each recipient that is returned', async (t) => {
    const { queue, clock, uid, lease } = await halfWay(t);
    await queue.mutate({ uids: [uid] }, { operation: 'bounce' }, clock.now());
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    const told = (await queue.notices(9)).flatMap(({ notice }) => notice.recipients);
    assert.deepEqual([...told].sort(), ['a@one.example', 'b@two.example', 'c@three.example']);
  });

  test('a release takes back a hold of the others, and of the one in flight', async (t) => {
    const { queue, clock, uid, lease, states } = await halfWay(t);
    await queue.mutate({ uids: [uid] }, { operation: 'hold' }, clock.now());
    await queue.mutate({ uids: [uid] }, { operation: 'release' }, clock.now());
    assert.deepEqual(await states(), ['active', 'queued', 'queued']);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    assert.deepEqual(await states(), ['deferred', 'queued', 'queued']);
  });

  test('a process that dies then leaves no recipient in flight', async (t) => {
    const fixture = await halfWay(t);
    await fixture.queue.mutate({ uids: [fixture.uid] }, { operation: 'delete' }, fixture.clock.now());
    const queue = await fixture.afterCrash();
    assert.equal((await queue.find(fixture.uid))?.state, 'deleted');
  });
});
