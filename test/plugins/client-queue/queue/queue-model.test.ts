import { test } from 'node:test';
import fc from 'fast-check';
import { fileQueueFixture } from './queue-fixture.js';
import { QueueModel, type Step } from './queue-model.js';

const which = fc.nat(50);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('accept' as const),
      destinations: fc.array(fc.nat(3), { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('abort' as const) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('claim' as const), limit: fc.integer({ min: 1, max: 8 }) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('settle' as const),
      which,
      fate: fc.constantFrom('delivered' as const, 'deferred' as const, 'bounced' as const, 'back' as const),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('mutate' as const),
      which,
      operation: fc.constantFrom('retry' as const, 'delete' as const, 'hold' as const, 'release' as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), seconds: fc.constantFrom(1, 299, 301) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constantFrom('crash' as const, 'reopen' as const, 'housekeep' as const) }),
  },
);

test('whatever happens to it, the queue holds what the plainest queue would hold', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      // Snapshots come often, so that every kind of record is read from both.
      const fixture = await fileQueueFixture(t, { journalBytes: 3000, segmentBytes: 64 * 1024, maxEntries: 1000 });
      const model = new QueueModel(fixture);
      for (const one of steps) await model.take(one);
      await model.compare();
      await model.take({ kind: 'crash' });
      await model.compare();
      await fixture.queue.close();
    }),
    { numRuns: 30 },
  );
});
