import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UniqueNames } from '../../../plugins/store/maildir/maildir-name.js';

const noon = Date.UTC(2026, 10, 21, 12);

test('a name tells time, process, count, chance, host and both sizes', () => {
  const names = new UniqueNames({ host: 'mail.example.org', pid: 42, clock: { now: () => noon, monotonic: () => 0 } });
  assert.match(names.next(5000), /^1795262400\.M0P42Q1R[0-9a-f]{32}\.mail\.example\.org,S=5000,W=5000$/);
  assert.match(names.next(7), /^1795262400\.M1P42Q2R[0-9a-f]{32}\.mail\.example\.org,S=7,W=7$/);
});

test('seconds and microseconds rise strictly although the clock goes back', () => {
  let now = noon + 0.5;
  const names = new UniqueNames({ host: 'h', clock: { now: () => (now -= 1000), monotonic: () => 0 } });
  const times = Array.from({ length: 2000 }, () => {
    const [, seconds, micros] = /^(\d+)\.M(\d+)P/.exec(names.next(1)) ?? [];
    return Number(seconds) * 1e6 + Number(micros);
  });
  times.reduce((before, time) => {
    assert.ok(time > before);
    return time;
  });
});

test('the host can break no name, and the longest name leaves room for flags', () => {
  const clock = { now: () => noon, monotonic: () => 0 };
  const odd = new UniqueNames({ host: 'a/b:c d\n..%', clock }).next(1);
  assert.match(odd, /\.a\\057b\\072cd\.\.,S=1,W=1$/);
  const long = new UniqueNames({ host: 'h'.repeat(500), clock }).next(Number.MAX_SAFE_INTEGER);
  assert.equal(Buffer.byteLength(long), 200);
  assert.match(long, new RegExp(`h,S=${Number.MAX_SAFE_INTEGER},W=${Number.MAX_SAFE_INTEGER}$`));
  assert.match(new UniqueNames({ host: '   ', clock }).next(1), /\.localhost,S=1,W=1$/);
});
