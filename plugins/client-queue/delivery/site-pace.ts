import type { Clock } from '../../../core/clock.js';
import type { Lease } from '../../../core/contracts/queue-lease.js';
import type { ServersTried } from './attempt-result.js';

/** What holds for a site now. */
export interface PaceLimits {
  readonly maxConnections: number;
  readonly ratePerMinute: number | undefined;
  readonly suspended: boolean;
}

export const takesNothing = ({ suspended, maxConnections }: PaceLimits): boolean => suspended || maxConnections === 0;

/** Connections to a site that nothing is known of. */
const firstConnections = 5;
/** So long the work that is fetched ahead of the connections lasts. */
const aheadMs = 100;
const maxAhead = 400;
/** A rate is measured over so many milliseconds. */
const windowMs = 500;
/** Who could not be reached is remembered for so long. */
const recoveryMs = 3_600_000;
const idleMs = 60_000;
/** Who has answered is believed to answer for so long. */
const provenMs = 600_000;

interface Waiting {
  readonly lease: Lease;
  readonly since: number;
}

/**
 * How much work the servers of a site may have at a time. It begins with few connections and grows with each success; one that could not
 * be reached gets a single try at a time until that works: whoever comes back is not run over.
 */
export class SitePace {
  readonly #clock: Clock;
  #window: number = firstConnections;
  /** Fetched, and waiting for a connection, the oldest first. */
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

  /** Fetched from the queue and not ended. */
  get busy(): number {
    return this.#running + this.#waiting.length;
  }

  /** True while one try at a time shows whether it is back. */
  get recovering(): boolean {
    return this.#recovering;
  }

  /** True when its servers answered a short while ago. */
  get isProven(): boolean {
    return !this.#recovering && this.#clock.monotonic() - this.#answeredAt < provenMs;
  }

  /** Idle for so long that it may be forgotten. */
  isStale(): boolean {
    return this.busy === 0 && this.#clock.monotonic() - this.#usedAt > (this.#recovering ? recoveryMs : idleMs);
  }

  /** Connections it may have now. */
  connections({ maxConnections }: PaceLimits): number {
    return this.#recovering ? Math.min(1, maxConnections) : Math.min(Math.ceil(this.#window), maxConnections);
  }

  /** How many more messages may be fetched for it: those that connections wait for, and a little ahead where it is fast. */
  room(limits: PaceLimits): number {
    if (takesNothing(limits)) return 0;
    const ahead = this.#recovering ? 0 : Math.min(maxAhead, Math.floor(this.#perMs * aheadMs));
    const room = this.connections(limits) + ahead - this.busy;
    return limits.ratePerMinute === undefined ? room : Math.min(room, this.#rate.left(limits.ratePerMinute));
  }

  fetched(lease: Lease, limits: PaceLimits): void {
    this.#usedAt = this.#clock.monotonic();
    this.#waiting.push({ lease, since: this.#usedAt });
    if (limits.ratePerMinute !== undefined) this.#rate.take();
  }

  /** One that may begin now, counted as begun. */
  next(limits: PaceLimits): Lease | undefined {
    if (limits.suspended || this.#running >= this.connections(limits)) return undefined;
    const first = this.#waiting.shift();
    if (first !== undefined) this.#running += 1;
    return first?.lease;
  }

  /** Those of them that have not begun, to be given back. */
  unbegun(wanted: (lease: Lease) => boolean): readonly Lease[] {
    if (this.#waiting.length === 0) return [];
    return this.#takeBack(({ lease }) => wanted(lease));
  }

  /** Those of them that wait for so long, to be given back. */
  overdue(waitedMs: number): readonly Lease[] {
    const before = this.#clock.monotonic() - waitedMs;
    const [oldest] = this.#waiting;
    return oldest === undefined || oldest.since > before ? [] : this.#takeBack(({ since }) => since <= before);
  }

  #takeBack(wanted: (one: Waiting) => boolean): readonly Lease[] {
    const given = this.#waiting.filter(wanted);
    if (given.length > 0) this.#waiting = this.#waiting.filter((one) => !wanted(one));
    return given.map(({ lease }) => lease);
  }

  /** Who stalls has not answered, and is not out of reach: it is as if nothing had been tried. */
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

/** How many messages a rate allows: a second's worth may be saved up, so that a pause is not made good by a flood. */
export class RateAllowance {
  readonly #clock: Clock;
  #tokens = 1;
  #refilledAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#refilledAt = clock.monotonic();
  }

  /** Messages that are allowed now. */
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
