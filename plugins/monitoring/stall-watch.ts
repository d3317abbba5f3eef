import { performance } from 'node:perf_hooks';
import { parentPort, workerData } from 'node:worker_threads';
import { z } from 'zod';
import { MainStacks } from './main-stacks.js';

const EVERY_MS = 100;
/** Looks at one stall at most. */
const MAX_LOOKS = 5;

const { beat, aboveMs } = z
  .object({ beat: z.instanceof(SharedArrayBuffer), aboveMs: z.number().min(1) })
  .parse(workerData);
const counter = new Int32Array(beat);

interface Stall {
  readonly stacks: MainStacks;
  looks: number;
}

let last = Atomics.load(counter, 0);
/** When it was seen to move. */
let moved = performance.now();
let looked = moved;
let stall: Stall | undefined;

/** Runs in a worker: the main thread counts as long as its event loop turns. */
function watch(): void {
  const now = performance.now();
  // Late itself: the whole process was stopped, or the machine slept. That is nothing of the event loop.
  const slept = now - looked > aboveMs / 2 + EVERY_MS;
  looked = now;
  const present = Atomics.load(counter, 0);
  if (present !== last || slept) {
    if (stall !== undefined) finish(stall, now - moved, slept);
    stall = undefined;
    last = present;
    moved = now;
    return;
  }
  if (now - moved < aboveMs) return;
  stall ??= { stacks: new MainStacks(), looks: 0 };
  if (stall.looks < MAX_LOOKS) void stall.stacks.look();
  stall.looks += 1;
}

function finish({ stacks }: Stall, ms: number, slept: boolean): void {
  stacks.close();
  if (!slept) parentPort?.postMessage({ ms: Math.round(ms), stacks: stacks.seen }, []);
}

setInterval(watch, EVERY_MS);
