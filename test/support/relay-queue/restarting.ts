import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { claiming, settlement } from '../queue-entries.js';
import { accept, type OpenQueueFixture } from './fixture.js';

/** What a restart leaves. */
export function restarting(open: OpenQueueFixture): void {
  test('everything is as before when the queue is opened again', async (t) => {
    const fixture = await open(t);
    const { queue, clock } = fixture;
    const uids: string[] = [];
    for (let n = 0; n < 6; n++) uids.push((await accept(fixture, { to: ['ä@one.example', 'b@two.example'] })).uid);
    const [retried = '', deleted = '', bounced = '', held = '', partly = ''] = uids;
    const at = clock.now();
    for (const lease of await queue.claim(claiming(at, { limit: 12 }))) {
      await queue.settle(lease, settlement(lease, lease.uid === partly ? 'delivered' : 'deferred', { at }));
    }
    await queue.mutate({ uids: [retried] }, { operation: 'retry', at: at + 5000 }, at);
    await queue.mutate({ uids: [deleted] }, { operation: 'delete' }, at);
    await queue.mutate({ uids: [bounced] }, { operation: 'bounce', reason: 'so' }, at);
    await queue.mutate({ uids: [held] }, { operation: 'hold', reason: 'so' }, at);
    const before = await Promise.all(uids.map((uid) => queue.find(uid)));
    const again = await fixture.reopen();
    assert.deepEqual(await Promise.all(uids.map((uid) => again.find(uid))), before);
    assert.equal(again.size, 3);
    assert.equal((await again.notices(9)).length, 1);
    assert.equal(again.nextDue(), at + 5000);
    await text(await again.open(retried));
  });
}
