import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { setPriority } from 'node:os';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Activity, activities, Bystander, type Measurement } from './bystander.js';
import type { FloodCounts, FloodOrder, Kind } from './flood.js';
import { type Site, Victim } from './victim.js';

/** What a bystander may notice of a flood: milliseconds that 99 of 100 of its actions do not exceed. */
export const aimsMs: Readonly<Record<Activity, number>> = { page: 250, 'sign-in': 1500, mail: 250, '250': 250 };
export const maxHoldMs = 200;
export const maxMegabytes = 600;
/** The server must be quiet again after so long. */
const recoverySeconds = 30;
/** After its time, until a flooder that does not end is killed. */
const graceMs = 20_000;
/** Until a new server has compiled what it needs. */
const warmMs = 1500;

export interface PlayOptions {
  readonly seconds: number;
  readonly quietSeconds: number;
  readonly seed: number;
}

/** What happened while the server was flooded, and before. */
export interface Outcome {
  readonly kind: Kind;
  readonly quiet: Measurement;
  readonly flooded: Measurement;
  /** Of the flooder, each second; empty for one that did not end by itself. */
  readonly rates: FloodCounts;
  readonly quietHoldMs: number;
  readonly holdMs: number;
  /** NaN for a server that is gone. */
  readonly megabytes: number;
  readonly isAlive: boolean;
  /** Until everything was quick again; undefined when it did not become so. */
  readonly recoveredAfterSeconds: number | undefined;
  readonly lastWords: string;
}

/** Starts a server, measures it in quiet, floods it, measures again, waits until it is quiet. */
export async function play(site: Site, kind: Kind, options: PlayOptions): Promise<Outcome> {
  const releases: (() => void | Promise<void>)[] = [];
  try {
    const victim = await Victim.start({ after: (release) => void releases.push(release) }, site);
    const bystander = await Bystander.begin(victim.target);
    releases.push(() => bystander.stop());
    await pause(warmMs);
    const quietFrom = Date.now();
    const quiet = bystander.measure();
    await pause(options.quietSeconds * 1000);
    bystander.measure();
    await settled(quiet);
    const quietHoldMs = await victim.longestHoldSince(quietFrom);
    const flooder = await startFlooder({ ...options, kind: kind.name, target: victim.target });
    const floodedFrom = Date.now();
    const flooded = bystander.measure();
    const rates = await flooder.rates();
    const recoveredAfterSeconds = await recovery(bystander, victim);
    await settled(flooded);
    return {
      kind,
      quiet,
      flooded,
      rates,
      quietHoldMs,
      holdMs: await victim.longestHoldSince(floodedFrom),
      megabytes: await victim.peakMegabytes(),
      isAlive: victim.isAlive,
      recoveredAfterSeconds,
      lastWords: victim.lastWords,
    };
  } finally {
    for (const release of releases.toReversed()) await release();
  }
}

async function settled(measurement: Measurement): Promise<void> {
  await Promise.all(activities.map((activity) => measurement[activity].settled()));
}

/** In a process that gives way to the server and the bystander. Resolves when it begins. */
async function startFlooder(order: FloodOrder): Promise<{ rates(): Promise<FloodCounts> }> {
  const script = fileURLToPath(new URL('./flooder.js', import.meta.url));
  const words = ['-n', '10', process.execPath, '--max-old-space-size=1024', script, JSON.stringify(order)];
  const child = spawn('nice', words, { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const timer = setTimeout(() => child.kill('SIGKILL'), order.seconds * 1000 + graceMs);
  await lines.next();
  const rates = async (): Promise<FloodCounts> => {
    const { value, done } = (await lines.next()) as IteratorResult<string, undefined>;
    clearTimeout(timer);
    if (done === true) return {};
    const counts = Object.entries(JSON.parse(value) as FloodCounts);
    return Object.fromEntries(counts.map(([what, count]) => [what, count / order.seconds]));
  };
  return { rates };
}

/**
 * Puts this process, and the servers that it will start, before other programs of the machine, where it may: what they
 * do is not to be measured. Linux gives processor time to sessions first (sched(7), autogroup), then to their processes.
 */
export function goFirst(): void {
  try {
    setPriority(-15);
    writeFileSync('/proc/self/autogroup', '-15');
  } catch {
    // Only root may, and not everywhere.
  }
}

/** The seconds after which nothing failed for a second, and little was slow. */
async function recovery(bystander: Bystander, victim: Victim): Promise<number | undefined> {
  const began = performance.now();
  while (victim.isAlive && performance.now() - began < recoverySeconds * 1000) {
    const from = performance.now();
    const measurement = bystander.measure();
    await pause(1000);
    const isQuiet = activities.every((activity) => {
      const series = measurement[activity];
      return series.failures.length === 0 && series.percentile(0.9) <= aimsMs[activity];
    });
    if (isQuiet) return (from - began) / 1000;
  }
  return undefined;
}

/** What is worse than it may be, in words. */
export function missesOf(outcome: Outcome): readonly string[] {
  const { rates, flooded, holdMs, megabytes, isAlive, recoveredAfterSeconds } = outcome;
  return [
    ...(Object.keys(rates).length > 0 ? [] : ['no flood']),
    ...activities.filter((activity) => !(flooded[activity].percentile(0.99) <= aimsMs[activity])),
    ...activities.flatMap((activity) => {
      const { length } = flooded[activity].failures;
      return length === 0 ? [] : [`${length} × ${activity} failed`];
    }),
    ...(holdMs <= maxHoldMs ? [] : ['held']),
    ...(megabytes <= maxMegabytes || !isAlive ? [] : ['memory']),
    ...(isAlive ? [] : ['it ended']),
    ...(recoveredAfterSeconds !== undefined || !isAlive ? [] : ['does not recover']),
  ];
}
