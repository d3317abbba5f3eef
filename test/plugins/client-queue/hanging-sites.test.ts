import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import { undividedShares } from '../../../core/contracts/cluster.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import { Scheduler } from '../../../plugins/client-queue/delivery/scheduler.js';
import type { AttemptResult, RunningAttempt } from '../../../plugins/client-queue/delivery/attempt-result.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { HandClock } from '../../support/hand-clock.js';
import { newEntry } from '../../kit/relay-queue/entries.js';

/** A scheduler beside a queue with work for any number of sites, each a destination of its own. */
function crowd(maxConnections: number) {
  const clock = new HandClock();
  const settings = { ...ClientQueueOptions.parse({}), maxConnections };
  const waiting = new Map<string, number>();
  const began: {
    readonly site: string;
    readonly attempt: RunningAttempt;
    readonly end: (how: AttemptResult) => void;
  }[] = [];
  let token = 0;
  let due = (): void => undefined;
  const scheduler = new Scheduler({
    queue: {
      claim: ({ limit, sites }) => {
        const leases: Lease[] = [];
        for (const [site, count] of waiting) {
          const room = Math.min(count, sites?.room(site) ?? 0, limit - leases.length);
          for (let nth = 0; nth < room; nth += 1) {
            const entry = newEntry(0);
            leases.push({
              uid: entry.uid,
              recipients: [],
              destination: site,
              entry,
              token: (token += 1),
              manual: false,
            });
          }
          if (room > 0) waiting.set(site, count - room);
        }
        return Promise.resolve(leases);
      },
      nextDue: () => null,
      onDue: (listener) => {
        due = listener;
        return () => undefined;
      },
    },
    controls: { get: () => undefined, onChange: () => () => undefined },
    shares: undividedShares,
    sites: { of: (name) => name, onFound: () => () => undefined },
    settings: () => settings,
    clock,
    log: rememberingLog().log,
    attempt: (attempt) =>
      new Promise((resolve) => {
        const one = { site: attempt.lease.destination, attempt, end: resolve };
        began.push(one);
        attempt.cut = () => {
          if (undying.has(one.site)) return false;
          running.delete(one);
          resolve(stalled);
          return true;
        };
        running.add(one);
      }),
    trim: () => undefined,
    settle: () => Promise.resolve(),
  });
  const running = new Set<(typeof began)[number]>();
  /** The server may have the message. */
  const undying = new Set<string>();
  scheduler.start();
  return {
    clock,
    scheduler,
    began,
    running,
    undying,
    /** Has work for these sites from now on. */
    queue: (sites: readonly string[], count: number) => {
      for (const site of sites) waiting.set(site, count);
    },
    /** Time passes, and the queue is looked at. */
    pass: async (seconds: number) => {
      clock.advance(seconds);
      due();
      for (let turn = 0; turn < 20; turn += 1) await setImmediate();
    },
    /** Everything that runs at the site ends so. */
    end: async (site: string, how: AttemptResult) => {
      for (const one of running) {
        if (one.site !== site) continue;
        running.delete(one);
        one.end(how);
      }
      for (let turn = 0; turn < 20; turn += 1) await setImmediate();
    },
    at: (site: string) => [...running].filter((one) => one.site === site).length,
  };
}

const sitesOf = (name: string, count: number) => Array.from({ length: count }, (_, nth) => `${name}${nth}.example`);
const verdict = { code: 250, status: '2.0.0', text: '', host: null, retryAfter: null, category: '' };
const nobody = { at: 0, ms: 1, host: null, tls: null, tellsDsn: false, lost: false, servers: 'answered' } as const;
const answered: AttemptResult = { ...nobody, verdicts: new Map([[0, { ...verdict, action: 'deliver' }]]) };
const deferred: AttemptResult = { ...nobody, verdicts: new Map([[0, { ...verdict, action: 'defer', code: 451 }]]) };
const stalled: AttemptResult = { ...deferred, servers: 'stalled' };

describe('sites that hang', () => {
  test('leave a quarter of the connections to others, however many they are', async () => {
    const { running, queue, pass } = crowd(40);
    queue(sitesOf('bad', 200), 20);
    for (let second = 0; second < 10; second += 1) {
      await pass(1);
      assert.ok(running.size <= 30, `${running.size} after ${second + 1} s`);
    }
  });

  test('let a site that nobody has tried yet have its turn soon, and it then has all it needs', async () => {
    const { queue, pass, end, at } = crowd(40);
    queue(sitesOf('bad', 200), 20);
    for (let second = 0; second < 60; second += 1) await pass(1);
    queue(['good.example'], 10_000);
    let seconds = 0;
    for (; at('good.example') === 0 && seconds < 100; seconds += 1) await pass(1);
    assert.ok(seconds <= 2, `a connection after ${seconds} s`);
    for (let turn = 0; turn < 30; turn += 1) await end('good.example', answered);
    assert.ok(at('good.example') >= 5, `${at('good.example')} connections`);
  });

  test('are reported as hanging although the queue has nothing else to do', async () => {
    const { clock, queue, pass, scheduler } = crowd(40);
    queue(['bad.example'], 3);
    await pass(0);
    assert.equal(scheduler.pace('bad.example')?.hanging, false);
    clock.advance(4);
    assert.equal(scheduler.pace('bad.example')?.hanging, true);
  });

  test('that got everything before lose it as soon as nothing gets through, also what was fetched ahead', async () => {
    const { queue, pass, end, at, scheduler } = crowd(40);
    queue(['once.example', 'good.example'], 1000);
    await pass(0);
    for (let turn = 0; turn < 40; turn += 1) await end('once.example', answered);
    assert.equal(at('once.example'), 20);
    for (let second = 0; second < 5; second += 1) {
      await pass(1);
      await end('good.example', answered);
    }
    const { busy = 0, hanging } = scheduler.pace('once.example') ?? {};
    assert.deepEqual([busy <= 20, hanging], [true, true]);
    await end('once.example', answered);
    await pass(0);
    assert.equal(scheduler.pace('once.example')?.hanging, false, 'one message is enough');
  });

  test('are broken off only while others need the connections, the oldest first, and not when the server may have the message', async () => {
    const { queue, pass, undying, running, began } = crowd(40);
    queue(sitesOf('bad', 30), 1);
    undying.add('bad0.example');
    for (let second = 0; second < 60; second += 1) await pass(1);
    const [first] = began;
    assert.equal(first?.site, 'bad0.example');
    const before = began.length;
    assert.equal(running.size, before, 'none is broken off');
    queue(sitesOf('other', 40), 1);
    for (let second = 0; second < 3; second += 1) await pass(1);
    assert.ok(running.size < began.length);
    assert.ok(running.has(first));
  });
});

test('attempts by which nothing gets through do not take the work of a site where mail does', async () => {
  const { queue, pass, end, began } = crowd(40);
  queue(['good.example'], 10_000);
  await pass(0);
  await end('good.example', answered);
  const bad = sitesOf('bad', 60);
  queue(bad, 1000);
  for (let tick = 0; tick < 40; tick += 1) {
    await pass(0.25);
    for (const site of bad) await end(site, deferred);
    await end('good.example', answered);
  }
  const failed = began.filter(({ site }) => site.startsWith('bad')).length;
  assert.ok(failed >= 300 && failed <= 700, `${failed} in ten seconds`);
});
