import type { Clock } from '../../../core/clock.js';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import type { PaceLimits } from '../../../core/contracts/cluster.js';
import type { RunningAttempt, ServersTried } from './attempt-result.js';

export const takesNothing = ({ suspended, maxConnections }: PaceLimits): boolean => suspended || maxConnections === 0;

/** Connections to an unknown site. */
export const firstConnections = 5;
/** Duration of the work that is fetched ahead of the connections. */
const aheadMs = 100;
const maxAhead = 400;
/** Window of a rate in milliseconds. */
const windowMs = 500;
/** How long an unreachable site is remembered. */
const recoveryMs = 3_600_000;
const idleMs = 60_000;
/** How long a site counts as useful after a message got through. */
const provenMs = 600_000;
/** An attempt that runs this long hangs, unless others at its site get through meanwhile. */
export const hangMs = 3000;
/** Attempts in a row by which nothing got through; then the site has to prove itself again. */
const maxFruitless = 20;

interface Waiting {
  readonly lease: Lease;
  readonly since: number;
}

/** How an attempt ended: `delivered` with a final verdict about a recipient, else as the servers reacted. */
export type AttemptEnd = 'untried' | 'delivered' | ServersTried;

/**
 * How much a site may have. `proven`: messages got through lately. `hanging`: attempts take long, and nothing got
 * through meanwhile. All others are `untested`.
 */
export type Standing = 'proven' | 'untested' | 'hanging';

/**
 * Concurrency of a site. It starts with few connections and grows with each success; an unreachable one gets a single
 * attempt at a time until that works, so that a recovering server is not flooded.
 */
