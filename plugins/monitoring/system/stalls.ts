import type { SeenStall, StallWatch } from '../../../core/contracts/stall-watch.js';
import { printable } from '../../../core/text/format.js';

/** A time in which the event loop did not turn: nobody was answered. */
export interface Stall extends Omit<SeenStall, 'stacks'> {
  /** What ran, when JavaScript ran. */
  readonly stacks: readonly SeenStack[];
}

const KEPT = 20;

interface StallRecorderInput {
  readonly stallWatch: StallWatch;
  /** Called for each stall. */
  readonly count: () => void;
}

/** Remembers what kept the event loop busy for too long. */
export class StallRecorder {
  readonly #input: StallRecorderInput;
  #askedMs = 0;
  #undo: (() => void) | undefined;
  #stalls: readonly Stall[] = [];

  constructor(input: StallRecorderInput) {
    this.#input = input;
  }

  /** From how many milliseconds on a stall is recorded. */
  get aboveMs(): number {
    const { reportedAboveMs } = this.#input.stallWatch;
    return this.#askedMs === 0 ? reportedAboveMs : Math.min(this.#askedMs, reportedAboveMs);
  }

  /** Newest first. */
  list(): readonly Stall[] {
    return this.#stalls;
  }

  /** @param askedMs milliseconds; 0 for those that are told anyway */
  watch(askedMs: number): void {
    if (this.#undo !== undefined && askedMs === this.#askedMs) return;
    this.close();
    this.#askedMs = askedMs;
    this.#undo = this.#input.stallWatch.observe(askedMs, (seen) => this.#take(seen));
  }

  close(): void {
    this.#undo?.();
    this.#undo = undefined;
  }

  #take(seen: SeenStall): void {
    this.#stalls = [{ ...seen, stacks: grouped(seen.stacks) }, ...this.#stalls].slice(0, KEPT);
    this.#input.count();
  }
}

/** A stack that was seen in some of the samples. */
export interface SeenStack {
  readonly seen: number;
  /** The innermost first: `function (file:line:column)`. */
  readonly frames: readonly string[];
}

/** Equal stacks together, the most frequent first. */
export function grouped(stacks: readonly (readonly string[])[]): readonly SeenStack[] {
  const seen = new Map<string, { seen: number; readonly frames: readonly string[] }>();
  for (const frames of stacks) {
    const key = frames.join('\n');
    const known = seen.get(key) ?? { seen: 0, frames: frames.map(printable) };
    known.seen += 1;
    seen.set(key, known);
  }
  return [...seen.values()].toSorted((a, b) => b.seen - a.seen);
}
