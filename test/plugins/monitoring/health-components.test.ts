import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { pino } from 'pino';
import type { Clock } from '../../../core/clock.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import type { HealthReport } from '../../../core/contracts/health.js';
import { HealthRegistry } from '../../../core/host/health.js';
import {
  DiskSpace,
  EventLoop,
  SessionRoom,
  type Space,
  WriteProbe,
} from '../../../plugins/monitoring/system/probes.js';
import { HealthChanges, HookFailures } from '../../../plugins/monitoring/health.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const clockOf = (time: { now: number }): Clock => ({ now: () => time.now, monotonic: () => time.now });
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
  const why = 'The event loop was 1500 ms late in 1 of 100 turns.';
  assert.deepEqual(loop.report(), { status: 'degraded', why, figures: { delayMs: 1500 } });
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

test('a block is written durably and leaves nothing; a disk that refuses or is slow is degraded until it is well', async (t) => {
  const folder = await temporaryFolder(t);
  const time = { now: 0 };
  let trouble: 'none' | 'full' | 'slow' = 'none';
  const files: FileLayer = {
    ...nodeFiles,
    open: (...given) => {
      if (trouble === 'slow') time.now += 3000;
      if (trouble !== 'full') return nodeFiles.open(...given);
      return Promise.reject(Object.assign(new Error('no space'), { code: 'ENOSPC' }));
    },
  };
  const probe = new WriteProbe({ folder, clock: clockOf(time), files });
  assert.ok(Number.isNaN(probe.seconds));
  const seen: HealthReport[] = [];
  for (const next of ['none', 'full', 'slow', 'none'] as const) {
    trouble = next;
    await probe.look();
    seen.push(probe.report());
    assert.deepEqual(await readdir(folder), []);
  }
  assert.deepEqual(seen, [
    { status: 'up', figures: { writeMs: 0 } },
    { status: 'degraded', why: 'The data folder cannot be written (ENOSPC).', figures: {} },
    { status: 'degraded', why: 'It took 3.0 s to write one block to the disk.', figures: { writeMs: 3000 } },
    { status: 'up', figures: { writeMs: 0 } },
  ]);
  assert.equal(probe.seconds, 0);
});

test('failed hooks are reported for five minutes, even after registering again', () => {
  const time = { now: 0 };
  let failures = 0;
  const hook = {
    stage: 'rcptTo',
    phase: 'policy',
    plugin: 'greylist',
    mode: 'enforce',
    before: [],
    after: [],
    shadowed: 0,
    timeLimitMs: 1000,
    calls: 9,
  } as const;
  const watched = new HookFailures(() => [{ ...hook, failures }], clockOf(time));
  const look = (count: number, ms: number): string => {
    failures = count;
    time.now += ms;
    watched.look();
    return watched.report().why ?? '';
  };
  assert.equal(look(0, 0), '');
  assert.match(look(3, 10_000), /^Hooks failed 3 times .* of greylist at rcptTo:/);
  assert.match(look(1, 10_000), /^Hooks failed 4 times/);
  assert.match(look(1, 290_000), /^Hooks failed once/);
  assert.equal(look(1, 10_000), '');
});

test('sessions are degraded when nearly all that may be open are open, and a new limit is taken', () => {
  let open = 89;
  const configuration: { maxSessions?: number } = { maxSessions: 100 };
  const room = new SessionRoom(() => ({ open, total: 100 }), configuration);
  assert.equal(room.report().status, 'up');
  open = 90;
  assert.deepEqual(room.report(), {
    figures: { open: 90, total: 100, limit: 100 },
    status: 'degraded',
    why: '90 SMTP sessions are open; 100 may be, then clients are sent away.',
  });
  configuration.maxSessions = 1000;
  assert.equal(room.report().status, 'up');
  delete configuration.maxSessions;
  assert.equal(room.report().status, 'up');
});
