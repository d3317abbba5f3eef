import { performance } from 'node:perf_hooks';
import { Worker } from 'node:worker_threads';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { pluralize, printable } from '../../../core/text/format.js';
import { problem } from '../../../core/problem.js';
import { grouped, type SeenStack, type Stall } from './stalls.js';

export interface Thread {
  readonly name: string;
  readonly id: number;
  readonly stacks: readonly SeenStack[];
}

/** Node's counterpart of Java's thread dump. Never with the environment. */
export interface ThreadDump {
  readonly time: string;
  readonly pid: number;
  readonly node: string;
  /** Share of the sampling time in which the main thread's event loop was busy. */
  readonly utilization: number;
  readonly threads: readonly Thread[];
  /** Active resources by kind. */
  readonly resources: Readonly<Record<string, number>>;
  /** Handles of libuv, by type. */
  readonly handles: readonly { readonly type: string; readonly active: number; readonly total: number }[];
}

const probe = new URL('./stack-probe.js', import.meta.url);
/** A busy main thread answers later; the worker itself needs a fraction of this. */
const TIMEOUT_MS = 60_000;

/** Fields read from Node's report, which also contains the environment. */
const Report = z.object({
  libuv: z.array(z.object({ type: z.string(), is_active: z.boolean().optional() })).catch([]),
  workers: z
    .array(
      z.object({
        header: z.object({ threadId: z.number() }),
        javascriptStack: z.object({ stack: z.array(z.string()).catch([]) }).catch({ stack: [] }),
      }),
    )
    .catch([]),
});

/** Takes dumps, one at a time: concurrent callers share one. */
export class ThreadDumps {
  readonly #clock: Clock;
  #running: Promise<ThreadDump> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  take(): Promise<ThreadDump> {
    this.#running ??= this.#take().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #take(): Promise<ThreadDump> {
    const before = performance.eventLoopUtilization();
    const stacks = await sampleMainThread();
    const { utilization } = performance.eventLoopUtilization(before);
    const report = readReport();
    return {
      time: new Date(this.#clock.now()).toISOString(),
      pid: process.pid,
      node: process.version,
      utilization: Math.round(utilization * 1000) / 1000,
      threads: [{ name: 'main', id: 0, stacks: grouped(stacks) }, ...workersOf(report)],
      resources: countBy(process.getActiveResourcesInfo()),
      handles: handlesOf(report),
    };
  }
}

/** Stacks of the main thread, read by a worker, so that it works while that thread is busy. */
async function sampleMainThread(): Promise<readonly (readonly string[])[]> {
  const worker = new Worker(probe, { env: {}, execArgv: [], name: 'stack probe' });
  const timer = setTimeout(() => void worker.terminate(), TIMEOUT_MS);
  try {
    return await new Promise((resolve, reject) => {
      worker.once('message', (stacks: readonly (readonly string[])[]) => resolve(stacks));
      worker.once('error', reject);
      worker.once('exit', () => reject(problem('unavailable', 'The stacks could not be read in time.')));
    });
  } finally {
    clearTimeout(timer);
    // Terminated before the report asks every worker for its stack.
    await worker.terminate();
  }
}

function readReport(): z.output<typeof Report> {
  const { report } = process;
  // Otherwise the report resolves the name of every peer, which blocks the process.
  if (!('excludeNetwork' in report)) return { libuv: [], workers: [] };
  const previous = report.excludeNetwork;
  report.excludeNetwork = true;
  try {
    return Report.parse(report.getReport());
  } finally {
    report.excludeNetwork = previous;
  }
}

/** A waiting thread has no stack; the report says so. */
const workersOf = ({ workers }: z.output<typeof Report>): readonly Thread[] =>
  workers.map(({ header, javascriptStack }) => {
    const lines = javascriptStack.stack.filter((line) => line !== 'Unavailable.');
    return {
      name: 'worker',
      id: header.threadId,
      stacks: lines.length === 0 ? [] : [{ seen: 1, frames: lines.map(frame) }],
    };
  });

const frame = (text: string): string => printable(text.trim().replace(/^at /, ''));

function countBy(names: readonly string[]): Readonly<Record<string, number>> {
  const counts = new Map<string, number>();
  for (const name of names.toSorted()) counts.set(name, (counts.get(name) ?? 0) + 1);
  return Object.fromEntries(counts);
}

function handlesOf({ libuv }: z.output<typeof Report>): ThreadDump['handles'] {
  const handles = new Map<string, { type: string; active: number; total: number }>();
  for (const { type, is_active: active } of libuv) {
    const known = handles.get(type) ?? { type, active: 0, total: 0 };
    known.total += 1;
    if (active === true) known.active += 1;
    handles.set(type, known);
  }
  return [...handles.values()].toSorted((a, b) => (a.type < b.type ? -1 : 1));
}

/** In the format of `jstack`. */
export function threadDumpText(dump: ThreadDump, stalls: readonly Stall[] = []): string {
  const threads = dump.threads.map(({ name, id, stacks }) => {
    const state = stacks.length === 0 ? 'WAITING (no JavaScript ran)' : 'RUNNABLE';
    return [`"${name}" #${id}`, `   State: ${state}`, ...stackLines(stacks), ''].join('\n');
  });
  const resources = Object.entries(dump.resources).map(([type, count]) => `   ${type} ${count}`);
  const handles = dump.handles.map(({ type, active, total }) => `   ${type} ${total} (${active} active)`);
  return [
    dump.time,
    `Full thread dump Node.js ${dump.node}, pid ${dump.pid}, event loop busy ${Math.round(dump.utilization * 100)} %:`,
    '',
    ...threads,
    'Active resources:',
    ...resources,
    '',
    'Handles of libuv:',
    ...handles,
    '',
    ...stalls.flatMap(({ at, ms, plugin, doing, stacks }) => [
      `The event loop stood still for ${ms} ms at ${at}${plugin === null ? '' : ` (plugin ${plugin}, ${doing ?? 'code'})`}:`,
      ...stackLines(stacks),
      '',
    ]),
  ].join('\n');
}

const stackLines = (stacks: readonly SeenStack[]): readonly string[] =>
  stacks.flatMap(({ seen, frames }) => [
    `   - seen ${pluralize(seen, 'time')}`,
    ...frames.map((text) => `\tat ${text}`),
  ]);
