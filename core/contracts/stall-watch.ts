import { service } from './service.js';

/** A time in which the event loop did not turn: no client got an answer. */
export interface SeenStall {
  /** When it began, ISO 8601. */
  readonly at: string;
  readonly ms: number;
  /**
   * The plugin whose code ran, and what it did: `hook rcptTo`; null when it was the server's own code, or is unknown.
   */
  readonly plugin: string | null;
  readonly doing: string | null;
  /** Sampled stacks, the innermost frame of each first: `function (file:line:column)`. */
  readonly stacks: readonly (readonly string[])[];
}

/** Detects stalls of the event loop from a worker thread. */
export interface StallWatch {
  /** Every observer receives stalls of this length. */
  readonly reportedAboveMs: number;
  /**
   * Reports each stall when it is over.
   *
   * @param aboveMs also report shorter ones from this length on, at least 200; 0 for none
   * @returns the undo
   */
  observe(aboveMs: number, tell: (stall: SeenStall) => void): () => void;
  /** Runs something that blocks on purpose: it does not count as a stall, and does not end the process. */
  runDeliberateStall<T>(run: () => T): T;
}
export const stallWatch = service<StallWatch>('postern.stall-watch');
