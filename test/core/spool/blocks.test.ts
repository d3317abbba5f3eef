import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Blocks } from '../../../core/spool/spool-file.js';

const piece = fc.tuple(fc.integer({ min: 0, max: 5000 }), fc.integer({ min: 0, max: 255 }), fc.boolean());

/** A chunk that is alone in its memory, or a small part of a large one. */
function pieceOf([length, byte, alone]: readonly [number, number, boolean]): Buffer {
  const memory = Buffer.allocUnsafeSlow(alone ? length : length + 20_000);
  return memory.subarray(0, length).fill(byte);
}

test('bytes come out in the order in which they came in, whichever pieces were kept and whichever copied', () => {
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 40 }), (given) => {
      const blocks = new Blocks();
      const pieces = given.map(pieceOf);
      for (const one of pieces) blocks.add(one);
      const whole = Buffer.concat(pieces);
      assert.ok(Buffer.concat(blocks.all()).equals(whole));
      assert.ok(Buffer.concat([...blocks.takeFull(), ...blocks.takeAll()]).equals(whole));
      assert.deepEqual(blocks.all(), []);
    }),
  );
});

test('a small chunk does not keep its memory alive', () => {
  const blocks = new Blocks();
  const memory = Buffer.allocUnsafeSlow(64 * 1024);
  for (let at = 0; at < 2000; at += 1) blocks.add(memory.subarray(at, at + 1));
  assert.ok(blocks.all().every(({ buffer }) => buffer !== memory.buffer));
  assert.ok(blocks.all().length <= 2);
});
