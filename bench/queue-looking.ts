import { join } from 'node:path';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { setTimeout } from 'node:timers/promises';
import { systemClock } from '../core/clock.js';
import type { RelayQueue } from '../core/contracts/relay-queue-store.js';
import { openLog } from '../core/log/log.js';
import type { FileRelayQueue } from '../plugins/client-queue/queue/file-relay-queue.js';
import { openRelayQueue } from '../plugins/client-queue/queue/open-relay-queue.js';
import { fillQueue } from './queue-filling.js';
import { median } from './table.js';

/** One thing that was measured. */
export interface Look {
  readonly what: string;
  /** Milliseconds, or bytes. */
  readonly value: number;
  readonly unit: 'ms' | 'B';
  readonly aim: number;
}

const repetitions = 7;

async function opened(folder: string): Promise<FileRelayQueue> {
  const { log } = openLog({
    folder: join(folder, 'logs'),
    clock: systemClock,
    level: 'warn',
    ringLines: 10,
    maxFileBytes: 1e7,
    keepFiles: 1,
  });
  const bounds = { keepFinishedMs: 604_800_000, maxEntries: 2_000_000 };
  return openRelayQueue({ folder: join(folder, 'queue'), clock: systemClock, log, ...bounds });
}

/** Fills a queue below `folder` and leaves it there. */
export async function prepareLook(folder: string, count: number): Promise<void> {
  const queue = await opened(folder);
  await fillQueue(queue, count, systemClock.now());
  await queue.close();
  // A disk that was behind with the journal catches up: one more change has it made shorter, if it is too long.
  const again = await opened(folder);
  await claim(again);
  await again.close();
}

/** Opens that queue and measures what an operator waits for. To be done in a process of its own, with `--expose-gc`. */
export async function look(folder: string, count: number): Promise<readonly Look[]> {
  const before = await memory();
  const began = performance.now();
  const queue = await opened(folder);
  const start = performance.now() - began;
  const bytes = ((await memory()) - before) / count;
  const looks: Look[] = [
    { what: 'start', value: start, unit: 'ms', aim: 10_000 },
    { what: 'memory of an entry', value: bytes, unit: 'B', aim: 1024 },
  ];
  const delay = monitorEventLoopDelay({ resolution: 1 });
  let longest = 0;
  for (const [what, aim, task] of tasks(queue, await uidsOf(queue, 10_000))) {
    const times: number[] = [];
    for (let n = 0; n < repetitions; n++) {
      await setTimeout(5);
      delay.enable();
      const from = performance.now();
      await task(n);
      times.push(performance.now() - from);
      await setTimeout(5);
      delay.disable();
      longest = Math.max(longest, delay.max / 1e6);
      delay.reset();
    }
    looks.push({ what, value: median(times), unit: 'ms', aim });
  }
  looks.push({ what: 'longest hold-up of all others', value: longest, unit: 'ms', aim: 50 });
  await queue.close();
  return looks;
}

type Task = readonly [what: string, aim: number, task: (n: number) => Promise<unknown>];

function tasks(queue: RelayQueue, uids: readonly string[]): readonly Task[] {
  const page = { limit: 50, filter: {} };
  let cursor: string | undefined;
  return [
    ['first page of the list', 50, () => queue.list(page)],
    [
      'next page by cursor',
      50,
      async () => {
        cursor = (await queue.list({ ...page, ...(cursor !== undefined && { cursor }) })).nextCursor ?? undefined;
      },
    ],
    [
      'page in the middle, by next attempt',
      50,
      () => queue.list({ ...page, page: 1000, sort: 'nextAttempt', order: 'asc' }),
    ],
    ['list of a destination', 50, (n) => queue.list({ ...page, filter: { domain: `domain-${n}.example` } })],
    [
      'list by a word, sorted by sender',
      50,
      (n) => queue.list({ ...page, sort: 'sender', filter: { q: `order 12${n}` } }),
    ],
    ['statistics', 100, () => queue.statistics(systemClock.now())],
    [
      'an entry with its history',
      50,
      async () => queue.find((await queue.list({ ...page, limit: 1 })).items[0]?.uid ?? ''),
    ],
    ['retry of 10,000', 1000, () => retry(queue, uids)],
    ['housekeeping', 1000, () => housekeep(queue)],
    ['claim of 500 and giving them back', 100, () => claim(queue)],
  ];
}

/** So many uids, as a script collects them from page to page. */
async function uidsOf(queue: RelayQueue, count: number): Promise<readonly string[]> {
  const uids: string[] = [];
  for (let cursor: string | null | undefined; cursor !== null && uids.length < count;) {
    const page = await queue.list({ limit: 500, filter: {}, ...(cursor !== undefined && { cursor }) });
    uids.push(...page.items.map(({ uid }) => uid));
    cursor = page.nextCursor;
  }
  return uids;
}

async function retry(queue: RelayQueue, uids: readonly string[]): Promise<void> {
  const now = systemClock.now();
  await queue.mutate({ uids }, { operation: 'retry', at: now + 3_600_000 }, now);
}

async function housekeep(queue: RelayQueue): Promise<void> {
  await queue.housekeep(systemClock.now());
}

async function claim(queue: RelayQueue): Promise<void> {
  const now = systemClock.now() + 3 * 3_600_000;
  const leases = await queue.claim({ now, limit: 500, room: () => 5, leaseMs: 60_000 });
  await Promise.all(leases.map((lease) => queue.settle(lease, { results: [] })));
}

async function memory(): Promise<number> {
  for (let n = 0; n < 3; n++) {
    globalThis.gc?.();
    await setTimeout(20);
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