export class SitePace {
  readonly #clock: Clock;
  #window: number = firstConnections;
  /** Fetched, waiting for a connection, the oldest first. */
  #waiting: Waiting[] = [];
  readonly #rate: RateAllowance;
  /** The oldest first. */
  readonly #running = new Set<RunningAttempt>();
  #recovering = false;
  #hanging = false;
  #deliveredAt = -Infinity;
  /** Attempts since then by which nothing got through. */
  #fruitless = 0;
  #counted = 0;
  #countedSince: number;
  #perMs = 0;
  #usedAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#rate = new RateAllowance(clock);
    this.#countedSince = clock.monotonic();
    this.#usedAt = this.#countedSince;
  }

  /** Fetched from the queue and not finished. */
  get busy(): number {
    return this.#running.size + this.#waiting.length;
  }

  get running(): number {
    return this.#running.size;
  }

  /** True while single attempts probe the site. */
  get recovering(): boolean {
    return this.#recovering;
  }

  get standing(): Standing {
    if (this.#hanging || this.#isStuck) return 'hanging';
    const isUseful = !this.#recovering && this.#fruitless < maxFruitless;
    return isUseful && this.#clock.monotonic() - this.#deliveredAt < provenMs ? 'proven' : 'untested';
  }

  /** True once, when it begins to hang. */
  beginsToHang(): boolean {
    if (this.#hanging || !this.#isStuck) return false;
    this.#hanging = true;
    return true;
  }

  /** An attempt that began after the last success runs for too long. */
  get #isStuck(): boolean {
    const before = this.#clock.monotonic() - hangMs;
    for (const { since } of this.#running) {
      if (since > before) return false;
      if (since >= this.#deliveredAt) return true;
    }
    return false;
  }

  /** Attempts that run for too long while nothing gets through, the oldest first. */
  get overdue(): readonly RunningAttempt[] {
    const before = this.#clock.monotonic() - hangMs;
    if (this.#running.size === 0 || this.#deliveredAt > before) return [];
    return [...this.#running].filter(({ since }) => since <= before);
  }

  /** Idle for so long that it may be dropped. */
  isStale(): boolean {
    return (
      this.busy === 0 &&
      this.#clock.monotonic() - this.#usedAt > (this.#recovering || this.#hanging ? recoveryMs : idleMs)
    );
  }

  /** Connections allowed now. */
  connections({ maxConnections }: PaceLimits): number {
    return this.#recovering ? Math.min(1, maxConnections) : Math.min(Math.ceil(this.#window), maxConnections);
  }

  /** How many more messages to fetch: for free connections, and a little ahead for fast sites. */
  room(limits: PaceLimits): number {
    if (takesNothing(limits)) return 0;
    const room = this.connections(limits) + this.#ahead - this.busy;
    return limits.ratePerMinute === undefined ? room : Math.min(room, this.#rate.left(limits.ratePerMinute));
  }

  /** A site that hangs gets another connection only when all that it has hang. */
  get mayTryAgain(): boolean {
    return this.busy === this.overdue.length && this.busy < firstConnections;
  }

  get #ahead(): number {
    return this.#recovering ? 0 : Math.min(maxAhead, Math.floor(this.#perMs * aheadMs));
  }

  /** True when no more than half of what is fetched ahead is left. */
  get isLow(): boolean {
    return 2 * this.#waiting.length <= this.#ahead;
  }

  fetched(lease: Lease, limits: PaceLimits): void {
    this.#usedAt = this.#clock.monotonic();
    this.#waiting.push({ lease, since: this.#usedAt });
    if (limits.ratePerMinute !== undefined) this.#rate.take();
  }

  /** Takes one that may start now, and counts it. */
  next(limits: PaceLimits): RunningAttempt | undefined {
    if (!this.mayBegin(limits)) return undefined;
    const first = this.#waiting.shift();
    if (first === undefined) return undefined;
    const attempt = { lease: first.lease, since: this.#clock.monotonic() };
    this.#running.add(attempt);
    return attempt;
  }

  /** True when one waits, and may begin as far as the site is concerned. */
  mayBegin(limits: PaceLimits): boolean {
    return this.#waiting.length > 0 && !limits.suspended && this.#running.size < this.connections(limits);
  }

  /** Those not started, to be returned. */
  unbegun(wanted: (lease: Lease) => boolean): readonly Lease[] {
    if (this.#waiting.length === 0) return [];
    return this.#removeWaiting(({ lease }) => wanted(lease));
  }

  /** Those that waited for too long, to be returned. */
  waitedTooLong(waitedMs: number): readonly Lease[] {
    const before = this.#clock.monotonic() - waitedMs;
    const [oldest] = this.#waiting;
    return oldest === undefined || oldest.since > before ? [] : this.#removeWaiting(({ since }) => since <= before);
  }

  #removeWaiting(wanted: (one: Waiting) => boolean): readonly Lease[] {
    const given = this.#waiting.filter(wanted);
    if (given.length > 0) this.#waiting = this.#waiting.filter((one) => !wanted(one));
    return given.map(({ lease }) => lease);
  }

  /** A stall is neither an answer nor a failed connection: the number of connections stays. */
  ended(attempt: RunningAttempt, end: AttemptEnd): void {
    this.#running.delete(attempt);
    if (end === 'untried') return;
    const now = this.#clock.monotonic();
    if (end === 'delivered') {
      this.#recovering = false;
      this.#hanging = false;
      this.#deliveredAt = now;
      this.#fruitless = 0;
      this.#window += 1;
      this.#count(now);
      return;
    }
    this.#fruitless += 1;
    if (end === 'stalled') this.#hanging ||= attempt.since >= this.#deliveredAt;
    else if (end === 'unreachable') {
      this.#recovering = true;
      this.#window = 1;
      this.#perMs = 0;
    } else {
      this.#recovering = false;
      // Refusals cost little time.
      if (now - attempt.since < hangMs) this.#hanging = false;
    }
  }

  #count(now: number): void {
    this.#counted += 1;
    const ms = now - this.#countedSince;
    if (ms < windowMs && this.#counted < 200) return;
    this.#perMs = this.#counted / Math.max(1, ms);
    this.#counted = 0;
    this.#countedSince = now;
  }
}

/** How many messages a rate allows; at most one second's worth accumulates, so that no burst follows a pause. */
export class RateAllowance {
  readonly #clock: Clock;
  #tokens = 1;
  #refilledAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#refilledAt = clock.monotonic();
  }

  /** Messages allowed now. */
  left(perMinute: number): number {
    const now = this.#clock.monotonic();
    const most = Math.max(1, perMinute / 60);
    this.#tokens = Math.min(most, this.#tokens + ((now - this.#refilledAt) * perMinute) / 60_000);
    this.#refilledAt = now;
    return Math.floor(this.#tokens);
  }

  take(): void {
    this.#tokens -= 1;
  }
}
