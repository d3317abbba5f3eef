import { test } from 'node:test';
import fc from 'fast-check';
import { fileQueueFixture } from './queue-fixture.js';
import { QueueModel, restarts, steps } from './queue-model.js';

test('whatever happens to it, the queue holds what the plainest queue would hold', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.oneof({ weight: 25, arbitrary: steps }, { weight: 2, arbitrary: restarts }), {
        minLength: 5,
        maxLength: 40,
      }),
      async (steps) => {
        // Snapshots come often, so that every kind of record is read from both.
        const fixture = await fileQueueFixture(t, { journalBytes: 3000, segmentBytes: 64 * 1024, maxEntries: 1000 });
        const model = new QueueModel(fixture);
        for (const one of steps) await model.take(one);
        await model.compare();
        await model.take({ kind: 'crash' });
        await model.compare();
        await fixture.queue.close();
      },
    ),
    { numRuns: 30 },
  );
});
