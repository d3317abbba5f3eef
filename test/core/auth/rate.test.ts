import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { AttemptLimiter } from '../../../core/auth/rate.js';
import { HandClock } from '../../support/hand-clock.js';

function limiterOf({ limit = 3, windowSeconds = 60, maxKeys = 100 } = {}) {
  const clock = new HandClock();
  return { clock, limiter: new AttemptLimiter({ limit, windowSeconds, maxKeys, clock }) };
}

describe('the attempt limiter', () => {
  test('lets an unknown key pass', () => {
    assert.equal(limiterOf().limiter.retryAfter('key'), 0);
  });

  test('makes a key wait once its attempts are used up, and no other key', () => {
    const { limiter } = limiterOf();
    limiter.record('key');
    limiter.record('key');
    assert.equal(limiter.retryAfter('key'), 0);
    limiter.record('key');
    assert.ok(limiter.retryAfter('key') >= 60);
    assert.equal(limiter.retryAfter('other'), 0);
  });

  test('lets a key pass after exactly the announced time', () => {
    const { clock, limiter } = limiterOf();
    for (let n = 0; n < 3; n++) limiter.record('key');
    const wait = limiter.retryAfter('key');
    clock.advance(wait - 1);
    assert.equal(limiter.retryAfter('key'), 1);
    clock.advance(1);
    assert.equal(limiter.retryAfter('key'), 0);
  });

  test('does not reset at a new window', () => {
    const { clock, limiter } = limiterOf({ limit: 10 });
    limiter.record('key');
    clock.advance(59);
    for (let n = 0; n < 9; n++) limiter.record('key');
    clock.advance(2);
    assert.ok(limiter.retryAfter('key') > 0);
  });

  test('forgets everything after two quiet windows', () => {
    const { clock, limiter } = limiterOf();
    for (let n = 0; n < 50; n++) limiter.record('key');
    clock.advance(120);
    assert.equal(limiter.retryAfter('key'), 0);
    limiter.record('other');
    assert.equal(limiter.size, 1);
  });

  test('reports once in each window that a key is over the limit', () => {
    const { clock, limiter } = limiterOf();
    const record = () => limiter.record('key');
    assert.deepEqual([record(), record(), record(), record()], [false, false, true, false]);
    clock.advance(59);
    assert.equal(record(), false);
    assert.equal(limiter.record('other'), false);
    clock.advance(1);
    assert.equal(record(), true);
    clock.advance(120);
    assert.deepEqual([record(), record(), record(), record()], [false, false, true, false]);
  });

  test('forgets a key after a success', () => {
    const { limiter } = limiterOf({ limit: 1 });
    limiter.record('key');
    assert.ok(limiter.retryAfter('key') > 0);
    limiter.forget('key');
    assert.equal(limiter.retryAfter('key'), 0);
  });

  test('bounds the number of keys and evicts the oldest', () => {
    const { limiter } = limiterOf({ limit: 1, maxKeys: 2 });
    limiter.record('one');
    limiter.record('two');
    limiter.record('one');
    limiter.record('three');
    assert.equal(limiter.size, 2);
    assert.equal(limiter.retryAfter('two'), 0);
    assert.ok(limiter.retryAfter('one') > 0);
    assert.ok(limiter.retryAfter('three') > 0);
  });

  test('what other servers have counted counts here, in its window and the next one', () => {
    const { clock, limiter } = limiterOf();
    clock.advance(1000);
    const window = clock.monotonic() - 10_000;
    limiter.merge('key', [
      { window, count: 1 },
      { window: window + 1500, count: 1 },
    ]);
    assert.equal(limiter.retryAfter('key'), 0);
    assert.equal(limiter.record('key'), true);
    assert.ok(limiter.retryAfter('key') > 0);
    clock.advance(60);
    assert.ok(limiter.retryAfter('key') > 0, 'the window before still has a share');
    clock.advance(60);
    assert.equal(limiter.retryAfter('key'), 0);
  });

  test('a later count of other servers takes the place of the one before', () => {
    const { clock, limiter } = limiterOf();
    const window = clock.monotonic();
    for (const count of [1, 2, 2, 2]) limiter.merge('key', [{ window, count }]);
    assert.equal(limiter.retryAfter('key'), 0);
    limiter.merge('key', [{ window, count: 3 }]);
    assert.ok(limiter.retryAfter('key') > 0);
    limiter.merge('key', []);
    assert.equal(limiter.retryAfter('key'), 0);
    limiter.merge('other', []);
    assert.equal(limiter.size, 1);
  });

  test('tells which keys were counted here since the last time, not what others have counted', () => {
    const { clock, limiter } = limiterOf();
    const began = clock.monotonic();
    limiter.record('one');
    assert.deepEqual(limiter.changes(10), [{ key: 'one', window: began, count: 1 }]);
    assert.deepEqual(limiter.changes(10), []);
    limiter.merge('three', [{ window: began, count: 2 }]);
    clock.advance(1);
    limiter.record('two');
    limiter.record('one');
    limiter.record('one');
    assert.deepEqual(limiter.changes(1), [{ key: 'two', window: began + 1000, count: 1 }]);
    limiter.forget('one');
    assert.deepEqual(limiter.changes(10), [{ key: 'one', window: began + 1000, count: 0 }]);
    for (let n = 0; n < 200; n += 1) limiter.record(`key ${n}`);
    assert.equal(limiter.changes(1000).length, 100);
  });

  test('two limiters that tell each other count as one', () => {
    const clock = new HandClock();
    const options = { limit: 5, windowSeconds: 60, maxKeys: 100, clock };
    const [one, other] = [new AttemptLimiter(options), new AttemptLimiter(options)];
    const tell = () => {
      for (const { key, ...counted } of one.changes(100)) other.merge(key, [counted]);
      for (const { key, ...counted } of other.changes(100)) one.merge(key, [counted]);
    };
    tell();
    for (const limiter of [one, one, other, other]) {
      limiter.record('key');
      tell();
      clock.advance(10);
    }
    assert.deepEqual([one.retryAfter('key'), other.retryAfter('key')], [0, 0]);
    one.record('key');
    tell();
    assert.ok(one.retryAfter('key') > 0);
    assert.equal(one.retryAfter('key'), other.retryAfter('key'));
    clock.advance(120);
    assert.deepEqual([one.retryAfter('key'), other.retryAfter('key')], [0, 0]);
  });

  test('never grants more than twice the limit in any window', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 8 }),
        fc.array(fc.integer({ min: 0, max: 40 }), { maxLength: 200 }),
        (limit, pauses) => {
          const { clock, limiter } = limiterOf({ limit });
          const granted: number[] = [];
          for (const pause of pauses) {
            clock.advance(pause);
            if (limiter.retryAfter('key') > 0) continue;
            limiter.record('key');
            granted.push(clock.monotonic());
          }
          for (const at of granted) {
            const within = granted.filter((other) => other >= at && other < at + 60_000);
            assert.ok(within.length <= 2 * limit);
          }
        },
      ),
    );
  });
});
