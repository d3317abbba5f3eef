import type { Clock } from '../clock.js';
import type { SeenStall } from '../contracts/stall-watch.js';
import { writeFileAtomic } from '../disk/atomic.js';
import { faultCode } from '../disk/fault.js';
import { printable } from '../text/format.js';
import type { MainStacks } from './main-stacks.js';
import { pluginAt, type PluginPlace } from './plugin-place.js';
import type { Mark, RunningCode } from './running-code.js';
import type { StallRecord } from './stall-file.js';
import { longestFrame, mostStalls } from './stall-bounds.js';
import type { Thresholds } from './thresholds.js';

/** Looks at the stack in one stall. */
const mostLooks = 5;
/** How long the end of the process waits for the disk. */
const patienceMs = 2000;

/** What the thread that watches says to the main thread, which hears it when it can. `ended` is its last word. */
export type FromThread =
  | { readonly stall: SeenStall; readonly record: StallRecord | null }
  | { readonly unwritten: string }
  | { readonly ended: true };

export interface WatchGround {
  /** The main thread counts here as long as its event loop turns. */
  readonly beat: Int32Array;
  /** The mark of what it runs. */
  readonly running: Int32Array;
  /** Absolute path of the file that stalls are written to. */
  readonly file: string;
  readonly codeOf: (mark: Mark) => RunningCode | undefined;
  readonly places: () => readonly PluginPlace[];
  readonly tell: (message: FromThread) => void;
  readonly openStacks: () => Pick<MainStacks, 'seen' | 'look' | 'close'>;
  /** Ends the process. */
  readonly kill: () => void;
  readonly clock: Clock;
}

interface Stall {
  readonly since: string;
  readonly code: RunningCode | undefined;
  readonly stacks: ReturnType<WatchGround['openStacks']>;
  looks: number;
  record: StallRecord | undefined;
  killing: boolean;
}

/** Sees from another thread whether the main thread moves, and what holds it up. */
export class MainWatch {
  readonly #ground: WatchGround;
  #thresholds: Thresholds;
  #stalls: readonly StallRecord[];
  #last: number;
  /** When the main thread was seen to move, and when it was last looked at. */
  #moved: number;
  #looked: number;
  #stall: Stall | undefined;
  /** It stands still on purpose. */
  #excused = false;
  #writing: Promise<void> = Promise.resolve();

  /** @param stalls on record so far, newest first */
  constructor(ground: WatchGround, thresholds: Thresholds, stalls: readonly StallRecord[]) {
    this.#ground = ground;
    this.#thresholds = thresholds;
    this.#stalls = stalls;
    this.#last = Atomics.load(ground.beat, 0);
    this.#moved = ground.clock.monotonic();
    this.#looked = this.#moved;
  }

  use(thresholds: Thresholds): void {
    this.#thresholds = thresholds;
  }

  /** What the main thread does next holds everything up on purpose, and is no stall; or it has done it. */
  excuse(excused: boolean): void {
    this.#excused = excused;
    this.#looked = this.#over();
  }

  /** The main thread stops. Resolves when what it stood still in is on record. */
  async end(): Promise<void> {
    this.#over();
    await this.#writing;
  }

  look(): void {
    if (this.#excused) return;
    const now = this.#ground.clock.monotonic();
    const late = now - this.#looked - this.#thresholds.everyMs;
    this.#looked = now;
    // The whole process was stopped, or the machine slept: that is nothing of the event loop.
    if (late > this.#thresholds.toldAboveMs / 2) this.#moved += late;
    const beat = Atomics.load(this.#ground.beat, 0);
    if (beat !== this.#last) {
      this.#last = beat;
      this.#over();
      return;
    }
    const ms = now - this.#moved;
    if (ms >= this.#thresholds.toldAboveMs) this.#follow((this.#stall ??= this.#begin(ms)), ms);
  }

  /** The main thread moves: what it stood still in is over. Returns the time. */
  #over(): number {
    const now = this.#ground.clock.monotonic();
    const stall = this.#stall;
    this.#stall = undefined;
    if (stall !== undefined) this.#finish(stall, now - this.#moved);
    this.#moved = now;
    return now;
  }

  #begin(ms: number): Stall {
    return {
      since: new Date(this.#ground.clock.now() - ms).toISOString(),
      code: this.#ground.codeOf(Atomics.load(this.#ground.running, 0)),
      stacks: this.#ground.openStacks(),
      looks: 0,
      record: undefined,
      killing: false,
    };
  }

  #follow(stall: Stall, ms: number): void {
    const { writtenAboveMs, killedAboveMs } = this.#thresholds;
    if (stall.looks < mostLooks) void stall.stacks.look();
    else stall.stacks.close();
    stall.looks += 1;
    // A thread that runs no JavaScript never shows a stack, and one that is busy may show it late.
    const shown = stall.stacks.seen.length > 0;
    const old = stall.record;
    const worth = old === undefined ? shown || stall.looks > 2 : shown && old.frames.length === 0;
    if (ms >= writtenAboveMs && worth) this.#keep(stall, null, 'lasts');
    if (killedAboveMs > 0 && ms >= killedAboveMs && !stall.killing) void this.#end(stall);
  }

  #finish(stall: Stall, ms: number): void {
    stall.stacks.close();
    const { code, since, stacks, record } = stall;
    if (record !== undefined) this.#keep(stall, new Date(this.#ground.clock.now()).toISOString(), 'over');
    const seen: SeenStall = {
      at: since,
      ms: Math.round(ms),
      plugin: this.#pluginOf(stall),
      doing: code?.doing ?? null,
      stacks: stacks.seen,
    };
    this.#ground.tell({ stall: seen, record: stall.record ?? null });
  }

  /** Not before it is on record why, and not when the loop turns again meanwhile. */
  async #end(stall: Stall): Promise<void> {
    stall.killing = true;
    this.#keep(stall, null, 'killed');
    await Promise.race([this.#writing, new Promise((resolve) => setTimeout(resolve, patienceMs))]);
    if (Atomics.load(this.#ground.beat, 0) === this.#last) this.#ground.kill();
  }

  #keep(stall: Stall, until: string | null, outcome: StallRecord['outcome']): void {
    const { since, code } = stall;
    const frames = (stall.stacks.seen[0] ?? []).map((frame) => printable(frame.slice(0, longestFrame)));
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
    this.#stalls = [record, ...others].slice(0, mostStalls);
    stall.record = record;
    this.#writing = this.#writing.then(() => this.#write());
  }

  /** The mark says whose code was called; without one, as behind an `await`, the files of the stack do. */
  #pluginOf({ code, stacks }: Stall): string | null {
    return code?.plugin ?? pluginAt(stacks.seen[0] ?? [], this.#ground.places()) ?? null;
  }

  async #write(): Promise<void> {
    try {
      await writeFileAtomic(this.#ground.file, `${JSON.stringify({ stalls: this.#stalls }, null, 2)}\n`);
    } catch (error) {
      this.#ground.tell({ unwritten: faultCode(error) ?? String(error) });
    }
  }
}
