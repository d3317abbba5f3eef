import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { QueueStatistics } from '../../../core/contracts/relay-queue.js';
import { maxDestinations, statisticsAnswer } from '../../../plugins/client-queue/http/entry-answer.js';

const count = 200_000;

test('an answer shows the destinations with the most mail, and counts all of them', () => {
  const row = { total: 1, ages: [1], oldest: 0, active: 0, lastReply: null };
  const statistics: QueueStatistics = {
    at: 0,
    byState: { queued: count, active: 0, deferred: 0, held: 0, delivered: 0, bounced: 0, expired: 0, deleted: 0 },
    byDestination: Array.from({ length: count }, (_, number) => ({ ...row, destination: `domain-${number}.example` })),
    ageLimits: [],
    byReason: [],
    bySender: [],
    open: count,
    bytes: 0,
    oldest: null,
    quarantined: 0,
  };
  const answer = statisticsAnswer(statistics, { peek: () => undefined }, maxDestinations.list);
  assert.equal(answer.byDestination.length, 100);
  assert.equal(answer.byDestination[0]?.destination, 'domain-0.example');
  assert.equal(answer.destinationCount, count);
  assert.ok(JSON.stringify(answer).length < 50_000);
});
