import { Worker } from 'node:worker_threads';
import { z } from 'zod';
import type { Clock } from '../../core/clock.js';
import type { Log } from '../../core/log.js';
import { grouped, type SeenStack } from './seen-stack.js';

/** A time in which the event loop did not turn: nobody was answered. */
export interface Stall {
  /** When it began, ISO 8601. */
  readonly at: string;
  readonly ms: number;
  /** What ran, when JavaScript ran. */
  readonly stacks: readonly SeenStack[];
}

const BEAT_MS = 100;
const KEPT = 20;
const worker = new URL('./stall-watch.js', import.meta.url);
const Told = z.object({ ms: z.number(), stacks: z.array(z.array(z.string())) });

export interface StallRecorderInput {
  readonly clock: Clock;
  readonly log: Log;
  /** Called for each stall. */
  readonly count: () => void;
}

/** Remembers what kept the event loop busy for too long, as seen by a thread that is not held up with it. */
export class StallRecorder {
  readonly #input: StallRecorderInput;
  #aboveMs = 0;
  #watch: { readonly worker: Worker; readonly beat: NodeJS.Timeout } | undefined;
  #stalls: readonly Stall[] = [];

  constructor(input: StallRecorderInput) {
    this.#input = input;
  }

  get aboveMs(): number {
    return this.#aboveMs;
  }

  /** Newest first. */
  list(): readonly Stall[] {
    return this.#stalls;
  }

  /** @param aboveMs milliseconds; 0 ends it */
  watch(aboveMs: number): void {
    if (aboveMs === this.#aboveMs) return;
    this.close();
    this.#aboveMs = aboveMs;
    if (aboveMs === 0) return;
    const beat = new SharedArrayBuffer(4);
    const counter = new Int32Array(beat);
    const watching = new Worker(worker, { env: {}, execArgv: [], name: 'stall watch', workerData: { beat, aboveMs } });
    watching.unref();
    watching.on('message', (told: unknown) => this.#take(told));
    watching.on('error', (error) => this.#input.log.error({ err: error }, 'stalls are not recorded any more'));
    this.#watch = { worker: watching, beat: setInterval(() => void Atomics.add(counter, 0, 1), BEAT_MS).unref() };
  }

  close(): void {
    const watch = this.#watch;
    this.#watch = undefined;
    this.#aboveMs = 0;
    if (watch === undefined) return;
    clearInterval(watch.beat);
    void watch.worker.terminate();
  }

  #take(told: unknown): void {
    const { ms, stacks } = Told.parse(told);
    const { clock, log, count } = this.#input;
    const stall = { at: new Date(clock.now() - ms).toISOString(), ms, stacks: grouped(stacks) };
    this.#stalls = [stall, ...this.#stalls].slice(0, KEPT);
    count();
    log.warn({ ms, stack: stall.stacks[0]?.frames.slice(0, 10) ?? [] }, 'the event loop stood still');
  }
}
