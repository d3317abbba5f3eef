import { parentPort, workerData } from 'node:worker_threads';
import { systemClock } from '../clock.js';
import { MainStacks } from './main-stacks.js';
import { MainWatch, type WatchGround } from './main-watch.js';
import type { PluginPlace } from './plugin-place.js';
import type { Mark, RunningCode } from './running-code.js';
import type { StallRecord } from './stall-file.js';
import type { Thresholds } from './thresholds.js';

export interface ThreadInput extends Pick<WatchGround, 'beat' | 'running' | 'file'> {
  readonly thresholds: Thresholds;
  /** On record so far, newest first. */
  readonly stalls: readonly StallRecord[];
}

/** What the main thread says. `end` is its last word: it moves, and stops. */
export type ToThread =
  | { readonly end: true }
  | { readonly deliberate: boolean }
  | { readonly thresholds: Thresholds }
  | { readonly places: readonly PluginPlace[] }
  | { readonly mark: Mark; readonly code: RunningCode };

const { beat, running, file, thresholds, stalls } = workerData as ThreadInput;
const codes = new Map<Mark, RunningCode>();
let places: readonly PluginPlace[] = [];
const ground: WatchGround = {
  beat,
  running,
  file,
  codeOf: (mark) => codes.get(mark),
  places: () => places,
  tell: (message) => parentPort?.postMessage(message, []),
  openStacks: () => new MainStacks(),
  clock: systemClock,
  kill: () => void process.kill(process.pid, 'SIGKILL'),
};
const watch = new MainWatch(ground, thresholds, stalls);
const lookEvery = (ms: number): NodeJS.Timeout => setInterval(() => watch.look(), ms);
let timer = lookEvery(thresholds.everyMs);

parentPort?.on('message', (message: ToThread) => {
  if ('mark' in message) codes.set(message.mark, message.code);
  else if ('places' in message) places = message.places;
  else if ('deliberate' in message) watch.excuse(message.deliberate);
  else if ('end' in message) void end();
  else {
    watch.use(message.thresholds);
    clearInterval(timer);
    timer = lookEvery(message.thresholds.everyMs);
  }
});

/** A stall that is open in the file would be told as how this run ended. The main thread ends this one when it has heard. */
async function end(): Promise<void> {
  clearInterval(timer);
  await watch.end();
  ground.tell({ ended: true });
}
