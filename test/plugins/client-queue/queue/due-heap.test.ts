import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Due, DueHeap, nowhere } from '../../../../plugins/client-queue/queue/due-heap.js';

test('the first of a heap is the earliest, whatever is put in, taken out and moved', () => {
  const steps = fc.array(fc.tuple(fc.integer({ min: 0, max: 19 }), fc.integer({ min: 0, max: 50 }), fc.boolean()));
  fc.assert(
    fc.property(steps, (given) => {
      const items = Array.from({ length: 20 }, (): Due => ({ due: 0, place: nowhere }));
      const heap = new DueHeap<Due>();
      const inside = new Set<Due>();
      for (const [index, due, moves] of given) {
        const item = items[index];
        if (item === undefined) continue;
        if (!inside.has(item)) {
          item.due = due;
          heap.add(item);
          inside.add(item);
        } else if (moves) {
          item.due = due;
          heap.moved(item);
        } else {
          heap.remove(item);
          inside.delete(item);
        }
        assert.equal(heap.size, inside.size);
        assert.equal(heap.first?.due ?? Infinity, Math.min(...[...inside].map((one) => one.due)));
      }
      for (const item of items) assert.equal(item.place >= 0, inside.has(item));
    }),
  );
});
