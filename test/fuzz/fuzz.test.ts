import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { fuzzGround } from './grounds.js';
import { readSeeds } from './seeds.js';
import { attempt } from './trial.js';

const suite = suiteEnding();

describe('what is fed at random', () => {
  const { targets, start } = fuzzGround(suite);
  before(start);

  test('and has failed once, does not fail again', async () => {
    for (const { target: name, seed, path, why } of await readSeeds()) {
      const target = targets.find((one) => one.name === name);
      assert.ok(target !== undefined, `there is no target ${name}`);
      const { failure } = await attempt(target, { seed, path, runs: target.quickRuns });
      assert.equal(failure?.report, undefined, `${why}: ${failure?.report}`);
    }
  });

  for (const target of targets) {
    test(`${target.name} holds`, async (t) => {
      const seed = randomInt(2 ** 31);
      const { failure, hold } = await attempt(target, { seed, runs: target.quickRuns });
      t.diagnostic(`seed ${seed}, event loop held for ${Math.round(hold.ms)} ms at most, in run ${hold.run}`);
      assert.equal(failure, undefined, failure?.report);
    });
  }
});
