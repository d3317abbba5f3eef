import assert from 'node:assert/strict';
import { test } from 'node:test';
import { killAt, straceMissing } from './kill-point.js';
import { killAtRandom } from './random-kills.js';

/** A short way through `npm run crash`. With CI set a missing strace is a failure. */
const missing = process.env['CI'] === undefined ? straceMissing() : undefined;
const points = {
  file: [
    ['fsync', 9],
    ['link', 5],
    ['rename', 4],
    ['write', 12, 'main'],
  ],
  log: [
    ['fdatasync', 3],
    ['writev', 4],
    ['link', 5],
    ['rename', 4],
    ['write', 12, 'main'],
  ],
} as const;

for (const durability of ['file', 'log'] as const) {
  for (const [call, nth, by = 'any'] of points[durability]) {
    test(`a kill at ${call} ${nth} loses and doubles nothing (${durability})`, { skip: missing ?? false }, async () => {
      assert.equal(await killAt({ durability, call, nth, by }), true, 'the point was reached');
    });
  }
}

test('what got a 250 is there once, however often a server with a commit log is killed', async (t) => {
  const { sent, acknowledged, lost, doubled } = await killAtRandom('log', 2);
  assert.deepEqual({ lost, doubled }, { lost: [], doubled: [] });
  assert.ok(acknowledged >= 2);
  t.diagnostic(`${acknowledged} of ${sent} messages got a 250`);
});
