import type { Clock } from '../clock.js';
import type { AttemptCounts, AttemptLimits, CountedAttempts } from '../contracts/cluster.js';

interface AttemptLimiterOptions {
  /** Attempts of a key within the window. */
  readonly limit: number;
  readonly windowSeconds: number;
  /** Keys remembered at most; the one unused longest is evicted first. */
  readonly maxKeys: number;
  readonly clock: Clock;
}

/** Attempts of one key in the current window and the previous one. */
interface Count {
  /** Start of the current window, monotonic milliseconds. */
  readonly start: number;
  readonly present: number;
  readonly previous: number;
  /** The same of other servers. */
  readonly presentElsewhere: number;
  readonly previousElsewhere: number;
  /** When `record` last reported that the key is over the limit. */
  readonly toldAt: number;
}

const nothing = { present: 0, previous: 0, presentElsewhere: 0, previousElsewhere: 0, toldAt: -Infinity };

/**
 * Counts attempts per key in a sliding window, made of two fixed ones: the previous one counts for the share that the
 * sliding window still covers. Six numbers a key, whatever the limit; no timer.
 */
export class AttemptLimiter implements AttemptCounts {
  readonly windowSeconds: number;
  readonly #limit: number;
  readonly #windowMs: number;
  readonly #maxKeys: number;
  readonly #clock: Clock;
  /** Ordered by last attempt. */
  readonly #counts = new Map<string, Count>();
  /** Keys for `changes`, once it was called. */
  #changed: Set<string> | undefined;

  constructor({ limit, windowSeconds, maxKeys, clock }: AttemptLimiterOptions) {
    this.#limit = limit;
    this.windowSeconds = windowSeconds;
    this.#windowMs = windowSeconds * 1000;
    this.#maxKeys = maxKeys;
    this.#clock = clock;
  }

  get size(): number {
    return this.#counts.size;
  }

