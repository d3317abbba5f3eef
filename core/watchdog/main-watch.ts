import type { Clock } from '../clock.js';
import type { SeenStall } from '../contracts/stall-watch.js';
import { writeFileAtomic } from '../disk/atomic.js';
import { faultCode } from '../disk/fault.js';
import { printable } from '../text/format.js';
import type { MainStacks } from './main-stacks.js';
import { type Mark, pluginAt, type CodeLocation, type RunningCode } from './running-code.js';
import type { StallRecord } from './stall-record.js';
import { maxFrameCharacters, maxStalls } from './stall-bounds.js';
import type { Thresholds } from './options.js';

/** Stacks sampled in one stall. */
const maxSamples = 5;
/** How long the kill waits for the record to be written. */
const writeTimeoutMs = 2000;

/** Messages of the watching thread to the main thread. `ended` is the last one. */
export type FromThread =
  | { readonly stall: SeenStall; readonly record: StallRecord | null }
  | { readonly unwritten: string }
  | { readonly ended: true };

export interface WatchContext {
  /** The main thread increments it while its event loop turns. */
  readonly beat: Int32Array;
  /** Mark of the code that the main thread runs. */
  readonly running: Int32Array;
  /** Absolute path of the record of stalls. */
  readonly file: string;
  readonly codeOf: (mark: Mark) => RunningCode | undefined;
  readonly locations: () => readonly CodeLocation[];
  readonly send: (message: FromThread) => void;
  readonly openStacks: () => Pick<MainStacks, 'stacks' | 'sample' | 'close'>;
  readonly kill: () => void;
  readonly clock: Clock;
}

interface Stall {
  readonly since: string;
  readonly code: RunningCode | undefined;
  readonly stacks: ReturnType<WatchContext['openStacks']>;
  samples: number;
  record: StallRecord | undefined;
  killing: boolean;
}

/** Detects from another thread that the main thread stalls, and which code causes it. */
export class MainWatch {
  readonly #context: WatchContext;
  #thresholds: Thresholds;
  #stalls: readonly StallRecord[];
  #lastBeat: number;
  /** When the main thread last moved, and when it was last checked. Monotonic. */
  #lastMoved: number;
  #lastChecked: number;
  #stall: Stall | undefined;
  /** The main thread blocks on purpose. */
  #deliberate = false;
  #writing: Promise<void> = Promise.resolve();

  /** @param stalls recorded so far, newest first */
  constructor(context: WatchContext, thresholds: Thresholds, stalls: readonly StallRecord[]) {
    this.#context = context;
    this.#thresholds = thresholds;
    this.#stalls = stalls;
    this.#lastBeat = Atomics.load(context.beat, 0);
    this.#lastMoved = context.clock.monotonic();
    this.#lastChecked = this.#lastMoved;
  }

  use(thresholds: Thresholds): void {
    this.#thresholds = thresholds;
  }

  /** The main thread announces that it blocks on purpose, or that this is over. */
  setDeliberate(deliberate: boolean): void {
    this.#deliberate = deliberate;
    this.#lastChecked = this.#endStall();
  }

  /** The main thread stops. Resolves when an open stall is recorded as over. */
  async end(): Promise<void> {
    this.#endStall();
    await this.#writing;
  }

  check(): void {
    if (this.#deliberate) return;
    const now = this.#context.clock.monotonic();
    const late = now - this.#lastChecked - this.#thresholds.intervalMs;
    this.#lastChecked = now;
    // The whole process was suspended, or the machine slept: no stall of the event loop.
    if (late > this.#thresholds.reportAboveMs / 2) this.#lastMoved += late;
    const beat = Atomics.load(this.#context.beat, 0);
    if (beat !== this.#lastBeat) {
      this.#lastBeat = beat;
      this.#endStall();
      return;
    }
    const ms = now - this.#lastMoved;
    if (ms >= this.#thresholds.reportAboveMs) this.#update((this.#stall ??= this.#openStall(ms)), ms);
  }

  /** The main thread moves: ends an open stall. Returns the time. */
  #endStall(): number {
    const now = this.#context.clock.monotonic();
    const stall = this.#stall;
    this.#stall = undefined;
    if (stall !== undefined) this.#finish(stall, now - this.#lastMoved);
    this.#lastMoved = now;
    return now;
  }

  #openStall(ms: number): Stall {
    return {
      since: new Date(this.#context.clock.now() - ms).toISOString(),
      code: this.#context.codeOf(Atomics.load(this.#context.running, 0)),
      stacks: this.#context.openStacks(),
      samples: 0,
      record: undefined,
      killing: false,
    };
  }

  #update(stall: Stall, ms: number): void {
    const { recordAboveMs, killAboveMs } = this.#thresholds;
    if (stall.samples < maxSamples) void stall.stacks.sample();
    else stall.stacks.close();
    stall.samples += 1;
    // An idle thread never shows a stack; a busy one may show it late.
    const shown = stall.stacks.stacks.length > 0;
    const old = stall.record;
    const isDue = old === undefined ? shown || stall.samples > 2 : shown && old.frames.length === 0;
    if (ms >= recordAboveMs && isDue) this.#record(stall, null, 'lasts');
    if (killAboveMs > 0 && ms >= killAboveMs && !stall.killing) void this.#kill(stall);
  }

  #finish(stall: Stall, ms: number): void {
    stall.stacks.close();
    const { code, since, stacks, record } = stall;
    if (record !== undefined) this.#record(stall, new Date(this.#context.clock.now()).toISOString(), 'over');
    const seen: SeenStall = {
      at: since,
      ms: Math.round(ms),
      plugin: this.#pluginOf(stall),
      doing: code?.doing ?? null,
      stacks: stacks.stacks,
    };
    this.#context.send({ stall: seen, record: stall.record ?? null });
  }

  /** Kills only after the cause is recorded, and not when the loop has turned meanwhile. */
  async #kill(stall: Stall): Promise<void> {
    stall.killing = true;
    this.#record(stall, null, 'killed');
    await Promise.race([this.#writing, new Promise((resolve) => setTimeout(resolve, writeTimeoutMs))]);
    if (Atomics.load(this.#context.beat, 0) === this.#lastBeat) this.#context.kill();
  }

  #record(stall: Stall, until: string | null, outcome: StallRecord['outcome']): void {
    const { since, code } = stall;
    const frames = (stall.stacks.stacks[0] ?? []).map((frame) => printable(frame.slice(0, maxFrameCharacters)));
    const record = {
      pid: process.pid,
      since,
      until,
      outcome,
      plugin: this.#pluginOf(stall),
      doing: code?.doing ?? null,
      frames,
    };
    const others = this.#stalls.filter((other) => other !== stall.record);
    this.#stalls = [record, ...others].slice(0, maxStalls);
    stall.record = record;
    this.#writing = this.#writing.then(() => this.#write());
  }

  /** The mark names the plugin that was called; without one, as after an `await`, the files in the stack do. */
  #pluginOf({ code, stacks }: Stall): string | null {
    return code?.plugin ?? pluginAt(stacks.stacks[0] ?? [], this.#context.locations()) ?? null;
  }

  async #write(): Promise<void> {
    try {
      await writeFileAtomic(this.#context.file, `${JSON.stringify({ stalls: this.#stalls }, null, 2)}\n`);
    } catch (error) {
      this.#context.send({ unwritten: faultCode(error) ?? String(error) });
    }
  }
}
