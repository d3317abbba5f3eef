import assert from 'node:assert/strict';
import { test } from 'node:test';
import { QueuedEntry } from '../../../../plugins/client-queue/queue/queued-entry.js';
import { Tally } from '../../../../plugins/client-queue/queue/statistics.js';

/** So many destinations: more than are sorted between two turns of others. */
const count = 100_000;

function entryTo(destination: string, recipients: number): QueuedEntry {
  const recipient = { address: `user@${destination}`, destination, due: 0 };
  return new QueuedEntry({
    uid: destination,
    sender: null,
    size: 1,
    traceOffset: 0,
    queuedAt: 0,
    expiresAt: 1,
    warnAt: null,
    recipients: Array.from({ length: recipients }, () => recipient),
    envelope: '{}',
  });
}

test('very many destinations are sorted, and others have their turns meanwhile', async () => {
  const tally = new Tally(0);
  for (let number = 0; number < count; number += 1) {
    tally.add(entryTo(`domain-${String((number * 7919) % count).padStart(6, '0')}.example`, 1 + (number % 3)));
  }
  let turns = 0;
  const turn = (): void => {
    turns += 1;
    timer = setImmediate(turn);
  };
  let timer = setImmediate(turn);
  const { byDestination } = await tally.result(0);
  clearImmediate(timer);
  assert.ok(turns >= 3, `${turns} turns`);
  assert.equal(byDestination.length, count);
  const isSorted = byDestination.every((row, at) => {
    const before = byDestination[at - 1];
    if (before === undefined) return true;
    return before.total === row.total ? before.destination < row.destination : before.total > row.total;
  });
  assert.ok(isSorted, 'the most first, then by name');
});
