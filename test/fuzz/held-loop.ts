import { readFileSync } from 'node:fs';

const everyMs = 10;

/** No remote input may hold the event loop for longer, in milliseconds. */
export const longestHoldMs = 200;

/** The longest time for which the event loop was held, and during which run. */
export interface Hold {
  readonly ms: number;
  readonly run: number;
}

/**
 * Watches how long the event loop of this process is held: by computing, or by a call that blocks. The time for which
 * the thread was ready and other programs had the processors does not count, where the system tells it.
 */
export class HeldLoop {
  readonly #timer: NodeJS.Timeout;
  readonly #runOf: () => number;
  #last = { now: performance.now(), waited: waitedMs() };
  #longest: Hold = { ms: 0, run: 0 };

  constructor(runOf: () => number) {
    this.#runOf = runOf;
    this.#timer = setInterval(() => this.look(), everyMs);
  }

  stop(): Hold {
    clearInterval(this.#timer);
    this.look();
    return this.#longest;
  }

  /** To be called between two runs as well: those that wait for nothing follow each other in one turn of the loop. */
  look(): void {
    const { now, waited } = this.#last;
    this.#last = { now: performance.now(), waited: waitedMs() };
    const ms = this.#last.now - now - everyMs - (this.#last.waited - waited);
    if (ms > this.#longest.ms) this.#longest = { ms, run: this.#runOf() };
  }
}

/** Milliseconds that the main thread has waited for a processor since it began (Linux); 0 where that is not told. */
function waitedMs(): number {
  try {
    return Number(readFileSync('/proc/self/schedstat', 'latin1').split(' ')[1]) / 1e6;
  } catch {
    return 0;
  }
}
