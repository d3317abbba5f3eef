import { parentPort, workerData } from 'node:worker_threads';
import { systemClock } from '../clock.js';
import { MainStacks } from './main-stacks.js';
import { MainWatch, type WatchContext } from './main-watch.js';
import type { Mark, CodeLocation, RunningCode } from './running-code.js';
import type { StallRecord } from './stall-record.js';
import type { Thresholds } from './options.js';

export interface WorkerData extends Pick<WatchContext, 'beat' | 'running' | 'file'> {
  readonly thresholds: Thresholds;
  /** Recorded so far, newest first. */
  readonly stalls: readonly StallRecord[];
}

/** Messages of the main thread. `end` is the last one: it moves, and stops. */
export type ToThread =
  | { readonly end: true }
  | { readonly deliberate: boolean }
  | { readonly thresholds: Thresholds }
  | { readonly places: readonly CodeLocation[] }
  | { readonly mark: Mark; readonly code: RunningCode };

const { beat, running, file, thresholds, stalls } = workerData as WorkerData;
const codes = new Map<Mark, RunningCode>();
let places: readonly CodeLocation[] = [];
const context: WatchContext = {
  beat,
  running,
  file,
  codeOf: (mark) => codes.get(mark),
  locations: () => places,
  send: (message) => parentPort?.postMessage(message, []),
  openStacks: () => new MainStacks(),
  clock: systemClock,
  kill: () => void process.kill(process.pid, 'SIGKILL'),
};
const watch = new MainWatch(context, thresholds, stalls);
const lookEvery = (ms: number): NodeJS.Timeout => setInterval(() => watch.check(), ms);
let timer = lookEvery(thresholds.intervalMs);

parentPort?.on('message', (message: ToThread) => {
  if ('mark' in message) codes.set(message.mark, message.code);
  else if ('places' in message) places = message.places;
  else if ('deliberate' in message) watch.setDeliberate(message.deliberate);
  else if ('end' in message) void end();
  else {
    watch.use(message.thresholds);
    clearInterval(timer);
    timer = lookEvery(message.thresholds.intervalMs);
  }
});

/**
 * Records an open stall as over, lest the next start report it as the end of this run. The main thread then terminates
 * this one.
 */
async function end(): Promise<void> {
  clearInterval(timer);
  await watch.end();
  context.send({ ended: true });
}
