import assert from 'node:assert/strict';
import { test } from 'node:test';
import { claiming, settlement } from '../../../support/queue-entries.js';
import { accept, claimOne, entryOf } from '../../../support/relay-queue/ground.js';
import { until } from '../../../support/until.js';
import { fileQueueGround } from './queue-ground.js';

const many = Array.from({ length: 100 }, (_, n) => `recipient-${n}@one.example`);
/** A record has room for a tenth of what is changed here. */
const small = { segmentBytes: 64 * 1024 };

test('many entries with many recipients are returned by one call', async (t) => {
  const ground = await fileQueueGround(t, small);
  const { queue, clock } = ground;
  const uids: string[] = [];
  for (let n = 0; n < 20; n += 1) uids.push((await accept(ground, { to: many })).uid);
  const result = await queue.mutate({ uids }, { operation: 'bounce', reason: 'Not wanted' }, clock.now());
  assert.equal(result.changed, 20);
  assert.equal(queue.complaint(), undefined);
  const again = await ground.afterCrash();
  for (const uid of uids) assert.equal((await entryOf(again, uid)).state, 'bounced');
  assert.equal((await again.notices(100)).length, 20);
});

test('what many recipients were answered is written down, however long it is', async (t) => {
  const ground = await fileQueueGround(t, small);
  const { queue, clock } = ground;
  const { uid } = await accept(ground, { to: many });
  const lease = await claimOne(ground);
  await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now(), text: 'Later, please. '.repeat(60) }));
  assert.equal(queue.complaint(), undefined);
  await accept(ground);
  const again = await ground.afterCrash();
  const { attempts, lastReply, history } = await entryOf(again, uid);
  assert.deepEqual([attempts, lastReply?.code, history.length], [1, 451, 1]);
  assert.equal((await again.claim(claiming(clock.now()))).length, 1, 'only the other one is due');
});

test('a refused record of many recipients does not keep the queue from going on', async (t) => {
  const ground = await fileQueueGround(t, small);
  const { queue, clock } = ground;
  const { uid } = await accept(ground, { to: many });
  const lease = await claimOne(ground);
  ground.files.order({ call: 'write', code: 'ENOSPC' });
  const settling = queue.settle(lease, settlement(lease, 'deferred', { at: clock.now(), text: 'Later. '.repeat(100) }));
  assert.match(await until('a complaint', () => queue.complaint()), /cannot be written/);
  ground.files.order();
  await settling;
  assert.equal(queue.complaint(), undefined);
  assert.equal((await entryOf(await ground.afterCrash(), uid)).attempts, 1);
});
