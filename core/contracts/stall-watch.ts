import { service } from '../host/service.js';

/** A time in which the event loop did not turn: nobody was answered. */
export interface SeenStall {
  /** When it began, ISO 8601. */
  readonly at: string;
  readonly ms: number;
  /** Whose code ran, and what of it: `hook rcptTo`; null when it was the server's own, or is not known. */
  readonly plugin: string | null;
  readonly doing: string | null;
  /** What was seen, once or some times; the innermost frame of each first: `function (file:line:column)`. */
  readonly stacks: readonly (readonly string[])[];
}

/** Sees the event loop stand still, from a thread that is not held up with it. */
export interface StallWatch {
  /** Stalls of so many milliseconds are told to everybody, whatever they ask for. */
  readonly alwaysAboveMs: number;
  /**
   * Tells each stall when it is over.
   *
   * @param aboveMs shorter ones are told, too: from so many milliseconds on, at least 200; 0 for no others
   * @returns the undo
   */
  observe(aboveMs: number, tell: (stall: SeenStall) => void): () => void;
  /** Runs what holds everything up on purpose, as somebody asked for: it is no stall, and ends no process. */
  standStill<T>(run: () => T): T;
}
export const stallWatch = service<StallWatch>('postern.stall-watch');
