import { randomFillSync } from 'node:crypto';
import { systemClock } from '../clock.js';

/** Digits and lower case letters without i, l, o, u: safe in URLs and file names, and in ASCII order. */
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';
const counterRange = 32 ** 3;

let lastTime = 0;
let lastTimeDigits = '';
let counter = 0;

function digits(value: number, length: number): string {
  let text = '';
  let rest = value;
  for (let n = 0; n < length; n++) {
    text = alphabet.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

function random(length: number): string {
  let text = '';
  for (const byte of randomBytes(length)) text += alphabet.charAt(byte & 31);
  return text;
}

/**
 * 20 characters `[0-9a-z]`: milliseconds (10), a counter (3), random (7). Ids of a process increase even when the clock
 * goes back; the random part separates those of two processes.
 */
export function uniqueId(): string {
  const now = systemClock.now();
  if (now > lastTime) {
    turnTo(now);
  } else if (++counter === counterRange) {
    turnTo(lastTime + 1);
  }
  return lastTimeDigits + digits(counter, 3) + random(7);
}

function turnTo(time: number): void {
  lastTime = time;
  lastTimeDigits = digits(time, 10);
  counter = 0;
}

export const uniqueIdPattern: RegExp = /^[0-9a-hjkmnp-tv-z]{20}$/;

/** Filled in blocks, since each draw costs more than its bytes. */
let pool = Buffer.alloc(0);
let used = 0;

/** Random bytes that are used only once. */
export function randomBytes(length: number): Buffer {
  if (used + length > pool.length) {
    pool = randomFillSync(Buffer.allocUnsafeSlow(Math.max(4096, length)));
    used = 0;
  }
  used += length;
  return pool.subarray(used - length, used);
}
