import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { repeat, systemTimers } from '../../core/clock.js';
import { until } from '../support/until.js';
import { recordingLog, type LogLine } from './smtp/server/test-engine.js';

const timers = systemTimers;

test('a task runs again and again, never two at once, and what it throws is logged', async () => {
  const lines: LogLine[] = [];
  let runs = 0;
  let atOnce = 0;
  let most = 0;
  const stop = repeat(
    0.001,
    async () => {
      most = Math.max(most, (atOnce += 1));
      await pause(5);
      atOnce -= 1;
      runs += 1;
      if (runs === 2) throw new Error('once');
    },
    { timers, log: recordingLog(lines) },
  );
  await until('four runs', () => (runs >= 4 ? true : undefined));
  stop();
  await pause(10);
  const then = runs;
  await pause(20);
  assert.deepEqual([most, runs - then], [1, 0]);
  assert.deepEqual(
    lines.map(({ message }) => message),
    ['a timed task failed'],
  );
});

test('an interval longer than a timer allows does not fire at once', async () => {
  let runs = 0;
  const stop = repeat(90 * 86_400, () => void (runs += 1), { timers, log: recordingLog([]) });
  await pause(20);
  stop();
  assert.equal(runs, 0);
});

test('a timer does not keep the process alive', () => {
  const module = new URL('../../core/clock.js', import.meta.url).href;
  const script = `const { systemTimers } = await import('${module}'); systemTimers.after(60_000, () => undefined);`;
  const { status } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], { timeout: 20_000 });
  assert.equal(status, 0);
});
