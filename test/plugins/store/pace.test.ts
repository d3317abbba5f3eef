import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { pacedMap, pacedSort } from '../../../plugins/store/pace.js';

test('a paced sort is a stable sort, and a paced map a map, for more than one stride too', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: 20_000 }), fc.integer({ min: 1, max: 1000 }), async (length, values) => {
      const items = Array.from({ length }, (_, at) => ({ at, key: (at * 7919) % values }));
      const byKey = (a: { readonly key: number }, b: { readonly key: number }): number => a.key - b.key;
      assert.deepEqual(await pacedSort(items, byKey), items.toSorted(byKey));
      assert.deepEqual(
        await pacedMap(items, ({ at }) => (at % 2 === 0 ? at : undefined)),
        items.map(({ at }) => at).filter((at) => at % 2 === 0),
      );
    }),
    { numRuns: 20 },
  );
});
