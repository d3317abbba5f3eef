import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { skipWithout } from '../support/peers.js';
import { type ChaosResult, defaultSessionMs, runChaos } from './chaos.js';

/** A short way through `npm run chaos`. */
const sessionMs = defaultSessionMs();

function assertDelivered({ lost, waiting, faults }: ChaosResult): void {
  assert.deepEqual({ lost, waiting, faults }, { lost: [], waiting: 0, faults: [] });
}

function assertFenced({ sentAfter, unexplained }: ChaosResult): void {
  assert.deepEqual({ sentAfter, unexplained }, { sentAfter: [], unexplained: [] });
}

describe('nodes that share a queue', { skip: skipWithout('postgres') }, () => {
  test('lose nothing, and send nothing whose lease was taken away, whatever is killed, stopped or silent', async (t) => {
    const result = await runChaos(t, { messages: 2000, events: 12, seed: 1, fence: 'both', sessionMs });
    assertDelivered(result);
    assertFenced(result);
    t.diagnostic(`${result.duplicates} duplicates of ${result.lostLeases} lost leases`);
  });

  const stopped = { messages: 400, events: 0, seed: 1, sessionMs, stopBeforeDot: true };

  test('a node that was stopped between its question and its dot sends no dot', async (t) => {
    const result = await runChaos(t, { ...stopped, fence: 'both' });
    assertDelivered(result);
    assertFenced(result);
    assert.ok(result.lostLeases > 0);
  });

  test('without the fence it sends one, and the run sees it', async (t) => {
    const result = await runChaos(t, { ...stopped, fence: 'none' });
    assertDelivered(result);
    assert.ok(result.sentAfter.length > 0);
    assert.ok(result.duplicates > 0);
  });
});
