import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { skipWithout } from '../support/peers.js';
import { runMailChaos } from './mail-chaos.js';

/** A short way through `npm run chaos`. */
test(
  'three servers lose no mail that they took by SMTP, and none sends what is another’s, whatever is killed, stopped or silent',
  { skip: skipWithout('postgres') },
  async (t) => {
    const seed = randomInt(2 ** 31);
    t.diagnostic(`seed ${seed}`);
    const result = await runMailChaos(t, { messages: 2000, events: 10, seed, fence: 'both', sessionMs: 2000 });
    const { accepted, lost, damaged, sentAfter, unexplained, waiting, held, duplicates, lostLeases } = result;
    assert.deepEqual(
      { lost, damaged, sentAfter, unexplained },
      { lost: [], damaged: [], sentAfter: [], unexplained: [] },
    );
    assert.deepEqual({ accepted, waiting }, { accepted: 2000, waiting: held });
    t.diagnostic(`${duplicates} duplicates of ${lostLeases} lost leases, ${held} held`);
  },
);

const stopped = { messages: 300, events: 0, seed: 1, sessionMs: 2000, stopBeforeDot: true };

test('a server that was stopped in front of a dot sends none', { skip: skipWithout('postgres') }, async (t) => {
  const { lost, sentAfter, unexplained, lostLeases } = await runMailChaos(t, { ...stopped, fence: 'both' });
  assert.deepEqual({ lost, sentAfter, unexplained }, { lost: [], sentAfter: [], unexplained: [] });
  assert.ok(lostLeases > 0);
});

test('without the fence it sends one, and the run sees it', { skip: skipWithout('postgres') }, async (t) => {
  const { lost, sentAfter } = await runMailChaos(t, { ...stopped, fence: 'none' });
  assert.deepEqual(lost, []);
  assert.ok(sentAfter.length > 0);
});
