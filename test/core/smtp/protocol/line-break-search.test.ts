import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { LineBreakSearch } from '../../../../core/smtp/server/dot-decoder.js';

/** Mostly long runs of text, as mail has them, with what needs a closer look in between, and bytes that look like it. */
const piece = fc.oneof(
  fc.integer({ min: 0, max: 120 }).map((length) => Buffer.alloc(length, 'x')),
  fc.constantFrom('\r\n', '\r', '\n', '\0', '\t', '.', '\u000e').map((text) => Buffer.from(text)),
  fc.uint8Array({ maxLength: 12 }).map((bytes) => Buffer.from(bytes)),
);

test('every CR, LF and NUL is found, in order, at any place, and no other byte', () => {
  const search = new LineBreakSearch();
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), fc.integer({ min: 0, max: 8 }), (pieces, cut) => {
      // Somewhere in a larger memory, as what comes from a socket may be.
      const chunk = Buffer.concat(pieces).subarray(cut);
      search.begin(chunk);
      const found: number[] = [];
      for (let at = search.next(0); at < chunk.length; at = search.next(at + 1)) found.push(at);
      assert.deepEqual(
        found.filter((at) => (chunk[at] ?? 14) > 13),
        [],
      );
      const isBreak = (at: number) => [0, 10, 13].includes(chunk[at] ?? -1);
      assert.deepEqual(found.filter(isBreak), [...chunk.keys()].filter(isBreak));
    }),
    { numRuns: 500 },
  );
});
