import assert from 'node:assert/strict';
import { test } from 'node:test';
import { claiming, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, claimOne, entryOf } from '../../../kit/relay-queue/harness.js';
import { until } from '../../../support/until.js';
import { fileQueueFixture } from './queue-fixture.js';

const many = Array.from({ length: 100 }, (_, n) => `recipient-${n}@one.example`);
/** A record has room for a tenth of what is changed here. */
const small = { segmentBytes: 64 * 1024 };

test('many entries with many recipients are returned by one call', async (t) => {
  const fixture = await fileQueueFixture(t, small);
  const { queue, clock } = fixture;
  const uids: string[] = [];
  for (let n = 0; n < 20; n += 1) uids.push((await accept(fixture, { to: many })).uid);
  const result = await queue.mutate({ uids }, { operation: 'bounce', reason: 'Not wanted' }, clock.now());
  assert.equal(result.changed, 20);
  assert.equal(queue.complaint(), undefined);
  const again = await fixture.afterCrash();
  for (const uid of uids) assert.equal((await entryOf(again, uid)).state, 'bounced');
  assert.equal((await again.notices(100)).length, 20);
});

test('what many recipients were answered is written down, however long it is', async (t) => {
  const fixture = await fileQueueFixture(t, small);
  const { queue, clock } = fixture;
  const { uid } = await accept(fixture, { to: many });
  const lease = await claimOne(fixture);
  await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now(), text: 'Later, please. '.repeat(60) }));
  assert.equal(queue.complaint(), undefined);
  await accept(fixture);
  const again = await fixture.afterCrash();
  const { attempts, lastReply, history } = await entryOf(again, uid);
  assert.deepEqual([attempts, lastReply?.code, history.length], [1, 451, 1]);
  assert.equal((await again.claim(claiming(clock.now()))).length, 1, 'only the other one is due');
});

test('a refused record of many recipients does not keep the queue from going on', async (t) => {
  const fixture = await fileQueueFixture(t, small);
  const { queue, clock } = fixture;
  const { uid } = await accept(fixture, { to: many });
  const lease = await claimOne(fixture);
  fixture.files.order({ call: 'write', code: 'ENOSPC' });
  const settling = queue.settle(lease, settlement(lease, 'deferred', { at: clock.now(), text: 'Later. '.repeat(100) }));
  assert.match(await until('a complaint', () => queue.complaint()), /cannot be written/);
  fixture.files.order();
  await settling;
  assert.equal(queue.complaint(), undefined);
  assert.equal((await entryOf(await fixture.afterCrash(), uid)).attempts, 1);
});
