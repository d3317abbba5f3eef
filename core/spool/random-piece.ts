import { randomFillSync } from 'node:crypto';

/** Drawn at once, for each draw costs more than the bytes do. */
let pool = Buffer.alloc(0);
let used = 0;

/** So many random bytes, never given to anybody else. */
export function randomPiece(length: number): Buffer {
  if (used + length > pool.length) {
    pool = randomFillSync(Buffer.allocUnsafeSlow(Math.max(4096, length)));
    used = 0;
  }
  used += length;
  return pool.subarray(used - length, used);
}
