import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { CallCost } from '../../../core/spool/file-pool.js';

/** The calls advance the clock, in milliseconds. */
function costOf() {
  let now = 0;
  const cost = new CallCost(() => now);
  const take = (micros: number, times = 1): void => {
    for (let time = 0; time < times; time += 1) cost.measure(() => (now += micros / 1000));
  };
  return { cost, take };
}

suite('cost of a blocking call', () => {
  test('is slow after a series of slow calls, and fast after a series of fast ones', () => {
    const { cost, take } = costOf();
    assert.equal(cost.isSlow(), false);
    take(30, 100);
    assert.equal(cost.isSlow(), false);
    take(200, 100);
    assert.equal(cost.isSlow(), true);
    take(30, 100);
    assert.equal(cost.isSlow(), false);
  });

  test('a few preempted calls change nothing', () => {
    const { cost, take } = costOf();
    for (let round = 0; round < 100; round += 1) {
      take(30, 9);
      take(20_000);
      assert.equal(cost.isSlow(), false);
    }
  });

  test('while it is slow, one call in 64 blocks all the same', () => {
    const { cost, take } = costOf();
    take(200, 200);
    const answers = Array.from({ length: 640 }, () => cost.isSlow());
    assert.equal(answers.filter((dear) => !dear).length, 10);
  });

  test('a call that throws counts too, and throws', () => {
    const { cost } = costOf();
    assert.throws(() => cost.measure(() => assert.fail('no room')), /no room/);
  });
});
