import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RetrySchedule } from '../../../plugins/client-queue/delivery/retry-schedule.js';

const settings = { firstSeconds: 300, factor: 2, maxSeconds: 14_400, jitter: 0.2 };
const exact = new RetrySchedule(settings, () => 0);
const seconds = (attempts: number, retryAfter?: number): number => exact.pause(attempts, retryAfter) / 1000;

test('pauses grow up to the longest', () => {
  assert.deepEqual(
    [1, 2, 3, 4, 5, 6, 7, 8, 1000].map((attempts) => seconds(attempts)),
    [300, 600, 1200, 2400, 4800, 9600, 14_400, 14_400, 14_400],
  );
});

test('chance moves a pause by its share and no further, to both sides', () => {
  const pauses = Array.from({ length: 500 }, () => new RetrySchedule(settings).pause(1) / 1000);
  assert.ok(Math.min(...pauses) >= 240 && Math.max(...pauses) <= 360);
  assert.ok(pauses.some((one) => one < 290) && pauses.some((one) => one > 310));
});

test('a short pause of a reply rule counts three times, a longer one always', () => {
  assert.deepEqual(
    [1, 2, 3, 4].map((attempts) => seconds(attempts, 60)),
    [60, 60, 60, 2400],
  );
  assert.equal(seconds(9, 14_000), 14_400);
  assert.equal(seconds(1, 90_000), 14_400);
});

test('the last try is when the time is over, and then it is given up', () => {
  const about = { attempts: 5, expiresAt: 1_000_000 };
  assert.equal(exact.next({ ...about, now: 990_000 }), 1_000_000);
  assert.equal(exact.next({ ...about, now: 1_000_000 }), undefined);
});

test('a clock that jumped does not give up a mail that was hardly tried', () => {
  const year = 365 * 86_400_000;
  assert.equal(exact.next({ now: year, attempts: 1, expiresAt: 1000 }), year + 300_000);
  assert.equal(exact.next({ now: year, attempts: 2, expiresAt: 1000 }), undefined);
});
