import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { AttemptLimiter, ConcurrentAttempts } from '../../../core/auth/rate.js';
import { HandClock } from '../../support/hand-clock.js';

/** A line whose attempts end as the test says. */
function lineOf(limit: number) {
  const clock = new HandClock();
  const limiter = new AttemptLimiter({ limit, windowSeconds: 60, maxKeys: 10, clock });
  const line = new ConcurrentAttempts(() => limiter);
  const ends: ((isRight: boolean) => void)[] = [];
  const made: (boolean | undefined)[] = [];
  const make = async (key = 'key'): Promise<void> => {
    const outcome = await line.run(key, async () => {
      const isRight = await new Promise<boolean>((resolve) => ends.push(resolve));
      if (!isRight) limiter.record(key);
      return isRight;
    });
    made.push(outcome);
  };
  const end = async (isRight: boolean): Promise<void> => {
    ends.shift()?.(isRight);
    await new Promise(setImmediate);
  };
  return { clock, line, make, end, ends, made };
}

describe('concurrent attempts', () => {
  it('runs no more at once than may fail, and none after these failed', async () => {
    const { make, end, ends, made } = lineOf(3);
    const all = Promise.all(Array.from({ length: 10 }, () => make()));
    assert.equal(ends.length, 3);
    await end(false);
    await end(false);
    assert.equal(ends.length, 1);
    await end(false);
    await all;
    assert.deepEqual(made, [...Array<boolean>(3).fill(false), ...Array<undefined>(7).fill(undefined)]);
  });

  it('runs the next one after a success', async () => {
    const { make, end, ends, made } = lineOf(2);
    const all = Promise.all(Array.from({ length: 4 }, () => make()));
    assert.equal(ends.length, 2);
    await end(true);
    assert.equal(ends.length, 2);
    await end(false);
    assert.equal(ends.length, 1);
    await end(true);
    await end(true);
    await all;
    assert.deepEqual(made, [true, false, true, true]);
  });

  it('does not let keys wait for each other', async () => {
    const { make, end, ends } = lineOf(1);
    const all = Promise.all([make(), make(), make('other')]);
    assert.equal(ends.length, 2);
    for (const _ of [1, 2, 3]) await end(true);
    await all;
  });

  it('runs the next one after one without a result', async () => {
    const { line, make, end, made } = lineOf(1);
    const broken = line.run('key', () => Promise.reject(new Error('busy')));
    const behind = make();
    await assert.rejects(broken, /busy/);
    await new Promise(setImmediate);
    await end(true);
    await behind;
    assert.deepEqual(made, [true]);
  });

  it('runs again after the waiting time', async () => {
    const { clock, make, end, made } = lineOf(1);
    const wrong = make();
    await end(false);
    await wrong;
    await make();
    clock.advance(120);
    const right = make();
    await end(true);
    await right;
    assert.deepEqual(made, [false, undefined, true]);
  });
});
