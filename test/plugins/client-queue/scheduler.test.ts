import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { ClaimOptions, Lease } from '../../../core/contracts/relay-queue-store.js';
import { type SiteShares, undividedShares } from '../../../core/contracts/cluster.js';
import type { RecordedControl } from '../../../plugins/client-queue/delivery/destination-controls.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import { Scheduler } from '../../../plugins/client-queue/delivery/scheduler.js';
import { SitePace } from '../../../plugins/client-queue/delivery/site-pace.js';
import type { AttemptResult } from '../../../plugins/client-queue/delivery/attempt-result.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { HandClock } from '../../support/hand-clock.js';
import { newEntry } from '../../kit/relay-queue/entries.js';

const nothing: RecordedControl = {
  destination: 'site:mx',
  suspendedUntil: null,
  reason: null,
  maxConnections: null,
  ratePerMinute: null,
  by: null,
  at: 0,
};

interface Wishes {
  readonly leases: readonly Lease[];
  readonly shares?: SiteShares;
  readonly attempt?: (lease: Lease) => Promise<AttemptResult>;
}

/** A scheduler whose queue gives these leases at the first claim; all are of one site. */
function scheduled({
  leases,
  shares = undividedShares,
  attempt = () => Promise.reject(new Error('nobody tries it')),
}: Wishes) {
  const clock = new HandClock();
  const settings = ClientQueueOptions.parse({});
  const controls = new Map<string, RecordedControl>();
  const asked: ClaimOptions[] = [];
  const settled: { readonly uid: string; readonly verdicts: number }[] = [];
  let changed: (key: string) => void = () => undefined;
  let give = (): void => undefined;
  const scheduler = new Scheduler({
    queue: {
      claim: (options) => {
        asked.push(options);
        return asked.length > 1 ? Promise.resolve([]) : new Promise((given) => (give = () => given(leases)));
      },
      nextDue: () => null,
      onDue: () => () => undefined,
    },
    controls: {
      get: (key) => controls.get(key),
      onChange: (listener) => {
        changed = listener;
        return () => undefined;
      },
    },
    shares,
    sites: { of: () => 'site:mx', onFound: () => () => undefined },
    settings: () => settings,
    clock,
    log: rememberingLog().log,
    attempt: ({ lease }) => attempt(lease),
    trim: () => undefined,
    settle: ({ uid }, { verdicts }) => {
      settled.push({ uid, verdicts: verdicts.size });
      return Promise.resolve();
    },
  });
  scheduler.start();
  return {
    scheduler,
    clock,
    asked,
    settled,
    give: async () => {
      give();
      await setImmediate();
    },
    control: (control: Partial<RecordedControl> | undefined, key = 'site:mx') => {
      if (control === undefined) controls.delete(key);
      else controls.set(key, { ...nothing, ...control });
      changed(key);
    },
  };
}

function leasesOf(count: number): readonly Lease[] {
  return Array.from({ length: count }, (_, token) => {
    const entry = newEntry(0);
    return { uid: entry.uid, recipients: [], destination: 'one.example', entry, token, manual: false };
  });
}

const answered: AttemptResult = {
  at: 0,
  ms: 1,
  verdicts: new Map([
    [0, { action: 'deliver', code: 250, status: '2.0.0', text: '', host: null, retryAfter: null, category: '' }],
  ]),
  host: null,
  tls: null,
  tellsDsn: false,
  lost: false,
  servers: 'answered',
};

test('what was fetched while its site was suspended is returned, and not tried', async () => {
  const leases = leasesOf(1);
  const { asked, settled, give, control } = scheduled({ leases });
  assert.equal(asked[0]?.sites?.room('site:mx'), 5);
  control({ suspendedUntil: Infinity });
  await give();
  assert.deepEqual(settled, [{ uid: leases[0]?.uid, verdicts: 0 }]);
});

for (const [title, limit] of [
  ['is suspended', { suspendedUntil: Infinity }],
  ['may have no connection any more', { maxConnections: 0 }],
] as const) {
  test(`what waits for a connection is returned when its site ${title}`, async () => {
    const { settled, give, control } = scheduled({ leases: leasesOf(7), attempt: () => new Promise(() => undefined) });
    await give();
    assert.deepEqual(settled, []);
    control(limit);
    await setImmediate();
    assert.deepEqual(
      settled.map(({ verdicts }) => verdicts),
      [0, 0],
    );
  });
}

