import assert from 'node:assert/strict';
import { test } from 'node:test';
import { skipWithout } from '../support/peers.js';
import { type MailChaosResult, mailSessionMs, runMailChaos } from './mail-chaos.js';

/** A short way through `npm run chaos`. */
const sessionMs = mailSessionMs();

function assertDelivered(result: MailChaosResult): void {
  const { lost, damaged, faults, sentAfter, unexplained, waiting, held } = result;
  assert.deepEqual(
    { lost, damaged, faults, sentAfter, unexplained, waiting },
    { lost: [], damaged: [], faults: [], sentAfter: [], unexplained: [], waiting: held },
  );
}

test(
  'three servers lose no mail that they took by SMTP, and none sends what is another’s, whatever is killed, stopped or silent',
  { skip: skipWithout('postgres') },
  async (t) => {
    const result = await runMailChaos(t, { messages: 2000, events: 10, seed: 1, fence: 'both', sessionMs });
    assertDelivered(result);
    const { accepted, duplicates, lostLeases, held } = result;
    assert.equal(accepted, 2000);
    t.diagnostic(`${duplicates} duplicates of ${lostLeases} lost leases, ${held} held`);
  },
);

const stopped = { messages: 300, events: 0, seed: 1, sessionMs, stopBeforeDot: true };

test(
  'a server that was stopped while it sends ends no message of a lost lease',
  { skip: skipWithout('postgres') },
  async (t) => {
    const result = await runMailChaos(t, { ...stopped, fence: 'both' });
    assertDelivered(result);
    assert.ok(result.lostLeases > 0);
  },
);

test('without the fence it sends one, and the run sees it', { skip: skipWithout('postgres') }, async (t) => {
  const { lost, faults, sentAfter } = await runMailChaos(t, { ...stopped, fence: 'none' });
  assert.deepEqual({ lost, faults }, { lost: [], faults: [] });
  assert.ok(sentAfter.length > 0);
});
