import type { SeenStall, StallWatch } from '../../../core/contracts/stall-watch.js';
import { printable } from '../../../core/text/format.js';

/** A period in which the event loop did not run. */
export interface Stall extends Omit<SeenStall, 'stacks'> {
  /** The code that ran, if it was JavaScript. */
  readonly stacks: readonly SeenStack[];
}

const KEPT = 20;

interface StallRecorderInput {
  readonly stallWatch: StallWatch;
  /** Called for each stall. */
  readonly count: () => void;
}

/** Records what blocked the event loop for too long. */
export class StallRecorder {
  readonly #input: StallRecorderInput;
  #askedMs = 0;
  #undo: (() => void) | undefined;
  #stalls: readonly Stall[] = [];

  constructor(input: StallRecorderInput) {
    this.#input = input;
  }

  /** Minimum milliseconds of a recorded stall. */
  get aboveMs(): number {
    const { reportedAboveMs } = this.#input.stallWatch;
    return this.#askedMs === 0 ? reportedAboveMs : Math.min(this.#askedMs, reportedAboveMs);
  }

  /** Newest first. */
  list(): readonly Stall[] {
    return this.#stalls;
  }

  /** @param askedMs milliseconds; 0 for the default */
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

/** A stack and the share of samples with it. */
export interface SeenStack {
  readonly seen: number;
  /** Innermost first: `function (file:line:column)`. */
  readonly frames: readonly string[];
}

/** Grouped by stack, most frequent first. */
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