test('a lease that waited long for a connection is returned', async () => {
  const began: string[] = [];
  const ends: (() => void)[] = [];
  const leases = leasesOf(7);
  const { scheduler, clock, settled, give } = scheduled({
    leases,
    attempt: ({ uid }) => {
      began.push(uid);
      return new Promise((resolve) => ends.push(() => resolve(answered)));
    },
  });
  await give();
  clock.advance(299);
  scheduler.returnOverdue();
  ends[0]?.();
  await setImmediate();
  assert.equal(began.length, 7, 'five, and two more when one has ended');
  clock.advance(1);
  scheduler.returnOverdue();
  assert.deepEqual(
    settled.map(({ verdicts }) => verdicts),
    [1],
  );
});

test('an attempt that ends late begins none whose lease would not last', async () => {
  const ends: (() => void)[] = [];
  const { clock, settled, give } = scheduled({
    leases: leasesOf(7),
    attempt: () => new Promise((resolve) => ends.push(() => resolve(answered))),
  });
  await give();
  clock.advance(300);
  ends[0]?.();
  await setImmediate();
  assert.equal(ends.length, 5);
  assert.deepEqual(
    settled.map(({ verdicts }) => verdicts),
    [0, 0, 1],
  );
});

test('a fast site is claimed for when half of what was fetched ahead is used, and not after each message', async () => {
  const ends: (() => void)[] = [];
  const { clock, asked, settled, give } = scheduled({
    leases: leasesOf(300),
    attempt: () => new Promise((resolve) => ends.push(() => resolve(answered))),
  });
  await give();
  const endUntil = async (count: number): Promise<void> => {
    while (settled.length < count) {
      ends.shift()?.();
      await setImmediate();
    }
  };
  await endUntil(199);
  // 200 in a second: 20 are fetched ahead of 20 connections.
  clock.advance(1);
  await endUntil(200);
  const before = asked.length;
  await endUntil(269);
  assert.equal(asked.length, before);
  await endUntil(270);
  assert.equal(asked.length, before + 1);
  assert.equal(asked.at(-1)?.sites?.room('site:mx'), 10);
});

test('sites that could not be reached are forgotten in time', () => {
  const clock = new HandClock();
  const pace = new SitePace(clock);
  const [lease] = leasesOf(1);
  assert.ok(lease !== undefined);
  const limits = { maxConnections: 20, ratePerMinute: undefined, suspended: false };
  pace.fetched(lease, limits);
  const attempt = pace.next(limits);
  assert.ok(attempt !== undefined);
  pace.ended(attempt, 'unreachable');
  clock.advance(61);
  assert.deepEqual([pace.recovering, pace.isStale()], [true, false]);
  clock.advance(3600);
  assert.equal(pace.isStale(), true);
});

test('a site gets no more than the share of this server, which learns what is used and wanted', async () => {
  let most = 0;
  let changed: (site: string) => void = () => undefined;
  const uses: { readonly running: number; readonly waiting: boolean; readonly idleMs: number }[] = [];
  const shares: SiteShares = {
    of: (_, limits) => ({ ...limits, maxConnections: Math.min(most, limits.maxConnections) }),
    use: (site, { maxConnections }, use) => {
      assert.deepEqual([site, maxConnections], ['site:mx', 20]);
      uses.push(use);
    },
    onChange: (listener) => {
      changed = listener;
      return () => undefined;
    },
  };
  const ends: (() => void)[] = [];
  const attempt = () => new Promise<AttemptResult>((resolve) => ends.push(() => resolve(answered)));
  const { asked, give } = scheduled({ leases: leasesOf(3), shares, attempt });
  assert.equal(asked[0]?.sites?.room('site:mx'), 0);
  const idleMs = 5000;
  assert.deepEqual(uses, [{ running: 0, waiting: true, idleMs }]);
  most = 1;
  await give();
  assert.equal(ends.length, 1);
  assert.deepEqual(uses.at(-1), { running: 1, waiting: true, idleMs });
  most = 3;
  changed('site:mx');
  assert.equal(ends.length, 3);
  assert.deepEqual(uses.at(-1), { running: 3, waiting: false, idleMs });
  for (const end of ends) end();
  await setImmediate();
  assert.deepEqual(uses.at(-1), { running: 0, waiting: false, idleMs });
});

test('the end of what began under the limit of a destination is reported, also when that was cleared meanwhile', async () => {
  const running = new Map<string, number>();
  const shares: SiteShares = { ...undividedShares, use: (name, _, use) => void running.set(name, use.running) };
  let end = (): void => undefined;
  const attempt = () => new Promise<AttemptResult>((resolve) => (end = () => resolve(answered)));
  const { give, control } = scheduled({ leases: leasesOf(1), shares, attempt });
  control({ maxConnections: 1 }, 'one.example');
  await give();
  assert.equal(running.get('one.example'), 1);
  control(undefined, 'one.example');
  end();
  await setImmediate();
  assert.equal(running.get('one.example'), 0);
});
