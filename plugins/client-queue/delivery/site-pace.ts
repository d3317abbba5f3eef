import type { Clock } from '../../../core/clock.js';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import type { PaceLimits } from '../../../core/contracts/cluster.js';
import type { ServersTried } from './attempt-result.js';

export const takesNothing = ({ suspended, maxConnections }: PaceLimits): boolean => suspended || maxConnections === 0;

/** Connections to an unknown site. */
const firstConnections = 5;
/** Duration of the work that is fetched ahead of the connections. */
const aheadMs = 100;
const maxAhead = 400;
/** Window of a rate in milliseconds. */
const windowMs = 500;
/** How long an unreachable site is remembered. */
const recoveryMs = 3_600_000;
const idleMs = 60_000;
/** How long a site counts as answering after a reply. */
const provenMs = 600_000;

interface Waiting {
  readonly lease: Lease;
  readonly since: number;
}

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
  #running = 0;
  #recovering = false;
  #answeredAt = -Infinity;
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
    return this.#running + this.#waiting.length;
  }

  get running(): number {
    return this.#running;
  }

  /** True while single attempts probe the site. */
  get recovering(): boolean {
    return this.#recovering;
  }

  /** True when its servers answered recently. */
  get isProven(): boolean {
    return !this.#recovering && this.#clock.monotonic() - this.#answeredAt < provenMs;
  }

  /** Idle for so long that it may be dropped. */
  isStale(): boolean {
    return this.busy === 0 && this.#clock.monotonic() - this.#usedAt > (this.#recovering ? recoveryMs : idleMs);
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
  next(limits: PaceLimits): Lease | undefined {
    if (limits.suspended || this.#running >= this.connections(limits)) return undefined;
    const first = this.#waiting.shift();
    if (first !== undefined) this.#running += 1;
    return first?.lease;
  }

  /** Those not started, to be returned. */
  unbegun(wanted: (lease: Lease) => boolean): readonly Lease[] {
    if (this.#waiting.length === 0) return [];
    return this.#removeWaiting(({ lease }) => wanted(lease));
  }

  /** Those that waited for too long, to be returned. */
  overdue(waitedMs: number): readonly Lease[] {
    const before = this.#clock.monotonic() - waitedMs;
    const [oldest] = this.#waiting;
    return oldest === undefined || oldest.since > before ? [] : this.#removeWaiting(({ since }) => since <= before);
  }

  #removeWaiting(wanted: (one: Waiting) => boolean): readonly Lease[] {
    const given = this.#waiting.filter(wanted);
    if (given.length > 0) this.#waiting = this.#waiting.filter((one) => !wanted(one));
    return given.map(({ lease }) => lease);
  }

  /** A stall is neither an answer nor a failed connection: nothing changes. */
  ended(outcome: ServersTried | 'untried'): void {
    this.#running -= 1;
    if (outcome === 'untried' || outcome === 'stalled') return;
    if (outcome === 'unreachable') {
      this.#recovering = true;
      this.#window = 1;
      this.#perMs = 0;
      return;
    }
    this.#recovering = false;
    this.#answeredAt = this.#clock.monotonic();
    this.#window += 1;
    this.#count();
  }

  #count(): void {
    const now = this.#clock.monotonic();
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
