import type { Clock } from '../clock.js';
import { pluralize } from '../text/format.js';
import type { HealthReport } from '../host/health.js';
import type { Log } from '../log/log.js';

/** While there are some, a look at health looks for them again, but not more often than that. */
const lookEveryMs = 10_000;
/** And a look that takes long is rare: it takes a hundredth of the time at most. */
const restFactor = 100;
const namedInHealth = 3;
const namedInLog = 100;

export interface ForeignEntriesInput {
  /** What one of them is called, and several: `entry of the mail folder is no mailbox`, `entries of the mail folder are no mailboxes`. */
  readonly what: { readonly one: string; readonly several: string };
  /** Names of what nobody here has made, below the place that `what` names. */
  readonly find: () => Promise<readonly string[]>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Files and folders that are where our own should be, and are none of ours. They are left alone; an operator is told, until
 * they are gone.
 */
export class ForeignEntries {
  readonly #input: ForeignEntriesInput;
  #found: readonly string[] = [];
  #nextLook = -Infinity;

  constructor(input: ForeignEntriesInput) {
    this.#input = input;
  }

  /** Never rejects: what cannot be looked at is no reason to stop. */
  async look(): Promise<void> {
    const { what, find, clock, log } = this.#input;
    const began = clock.monotonic();
    this.#nextLook = Infinity;
    try {
      const before = new Set(this.#found);
      this.#found = await find();
      const fresh = this.#found.filter((name) => !before.has(name));
      if (fresh.length > 0)
        log.warn({ entries: fresh.slice(0, namedInLog), count: fresh.length }, `${what.several}; left alone`);
    } catch (error) {
      log.warn({ err: error }, 'a folder could not be searched for foreign files');
    }
    const now = clock.monotonic();
    this.#nextLook = now + Math.max(lookEveryMs, (now - began) * restFactor);
  }

  /** Answers from what is known. */
  report(): HealthReport {
    const count = this.#found.length;
    if (count === 0) return { status: 'up' };
    const { what, clock } = this.#input;
    if (clock.monotonic() >= this.#nextLook) void this.look();
    const names = this.#found.slice(0, namedInHealth).map((name) => JSON.stringify(name.slice(0, 100)));
    const more = count > namedInHealth ? ` and ${count - namedInHealth} more` : '';
    const found = pluralize(count, `${what.one}, and is`, `${what.several}, and are`);
    return { status: 'degraded', why: `${found} left alone: ${names.join(', ')}${more}.` };
  }
}
