import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { LineBreakSearch } from '../../../core/smtp/line-break-search.js';

/** Mostly long runs of text, as mail has them, with what needs a closer look in between. */
const piece = fc.oneof(
  fc.integer({ min: 0, max: 120 }).map((length) => Buffer.alloc(length, 'x')),
  fc.constantFrom('\r\n', '\r', '\n', '\0', '\t', '.').map((text) => Buffer.from(text)),
);

test('every CR, LF and NUL is found, in order, wherever it stands', () => {
  const search = new LineBreakSearch();
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
      const chunk = Buffer.concat(pieces);
      search.begin(chunk);
      const found: number[] = [];
      for (let at = search.next(0); at < chunk.length; at = search.next(at + 1)) {
        if (chunk[at] !== 9) found.push(at);
      }
      const expected = [...chunk.keys()].filter((at) => [0, 10, 13].includes(chunk[at] ?? -1));
      assert.deepEqual(found, expected);
    }),
  );
});
