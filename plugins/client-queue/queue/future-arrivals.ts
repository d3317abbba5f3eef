import { jumpMs } from './clock-watch.js';
import type { QueuedEntry } from './queued-entry.js';

/**
 * Mail that was accepted while the clock was ahead: it would be kept too long. It counts as accepted when a clock that goes steadily
 * has shown it; one that jumps may have been wrong until then, so that what it has shown is forgotten. What an earlier process has seen
 * counts while the times of the entry are still to come: when they are not, the clock may have been behind then.
 */
export class FutureArrivals {
  #seen = new WeakMap<QueuedEntry, number>();

  forget(): void {
    this.#seen = new WeakMap();
  }

  /** By how many milliseconds the times of the entry are too late, as a clock that goes steadily says. */
  aheadOf(entry: QueuedEntry, now: number): number {
    const seen = this.#seen.get(entry);
    if (seen !== undefined) return entry.queuedAt - seen;
    if (entry.queuedAt <= now + jumpMs) return 0;
    const from = Math.min(entry.details.countsFrom ?? now, now);
    this.#seen.set(entry, from);
    return entry.queuedAt - from;
  }
}
