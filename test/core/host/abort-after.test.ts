import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { setTimeout as pause } from 'node:timers/promises';
import { abortAfter } from '../../../core/host/abort-after.js';

test('a signal aborts in time though nobody else holds its parts', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const other = new AbortController();
  const signals = Array.from({ length: 50 }, () => abortAfter(40, other.signal));
  for (let round = 0; round < 4; round += 1) {
    collect();
    await pause(5);
  }
  await pause(60);
  const late = signals.filter(({ aborted }) => !aborted).length;
  assert.equal(late, 0);
  assert.match(String(signals[0]?.reason), /TimeoutError/);
});

test('it aborts with the other one, and at once when that has aborted', () => {
  const other = new AbortController();
  const signal = abortAfter(60_000, other.signal);
  assert.equal(signal.aborted, false);
  other.abort(new Error('enough'));
  assert.match(String(signal.reason), /enough/);
  assert.equal(abortAfter(60_000, other.signal).aborted, true);
});
