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
