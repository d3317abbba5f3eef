import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { seeded } from '../chaos/disturbances.js';
import { suiteEnding } from '../support/ending.js';
import { activities } from './bystander.js';
import { kinds } from './kinds.js';
import { aimsMs, maxHoldMs, maxMegabytes, play } from './play.js';
import { failuresOf, sentenceOf } from './report.js';
import { prepareSite, type Site } from './victim.js';

const playedKinds = 5;
const seconds = 3;
/** A machine that does other things at the same time is so many times slower than it is in quiet, or than the aims want. */
const patience = 6;

/** `FLOODS_SEED=123 npm test -- floods` plays the same kinds again. */
const seed = Number(process.env['FLOODS_SEED'] ?? randomInt(2 ** 31));
const random = seeded(seed);
const chosen = kinds
  .map((kind) => ({ kind, place: random() }))
  .toSorted((a, b) => a.place - b.place)
  .slice(0, playedKinds)
  .map(({ kind }) => kind);

const suite = suiteEnding();
let site: Promise<Site> | undefined;

for (const kind of chosen) {
  test(`${kind.name}: a bystander can go on while the server is flooded (FLOODS_SEED=${seed})`, async () => {
    site ??= prepareSite(suite);
    const outcome = await play(await site, kind, { seconds, quietSeconds: 1, seed });
    const { rates, quiet, flooded, holdMs, megabytes, isAlive } = outcome;
    const report = [sentenceOf(outcome), ...failuresOf(outcome)].join('\n');
    assert.ok(isAlive, report);
    assert.notDeepEqual(rates, {}, report);
    for (const activity of activities) {
      const boundMs = patience * Math.max(aimsMs[activity], quiet[activity].percentile(0.99));
      assert.deepEqual(flooded[activity].failures, [], report);
      assert.ok(flooded[activity].percentile(0.99) <= boundMs, report);
    }
    assert.ok(holdMs <= patience * maxHoldMs, report);
    assert.ok(megabytes <= maxMegabytes, report);
  });
}
