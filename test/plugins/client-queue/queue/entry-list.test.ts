import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type EntrySort, entrySorts } from '../../../../core/contracts/relay-queue.js';
import { isProblem } from '../../../../core/problem.js';
import { PageSelection } from '../../../../plugins/client-queue/queue/entry-list.js';
import type { QueuedEntry } from '../../../../plugins/client-queue/queue/queued-entry.js';
import { acceptEntry } from '../../../../plugins/client-queue/queue/stored-entry.js';
import { newEntry } from '../../../kit/relay-queue/entries.js';

const fixture = { intern: (text: string) => text, reasonOf: () => '' };

/** Many have the same times: the uid decides. */
function entriesOf(numbers: readonly number[]): readonly QueuedEntry[] {
  return numbers.map((number, index) =>
    acceptEntry(
      {
        envelope: newEntry(1000 + number, { uid: `u${index}`, sender: `${'Aab'.charAt(number % 3)}@x`, size: number }),
        traceOffset: 0,
      },
      fixture,
    ),
  );
}

function page(entries: readonly QueuedEntry[], options: ConstructorParameters<typeof PageSelection>[0]) {
  const selection = new PageSelection(options);
  for (const entry of entries) selection.add(entry);
  return selection.result();
}

const numbers = fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 120 });
const sorts = fc.constantFrom(...entrySorts);
const orders = fc.constantFrom('asc' as const, 'desc' as const);

test('from page to page every entry is shown once, in order, forwards, backwards and by number', () => {
  fc.assert(
    fc.property(numbers, sorts, orders, fc.integer({ min: 1, max: 15 }), (given, sort, order, limit) => {
      const entries = entriesOf(given);
      const options = { filter: {}, sort, order, limit };
      const pages: (readonly string[])[] = [];
      let last = page(entries, options);
      for (;;) {
        assert.equal(last.total, entries.length);
        pages.push(last.items.map(({ uid }) => uid));
        assert.deepEqual(page(entries, { ...options, page: pages.length }).items, last.items);
        if (last.nextCursor === null) break;
        last = page(entries, { ...options, cursor: last.nextCursor });
      }
      const forwards = pages.flat();
      assert.equal(new Set(forwards).size, entries.length);
      assert.deepEqual(forwards, sorted(entries, sort, order));
      for (const expected of pages.slice(0, -1).toReversed()) {
        last = page(entries, { ...options, cursor: last.prevCursor ?? '' });
        assert.deepEqual(
          last.items.map(({ uid }) => uid),
          expected,
        );
      }
      assert.equal(last.prevCursor, null);
    }),
    { numRuns: 60 },
  );
});

function sorted(entries: readonly QueuedEntry[], sort: EntrySort, order: 'asc' | 'desc'): readonly string[] {
  const keyOf = (entry: QueuedEntry): number | string =>
    sort === 'sender' ? (entry.sender ?? '').toLowerCase() : (entry[sort] ?? Infinity);
  const compared = (one: number | string, other: number | string): number => (one < other ? -1 : one > other ? 1 : 0);
  const ascending = [...entries].sort(
    (one, other) => compared(keyOf(one), keyOf(other)) || compared(one.uid, other.uid),
  );
  return (order === 'asc' ? ascending : ascending.toReversed()).map(({ uid }) => uid);
}

test('of very many entries the page is the same as of few', () => {
  const entries = entriesOf(Array.from({ length: 9000 }, (_, n) => (n * 7919) % 9001));
  const options = { filter: {}, sort: 'size' as const, order: 'desc' as const, limit: 20 };
  assert.deepEqual(
    page(entries, options).items.map(({ size }) => size),
    [...entries]
      .map(({ size }) => size)
      .sort((a, b) => b - a)
      .slice(0, 20),
  );
});

test('a cursor for another order, or a forged one, is refused', () => {
  const entries = entriesOf([1, 2, 3]);
  const { nextCursor } = page(entries, { filter: {}, limit: 1, sort: 'size' });
  for (const [cursor, sort] of [
    [nextCursor ?? '', 'sender'],
    ['nonsense', 'size'],
    [Buffer.from('[1]').toString('base64url'), 'size'],
  ] as const) {
    assert.throws(
      () => page(entries, { filter: {}, limit: 1, sort, cursor }),
      (error) => isProblem(error) && error.problem === 'bad-request',
    );
  }
});
