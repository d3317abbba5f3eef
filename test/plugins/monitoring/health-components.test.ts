import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { HealthRegistry } from '../../../core/health-registry.js';
import type { HealthReport } from '../../../core/health.js';
import { DiskSpace, type Space } from '../../../plugins/monitoring/disk-space.js';
import { EventLoop } from '../../../plugins/monitoring/event-loop.js';
import { HealthChanges } from '../../../plugins/monitoring/health-report.js';

const MiB = 1024 * 1024;

test('free space decides between up, degraded and down, and a disk that cannot be measured is degraded', async () => {
  let measured: Space | Error = { free: 100 * MiB, size: 1000 * MiB };
  const measure = (): Promise<Space> =>
    measured instanceof Error ? Promise.reject(measured) : Promise.resolve(measured);
  const disk = new DiskSpace(measure, { degradedBelowBytes: 50 * MiB, downBelowBytes: 10 * MiB });
  const seen: string[] = [];
  for (const next of [
    measured,
    { free: 49 * MiB, size: 1 },
    { free: 9 * MiB, size: 1 },
    new Error('/data: gone'),
    { free: 50 * MiB, size: 1 },
  ]) {
    measured = next;
    await disk.look();
    seen.push(disk.report().status);
    assert.doesNotMatch(disk.report().why ?? '', /gone/);
  }
  assert.deepEqual(seen, ['up', 'degraded', 'down', 'degraded', 'up']);
});

test('a late event loop is degraded until it has been on time again', () => {
  let late = 20e6;
  let resets = 0;
  const delays = { percentile: () => late, reset: () => void (resets += 1), enable: () => true, disable: () => true };
  const loop = new EventLoop({ degradedAboveMs: 500 }, delays);
  loop.look();
  assert.deepEqual([loop.report().status, loop.lag], ['up', 0]);
  late = 1520e6;
  loop.look();
  assert.deepEqual(loop.report(), { status: 'degraded', why: 'The event loop was 1500 ms late in 1 of 100 turns.' });
  assert.equal(loop.lag, 1.5);
  late = 25e6;
  loop.look();
  assert.equal(loop.report().status, 'up');
  assert.equal(resets, 3);
});

test('every change of state is logged once', () => {
  const lines: string[] = [];
  const log = pino({ base: null, timestamp: false }, { write: (line: string) => void lines.push(line) });
  const health = new HealthRegistry({ clock: { now: () => 0, monotonic: () => 0 } });
  const changes = new HealthChanges(health, log);
  let report: HealthReport = { status: 'up' };
  health.check('a', 'disk', () => report);
  for (const next of ['up', 'degraded', 'degraded', 'down', 'up', 'up'] as const) {
    report = { status: next, why: 'because' };
    changes.look();
  }
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { status: string }).status),
    ['degraded', 'down', 'up'],
  );
});