  /**
   * Seconds until the key may make another attempt, rounded up; 0 is now.
   *
   * @param more attempts to count that are not recorded yet
   */
  retryAfter(key: string, more = 0): number {
    const now = this.#clock.monotonic();
    return Math.ceil(this.#waitMs(this.#at(key, now), now, more) / 1000);
  }

  /**
   * Counts an attempt; for passwords, a failed one. True when this puts the key over the limit; reported once in each
   * window.
   */
  record(key: string): boolean {
    const now = this.#clock.monotonic();
    const before = this.#at(key, now);
    const count = { ...before, present: before.present + 1 };
    const isNews = now - count.toldAt >= this.#windowMs && this.#waitMs(count, now) > 0;
    this.#counts.delete(key);
    this.#counts.set(key, isNews ? { ...count, toldAt: now } : count);
    this.#note(key);
    this.#forgetOld(now);
    return isNews;
  }

  /** Clears a key after a success. */
  forget(key: string): void {
    if (this.#counts.delete(key)) this.#note(key);
  }

  changes(max: number): readonly ({ readonly key: string } & CountedAttempts)[] {
    this.#changed ??= new Set(this.#counts.keys());
    const now = this.#clock.monotonic();
    const keys = [...this.#changed].slice(0, max);
    for (const key of keys) this.#changed.delete(key);
    return keys.map((key) => {
      const { start, present } = this.#at(key, now);
      return { key, window: start, count: present };
    });
  }

  /** Windows of other servers count as the ones of this server that are nearest to them. */
  merge(key: string, counts: readonly CountedAttempts[]): void {
    if (counts.length === 0 && !this.#counts.has(key)) return;
    const now = this.#clock.monotonic();
    const latest = Math.max(...counts.map(({ window }) => window));
    const own = this.#at(key, now, Math.min(latest, now));
    const age = ({ window }: CountedAttempts) => Math.max(0, Math.round((own.start - window) / this.#windowMs));
    const sum = (windows: number) =>
      counts.filter((one) => age(one) === windows).reduce((total, { count }) => total + count, 0);
    this.#counts.set(key, { ...own, presentElsewhere: sum(0), previousElsewhere: sum(1) });
    this.#forgetOld(now);
  }

  #note(key: string): void {
    if (this.#changed === undefined) return;
    this.#changed.delete(key);
    this.#changed.add(key);
    const [oldest] = this.#changed;
    if (this.#changed.size > this.#maxKeys && oldest !== undefined) this.#changed.delete(oldest);
  }

  /** The count of the window that contains `now`; that of a new key begins at `start`, or windows later. */
  #at(key: string, now: number, start = now): Count {
    const count = this.#counts.get(key) ?? { ...nothing, start };
    const windows = Math.floor((now - count.start) / this.#windowMs);
    if (windows < 1) return count;
    return {
      ...count,
      start: count.start + windows * this.#windowMs,
      present: 0,
      previous: windows === 1 ? count.present : 0,
      presentElsewhere: 0,
      previousElsewhere: windows === 1 ? count.presentElsewhere : 0,
    };
  }

  /** Time until the weighted count, including one more attempt, is within the limit. */
  #waitMs(count: Count, now: number, more = 0): number {
    const elapsedMs = now - count.start;
    const present = count.present + count.presentElsewhere + more;
    const previous = count.previous + count.previousElsewhere;
    const spare = this.#limit - 1 - present;
    if (spare >= 0) return Math.max(0, this.#fitsAt(previous, spare) - elapsedMs);
    return this.#windowMs - elapsedMs + this.#fitsAt(present, this.#limit - 1);
  }

  /** When the attempts of the previous window weigh no more than `spare`. */
  #fitsAt(previous: number, spare: number): number {
    return previous <= spare ? 0 : this.#windowMs - (this.#windowMs * spare) / previous;
  }

  /** Evicts expired keys, and the oldest beyond `maxKeys`. */
  #forgetOld(now: number): void {
    for (const [key, { start }] of this.#counts) {
      if (this.#counts.size <= this.#maxKeys && now - start < 2 * this.#windowMs) return;
      this.#counts.delete(key);
    }
  }
}

/** The limits of this server, by name. */
export class AttemptLimitRegistry implements AttemptLimits {
  readonly #limits = new Map<string, () => AttemptCounts>();

  add(name: string, counts: () => AttemptCounts): () => void {
    this.#limits.set(name, counts);
    return () => {
      if (this.#limits.get(name) === counts) this.#limits.delete(name);
    };
  }

  all(): ReadonlyMap<string, AttemptCounts> {
    return new Map([...this.#limits].map(([name, counts]) => [name, counts()]));
  }
}

/**
 * Limits concurrent attempts of a key: each running one counts as a failure until it ends, and further ones wait. So
 * many correct attempts at once all succeed, and of many wrong ones no more run than the limiter allows.
 */
export class ConcurrentAttempts {
  readonly #limiter: () => Pick<AttemptLimiter, 'retryAfter'>;
  readonly #places = new Map<string, Places>();

  /** @param limiter the current one */
  constructor(limiter: () => Pick<AttemptLimiter, 'retryAfter'>) {
    this.#limiter = limiter;
  }

  /**
   * The result of the attempt, which records its own failure; undefined, without an attempt, when the key has to wait.
   */
  async run<T>(key: string, attempt: () => Promise<T>): Promise<T | undefined> {
    while (!this.#hasPlace(key)) await this.#change(key);
    if (this.#limiter().retryAfter(key) > 0) return undefined;
    this.#placesOf(key).taken += 1;
    try {
      return await attempt();
    } finally {
      this.#leave(key);
    }
  }

  /** Also true when the key is over the limit: then it need not queue. */
  #hasPlace(key: string): boolean {
    const taken = this.#places.get(key)?.taken ?? 0;
    const limiter = this.#limiter();
    return taken === 0 || limiter.retryAfter(key) > 0 || limiter.retryAfter(key, taken) === 0;
  }

  /** Resolves when an attempt of the key has ended. */
  #change(key: string): Promise<void> {
    return new Promise((resolve) => {
      this.#placesOf(key).waiting.push(resolve);
    });
  }

  #leave(key: string): void {
    const places = this.#placesOf(key);
    places.taken -= 1;
    const woken = places.waiting;
    places.waiting = [];
    if (places.taken === 0) this.#places.delete(key);
    for (const wake of woken) wake();
  }

  #placesOf(key: string): Places {
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    const places: Places = { taken: 0, waiting: [] };
    this.#places.set(key, places);
    return places;
  }
}

interface Places {
  taken: number;
  waiting: (() => void)[];
}
