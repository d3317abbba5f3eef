import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ClaimOptions, Lease } from '../../../core/contracts/queue-lease.js';
import type { RecordedControl } from '../../../plugins/client-queue/destination-controls.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import { Scheduler } from '../../../plugins/client-queue/scheduler.js';
import { rememberingLog } from '../../core/disk/remembering-log.js';
import { HandClock } from '../../support/hand-clock.js';
import { newEntry } from '../../support/queue-entries.js';

const suspended: RecordedControl = {
  destination: 'site:mx',
  suspendedUntil: Infinity,
  reason: null,
  maxConnections: null,
  ratePerMinute: null,
  by: null,
  at: 0,
};

test('what was fetched while its site was suspended is given back, and not tried', async () => {
  const clock = new HandClock();
  const entry = newEntry(clock.now());
  const lease: Lease = { uid: entry.uid, recipients: [], destination: 'one.example', entry, token: 1, manual: false };
  const settings = ClientQueueOptions.parse({});
  const controls = new Map<string, RecordedControl>();
  let give: (leases: readonly Lease[]) => void = () => undefined;
  const asked: ClaimOptions[] = [];
  const settled: number[] = [];
  const done = new Promise<void>((resolve) => {
    const scheduler = new Scheduler({
      queue: {
        claim: (options) => {
          asked.push(options);
          return asked.length > 1 ? Promise.resolve([]) : new Promise((given) => (give = given));
        },
        nextDue: () => null,
        onDue: () => () => undefined,
      },
      controls: { get: (key) => controls.get(key), onChange: () => () => undefined },
      sites: { of: () => 'site:mx', onFound: () => () => undefined },
      settings: () => settings,
      clock,
      log: rememberingLog().log,
      attempt: () => Promise.reject(new Error('nobody tries it')),
      settle: (_, tried) => {
        settled.push(tried.verdicts.size);
        scheduler.stop();
        resolve();
        return Promise.resolve();
      },
    });
    scheduler.start();
  });
  assert.equal(asked[0]?.sites?.room('site:mx'), 5);
  controls.set('site:mx', suspended);
  give([lease]);
  await done;
  assert.deepEqual(settled, [0]);
});
