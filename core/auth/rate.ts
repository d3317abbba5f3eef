import type { Clock } from '../clock.js';

export interface AttemptLimiterOptions {
  /** Attempts that a key may record within the window. */
  readonly limit: number;
  readonly windowSeconds: number;
  /** Keys that are remembered; beyond that the one that was quiet longest is forgotten. */
  readonly maxKeys: number;
  readonly clock: Clock;
}

/** Attempts of one key in the present window and the one before it. */
interface Count {
  /** Start of the present window, in milliseconds of the monotonic clock. */
  readonly start: number;
  readonly present: number;
  readonly previous: number;
  /** When it was last said that the key is over the limit. */
  readonly toldAt: number;
}

/**
 * Counts attempts per key in a sliding window and says how long a key must wait. The window is made of two fixed ones: the
 * previous counts for the share of it that the sliding one still covers. Costs four numbers a key, whatever the limit; has
 * no timer.
 */
export class AttemptLimiter {
  readonly #limit: number;
  readonly #windowMs: number;
  readonly #maxKeys: number;
  readonly #clock: Clock;
  /** The key that recorded last is the last one. */
  readonly #counts = new Map<string, Count>();

  constructor({ limit, windowSeconds, maxKeys, clock }: AttemptLimiterOptions) {
    this.#limit = limit;
    this.#windowMs = windowSeconds * 1000;
    this.#maxKeys = maxKeys;
    this.#clock = clock;
  }

  /** Keys that are remembered. */
  get size(): number {
    return this.#counts.size;
  }

  /**
   * Seconds, rounded up, until the key may make another attempt; 0 is now.
   *
   * @param more attempts that count though they are not recorded yet
   */
  retryAfter(key: string, more = 0): number {
    const now = this.#clock.monotonic();
    const { start, present, previous } = this.#at(key, now);
    return Math.ceil(this.#waitMs({ present: present + more, previous }, now - start) / 1000);
  }

  /** Counts an attempt: of passwords, one that failed. True when the key must wait now; that is said once in each window. */
  record(key: string): boolean {
    const now = this.#clock.monotonic();
    const before = this.#at(key, now);
    const count = { ...before, present: before.present + 1 };
    const isNews = now - count.toldAt >= this.#windowMs && this.#waitMs(count, now - count.start) > 0;
    this.#counts.delete(key);
    this.#counts.set(key, isNews ? { ...count, toldAt: now } : count);
    this.#forgetOld(now);
    return isNews;
  }

  /** The key has shown that it is honest. */
  forget(key: string): void {
    this.#counts.delete(key);
  }

  /** The count in the window that `now` lies in. */
  #at(key: string, now: number): Count {
    const count = this.#counts.get(key) ?? { start: now, present: 0, previous: 0, toldAt: -Infinity };
    const windows = Math.floor((now - count.start) / this.#windowMs);
    if (windows < 1) return count;
    const previous = windows === 1 ? count.present : 0;
    return { ...count, start: count.start + windows * this.#windowMs, present: 0, previous };
  }

  /** Until the weighted count, one more attempt included, fits into the limit. */
  #waitMs({ present, previous }: Pick<Count, 'present' | 'previous'>, elapsedMs: number): number {
    const spare = this.#limit - 1 - present;
    if (spare >= 0) return Math.max(0, this.#fitsAt(previous, spare) - elapsedMs);
    return this.#windowMs - elapsedMs + this.#fitsAt(present, this.#limit - 1);
  }

  /** When in a window the attempts of the one before it count for no more than `spare`. */
  #fitsAt(previous: number, spare: number): number {
    return previous <= spare ? 0 : this.#windowMs - (this.#windowMs * spare) / previous;
  }

  /** From the quiet end: keys whose attempts no longer count, and what is too many. */
  #forgetOld(now: number): void {
    for (const [key, { start }] of this.#counts) {
      if (this.#counts.size <= this.#maxKeys && now - start < 2 * this.#windowMs) return;
      this.#counts.delete(key);
    }
  }
}
