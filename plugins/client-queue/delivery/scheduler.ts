import type { Clock } from '../../../core/clock.js';
import type { Lease, RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import type { PaceLimits, SiteShares } from '../../../core/contracts/cluster.js';
import type { Log } from '../../../core/log/log.js';
import type { ClientQueueSettings } from '../options.js';
import type { DestinationControls } from './destination-controls.js';
import { RateAllowance, SitePace, takesNothing } from './site-pace.js';
import { siteLimits, targetKey } from './destination.js';
import type { Sites } from './sites.js';
import { type AttemptResult, isFruitful, type RunningAttempt } from './attempt-result.js';
import { Trials } from './trials.js';

type SchedulerSettings = Pick<ClientQueueSettings, 'maxConnections' | 'destination' | 'sites'>;

interface SchedulerInput {
  readonly queue: Pick<RelayQueue, 'claim' | 'nextDue' | 'onDue'>;
  readonly controls: Pick<DestinationControls, 'get' | 'onChange'>;
  readonly shares: SiteShares;
  readonly sites: Pick<Sites, 'of' | 'onFound'>;
  readonly settings: () => SchedulerSettings;
  readonly clock: Clock;
  readonly log: Log;
  /** Tries its lease with a limited number of connections to its site. Never rejects. */
  readonly attempt: (attempt: RunningAttempt, connections: number) => Promise<AttemptResult>;
  /** Closes idle connections to a site, until it has that number with those in use. */
  readonly trim: (site: string, connections: number) => void;
  /** Records the result, however long that takes. Never rejects. */
  readonly settle: (lease: Lease, tried: AttemptResult) => Promise<void>;
}

/** Longer than any attempt: two servers, each with its deadline. */
const leaseMs = 90 * 60_000;
/** A lease that waits this long for a connection is returned, so that what begins ends before the lease does. */
const maxAheadMs = 5 * 60_000;
/** Every server accepts this many recipients at a time (RFC 5321 §4.5.3.1.8); more may be refused. */
const maxRecipients = 100;
/** Leases fetched at a time. */
const maxClaimed = 256;
/** Leases beyond the connections: results being recorded, and work fetched ahead. */
const maxAhead = 500;
/** Interval at which a site without room is checked again, and attempts that hang are looked for. */
const blockedMs = 250;
const faultMs = 1000;
const maxWaitMs = 60_000;
const manyPaces = 1000;

/** What a site has now. */
export interface PaceState {
  readonly connections: number;
  readonly busy: number;
  /** Single attempts probe the site. */
  readonly recovering: boolean;
  /** Attempts take long and nothing gets through: it has what is left for such sites. */
  readonly hanging: boolean;
}

/** A site of this server itself needs none. */
const takesConnection = (site: string): boolean => !site.startsWith(targetKey(''));

/** Fetches due work as fast as the servers of each site accept it. */
export class Scheduler {
  readonly #input: SchedulerInput;
  readonly #paces = new Map<string, SitePace>();
  readonly #destinations: DestinationLimits;
  readonly #undo: (() => void)[] = [];
  readonly #trials: Trials;
  readonly #attempts = new Set<RunningAttempt>();
  /** Sites whose leases wait for a connection of any site; they take turns. */
  readonly #blocked = new Set<string>();
  #running = false;
  #claiming = false;
  #again = false;
  /** So much is fetched that the last claim was not made. */
  #isFull = false;
  #trying = 0;
  #settling = 0;
  /** Connections in use. */
  #connected = 0;
  #lookedAt = -Infinity;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Infinity;
  #fault: string | undefined;
  #manyPaces = manyPaces;
  #idle: (() => void)[] = [];

  constructor(input: SchedulerInput) {
    this.#input = input;
    this.#destinations = new DestinationLimits(input);
    this.#trials = new Trials(input.clock);
  }

  /** Why fetching has stopped; undefined when all is well. */
  get fault(): string | undefined {
    return this.#fault;
  }

  get trying(): number {
    return this.#trying;
  }

  /** State of a site; undefined when nothing was sent there lately. */
  pace(site: string): PaceState | undefined {
    const pace = this.#paces.get(site);
    if (pace === undefined) return undefined;
    const { busy, recovering, standing } = pace;
    return { connections: pace.connections(this.#share(site)), busy, recovering, hanging: standing === 'hanging' };
  }

  start(): void {
    this.#running = true;
    this.#undo.push(
      this.#input.queue.onDue(() => this.#wake()),
      this.#input.controls.onChange((key) => {
        this.#suspend(key);
        this.#wake();
      }),
      this.#input.sites.onFound(() => this.#wake()),
      this.#input.shares.onChange((site) => {
        const pace = this.#paces.get(site);
        if (pace !== undefined) this.#serve(site, pace);
        this.#wake();
      }),
    );
    this.#wake();
  }

  /** Stops fetching. */
  stop(): void {
    this.#running = false;
    clearTimeout(this.#timer);
    this.#returnUnbegun();
    for (const undo of this.#undo.splice(0)) undo();
  }

  /** Called periodically: returns work that found no connection. */
  returnOverdue(): void {
    for (const pace of this.#paces.values()) this.#returnAll(pace.waitedTooLong(maxAheadMs));
  }

  /** Ends what runs, as far as the other side cannot have the message. */
  cutAll(): void {
    for (const attempt of this.#attempts) attempt.cut?.();
  }

  /** Resolves when nothing is in progress. */
  async idle(): Promise<void> {
    if (this.#trying + this.#settling > 0 || this.#claiming) {
      await new Promise<void>((resolve) => this.#idle.push(resolve));
    }
  }

  #wake(): void {
    this.#again = true;
    if (this.#running && !this.#claiming) void this.#claim();
  }

  async #claim(): Promise<void> {
    this.#claiming = true;
    try {
      while (this.#again && this.#running) {
        this.#again = false;
        await this.#claimOnce();
      }
      this.#fault = undefined;
    } catch (error) {
      if (this.#fault === undefined) this.#input.log.error({ err: error }, 'nothing can be fetched from the queue');
      this.#fault = 'The queue does not give out what is due; the log says why.';
    }
    this.#claiming = false;
    this.#arm();
    this.#rest();
  }

  async #claimOnce(): Promise<void> {
    const { queue, clock, settings, sites } = this.#input;
    const { maxConnections } = settings();
    this.#lookForHanging(maxConnections);
    const limit = Math.min(maxClaimed, maxConnections + maxAhead - this.#trying - this.#settling);
    this.#isFull = limit <= 0;
    if (this.#isFull) return;
    this.#trials.begin(maxConnections);
    const leases = await queue.claim({
      now: clock.now(),
      limit,
      maxRecipients,
      leaseMs,
      room: (destination) => this.#destinations.room(destination),
      sites: { of: (name) => sites.of(name), room: (site) => this.#room(site) },
    });
    if (leases.length === limit) this.#again = true;
    for (const lease of leases) {
      this.#trying += 1;
      this.#destinations.fetched(lease.destination);
      const site = sites.of(lease.destination) ?? lease.destination;
      const pace = this.#paceOf(site);
      pace.fetched(lease, this.#share(site));
      this.#trials.fetched(pace);
      this.#serve(site, pace);
    }
    if (this.#trials.mayGrantMore) this.#again = true;
    if (!this.#running) this.#returnUnbegun();
  }

  #room(site: string): number {
    const pace = this.#paceOf(site);
    const most = this.#trials.most(pace);
    if (most === 0) return 0;
    const limits = this.limits(site);
    const room = Math.min(most, pace.room(this.#input.shares.of(site, limits)));
    if (room <= 0 && !takesNothing(limits)) {
      this.#input.shares.use(site, limits, { running: pace.running, waiting: true, idleMs: this.#idleMs });
    }
    this.#trials.grant(pace, room);
    return room;
  }

  /**
   * A site that begins to hang keeps none of what was fetched ahead for it. Where others wait, attempts that hang beyond
   * their part are ended.
   */
  #lookForHanging(maxConnections: number): void {
    const now = this.#input.clock.monotonic();
    if (now - this.#lookedAt < blockedMs) return;
    this.#lookedAt = now;
    for (const pace of this.#trials.beginningToHang()) this.#returnAll(pace.unbegun(() => true));
    const excess = this.#trials.excess(maxConnections, this.#blocked.size > 0);
    let left = excess.count;
    for (const attempt of excess.of) {
      if (left <= 0) return;
      if (attempt.cut?.() === true) left -= 1;
    }
  }

  /** Starts fetched work as far as there are connections for it. */
  #serve(site: string, pace: SitePace): void {
    const { shares, settings } = this.#input;
    const limits = this.limits(site);
    const share = shares.of(site, limits);
    this.#returnAll(pace.waitedTooLong(maxAheadMs));
    while (pace.mayBegin(share)) {
      if (this.#connected >= settings().maxConnections && takesConnection(site)) {
        this.#blocked.add(site);
        break;
      }
      const attempt = pace.next(share);
      if (attempt === undefined) break;
      void this.#work(attempt, pace, site);
    }
    this.#input.trim(site, share.maxConnections);
    // Suspended after they were fetched.
    if (takesNothing(share)) this.#returnAll(pace.unbegun(() => true));
    shares.use(site, limits, { running: pace.running, waiting: pace.busy > pace.running, idleMs: this.#idleMs });
  }

  async #work(attempt: RunningAttempt, pace: SitePace, site: string): Promise<void> {
    this.#attempts.add(attempt);
    const connections = takesConnection(site) ? 1 : 0;
    this.#connected += connections;
    const tried = await this.#input.attempt(attempt, Math.max(1, pace.connections(this.#share(site))));
    this.#connected -= connections;
    this.#attempts.delete(attempt);
    const end = tried.verdicts.size === 0 ? 'untried' : isFruitful(tried) ? 'delivered' : tried.servers;
    if (end !== 'untried' && end !== 'delivered') this.#trials.failed(pace);
    pace.ended(attempt, end);
    this.#serveBlocked();
    this.#serve(site, pace);
    await this.#settle(attempt.lease, tried);
  }

  /** A connection is free. */
  #serveBlocked(): void {
    for (const site of this.#blocked) {
      if (this.#connected >= this.#input.settings().maxConnections) return;
      this.#blocked.delete(site);
      const pace = this.#paces.get(site);
      if (pace !== undefined) this.#serve(site, pace);
    }
  }

  async #settle(lease: Lease, tried: AttemptResult): Promise<void> {
    this.#trying -= 1;
    this.#destinations.ended(lease.destination);
    this.#settling += 1;
    if (this.#needsMore(lease.destination)) this.#wake();
    await this.#input.settle(lease, tried);
    this.#settling -= 1;
    if (this.#isFull || this.#trying + this.#settling === 0) this.#wake();
    this.#rest();
  }

  /** A claim costs a shared queue as much for one lease as for ten: a site gets more when half of what was fetched ahead is used. */
  #needsMore(destination: string): boolean {
    const pace = this.#paces.get(this.#input.sites.of(destination) ?? destination);
    return pace === undefined || pace.isLow;
  }

  /** Returns fetched work that was not started. */
  #returnUnbegun(wanted: (lease: Lease) => boolean = () => true): void {
    for (const pace of this.#paces.values()) this.#returnAll(pace.unbegun(wanted));
  }

  #returnAll(leases: readonly Lease[]): void {
    for (const lease of leases) void this.#settle(lease, untried);
  }

  /** Stops sending to where it must not go. */
  #suspend(key: string): void {
    const { controls, sites, clock } = this.#input;
    const { suspendedUntil: until = null, maxConnections = null } = controls.get(key) ?? {};
    if (maxConnections !== 0 && (until === null || until <= clock.now())) return;
    this.#returnUnbegun(({ destination }) => destination === key || sites.of(destination) === key);
  }

  #rest(): void {
    if (this.#trying + this.#settling > 0 || this.#claiming) return;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** One timer for what is due next; while work is in progress its end comes first. */
  #arm(): void {
    if (!this.#running) return;
    const { queue, clock } = this.#input;
    const due = queue.nextDue() ?? (this.#blocked.size > 0 ? clock.now() : null);
    if (due === null && this.#fault === undefined) return;
    const ms = (due ?? 0) - clock.now();
    const wait = this.#fault !== undefined ? faultMs : ms <= 0 ? blockedMs : Math.min(ms + 1, maxWaitMs);
    const at = clock.monotonic() + wait;
    if (this.#timer !== undefined && this.#timerAt <= at && this.#timerAt > clock.monotonic()) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#wake();
    }, wait).unref();
  }

  #paceOf(site: string): SitePace {
    const known = this.#paces.get(site);
    if (known !== undefined) return known;
    if (this.#paces.size >= this.#manyPaces) this.#forgetStale();
    const pace = new SitePace(this.#input.clock);
    this.#paces.set(site, pace);
    return pace;
  }

  #forgetStale(): void {
    for (const [site, pace] of this.#paces) if (pace.isStale()) this.#paces.delete(site);
    // When few can be dropped, not all are checked again for each new one.
    this.#manyPaces = Math.max(manyPaces, 2 * this.#paces.size);
  }

  get #idleMs(): number {
    return this.#input.settings().destination.idleSeconds * 1000;
  }

  #share(site: string): PaceLimits {
    return this.#input.shares.of(site, this.limits(site));
  }

  /** Limits of a site for all servers together: set by an operator, configured for it, or configured for all. */
  limits(site: string): PaceLimits {
    const { controls, settings, clock } = this.#input;
    const current = settings();
    const usual = current.destination;
    const own = siteLimits(site, current);
    const control = controls.get(site);
    const until = control?.suspendedUntil ?? null;
    return {
      maxConnections: control?.maxConnections ?? own.maxConnections ?? usual.maxConnections,
      ratePerMinute: control?.ratePerMinute ?? own.ratePerMinute ?? usual.ratePerMinute,
      suspended: until !== null && until > clock.now(),
    };
  }
}

const untried: AttemptResult = {
  at: 0,
  ms: 0,
  verdicts: new Map(),
  host: null,
  tls: null,
  tellsDsn: false,
  lost: false,
  servers: 'unreachable',
};

/** Limits of single destinations within their site, set by an operator. */
class DestinationLimits {
  readonly #input: Pick<SchedulerInput, 'controls' | 'shares' | 'settings' | 'clock'>;
  readonly #busy = new Map<string, number>();
  /** Those with a rate. */
  readonly #rates = new Map<string, RateAllowance>();
  /** Limits by which use was reported: one that is cleared meanwhile has its use reported until that ends. */
  readonly #reported = new Map<string, PaceLimits>();

  constructor(input: Pick<SchedulerInput, 'controls' | 'shares' | 'settings' | 'clock'>) {
    this.#input = input;
  }

  /** Remaining messages; `Infinity` without a limit. */
  room(destination: string): number {
    const limits = this.#limits(destination);
    if (limits === undefined) return Infinity;
    if (takesNothing(limits)) return 0;
    const { maxConnections, ratePerMinute } = this.#input.shares.of(destination, limits);
    const free = maxConnections - (this.#busy.get(destination) ?? 0);
    const room = ratePerMinute === undefined ? free : Math.min(free, this.#rateOf(destination).left(ratePerMinute));
    if (room <= 0) this.#report(destination, limits, true);
    return room;
  }

  fetched(destination: string): void {
    this.#busy.set(destination, (this.#busy.get(destination) ?? 0) + 1);
    const limits = this.#limits(destination);
    if (limits?.ratePerMinute === undefined) this.#rates.delete(destination);
    else this.#rateOf(destination).take();
    if (limits !== undefined) this.#report(destination, limits, false);
  }

  ended(destination: string): void {
    const left = (this.#busy.get(destination) ?? 1) - 1;
    if (left > 0) this.#busy.set(destination, left);
    else this.#busy.delete(destination);
    const limits = this.#limits(destination) ?? this.#reported.get(destination);
    if (limits !== undefined) this.#report(destination, limits, false);
    if (left <= 0) this.#reported.delete(destination);
  }

  #limits(destination: string): PaceLimits | undefined {
    const control = this.#input.controls.get(destination);
    if (control === undefined) return undefined;
    const { maxConnections, ratePerMinute, suspendedUntil } = control;
    return {
      maxConnections: maxConnections ?? Infinity,
      ratePerMinute: ratePerMinute ?? undefined,
      suspended: suspendedUntil !== null && suspendedUntil > this.#input.clock.now(),
    };
  }

  #report(destination: string, limits: PaceLimits, waiting: boolean): void {
    this.#reported.set(destination, limits);
    const { shares, settings } = this.#input;
    const idleMs = settings().destination.idleSeconds * 1000;
    shares.use(destination, limits, { running: this.#busy.get(destination) ?? 0, waiting, idleMs });
  }

  #rateOf(destination: string): RateAllowance {
    const known = this.#rates.get(destination);
    if (known !== undefined) return known;
    const made = new RateAllowance(this.#input.clock);
    this.#rates.set(destination, made);
    return made;
  }
}
