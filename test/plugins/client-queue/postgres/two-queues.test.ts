import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import type { QueueHarness } from '../../../kit/relay-queue/harness.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { fillTables } from '../../cluster/cluster-fixture.js';
import { QueueModel, steps } from '../queue/queue-model.js';
import { postgresQueues } from './postgres-fixture.js';

describe('two servers with one queue', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });

  test('hold what the plainest queue would hold, whichever of them is asked', async () => {
    const open = postgresQueues(() => server);
    const given = fc.array(steps, { minLength: 5, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(given, fc.infiniteStream(fc.boolean()), async (taken, chance) => {
        const releases: (() => void | Promise<void>)[] = [];
        const harness = await open({ after: (release) => void releases.push(release) });
        const other = await harness.another?.();
        const queues = [harness.queue, other?.queue].filter((queue) => queue instanceof PostgresRelayQueue);
        assert.equal(queues.length, 2);
        const twice: QueueHarness = {
          ...harness,
          get queue() {
            return queues[chance.next().value ? 1 : 0] ?? harness.queue;
          },
          // Each has claimed what it wants of the mail that it took, and offers the rest.
          current: async () => {
            for (const queue of queues) await queue.offer();
            await harness.current?.();
          },
        };
        const model = new QueueModel(twice, { dueIsExact: false });
        try {
          for (const one of taken) await model.take(one);
          await model.compare();
        } finally {
          for (const release of releases.toReversed()) await release();
        }
      }),
      { numRuns: 30 },
    );
  });
});
