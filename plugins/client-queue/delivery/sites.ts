import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../core/clock.js';
import { cacheSize } from '../../../core/disk/cache-size.js';
import type { NoRoute } from '../../../core/dns/next-hop.js';
import type { ClientQueueSettings } from '../options.js';
import { readDestination, siteKey, siteOfRoute } from './destination.js';
import type { NextHops, Servers } from './next-hops.js';

interface SitesInput {
  readonly hops: Pick<NextHops, 'find' | 'peek' | 'refresh'>;
  readonly settings: () => Pick<ClientQueueSettings, 'routes' | 'sites' | 'port'>;
  readonly clock: Clock;
}

/** Maximum number of remembered domains. */
const maxKnown = 50_000;
/** How long a domain with silent name servers is looked up in the slow lane. */
const suspectMs = 3_600_000;
/** Interval of notifications while many are looked up. */
const tellMs = 20;

interface Known {
  readonly site: string;
  /** Known from the settings alone. */
  readonly fixed: boolean;
  /** Its name servers may still hang. By `clock.monotonic()`. */
  readonly suspectUntil: number;
}

/** Which destinations share servers, and so connections, limits, rate and slow start. */
export class Sites {
  readonly #input: SitesInput;
  readonly #known = new LRUCache<string, Known>(cacheSize(maxKnown));
  readonly #listeners = new Set<() => void>();
  readonly #lanes = new LookupLanes(
    (destination) => this.#lookUp(destination),
    () => this.#notify(),
  );
  #notifyTimer: NodeJS.Timeout | undefined;

  constructor(input: SitesInput) {
    this.#input = input;
  }

  /**
   * Undefined while the servers are unknown; listeners are notified when that changes. The result is cached, so that no
   * attempt waits for the DNS.
   */
  of(destination: string): string | undefined {
    const known = this.#known.get(destination) ?? this.#fixed(destination);
    if (known === undefined && this.#lanes.has(destination)) return undefined;
    if (known?.fixed === true) return known.site;
    const { hops, clock } = this.#input;
    const now = clock.monotonic();
    const kept = hops.peek(destination);
    if (kept === undefined || kept.ageingAt <= now) this.#lanes.add(destination, now < (known?.suspectUntil ?? 0));
    return kept && siteOf(destination, kept.found);
  }

  #fixed(destination: string): Known | undefined {
    const site = this.#lanes.has(destination) ? undefined : this.#withoutAsking(destination);
    if (site === undefined) return undefined;
    const known: Known = { site, fixed: true, suspectUntil: 0 };
    this.#known.set(destination, known);
    return known;
  }

  /** The cached site, without a lookup. */
  peek(destination: string): string | undefined {
    return this.#known.peek(destination)?.site ?? this.#withoutAsking(destination);
  }

  /** The site, after a lookup where needed. Never rejects. */
  async find(destination: string): Promise<string> {
    return this.peek(destination) ?? siteOf(destination, await this.#input.hops.find(destination));
  }

  /** Called when a site becomes known. Returns the undo. */
  onFound(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Settings changed, or an operator demands new lookups. All if none is named. */
  forget(destinations?: readonly string[]): void {
    if (destinations === undefined) this.#known.clear();
    else for (const destination of destinations) this.#known.delete(destination);
  }

  #withoutAsking(destination: string): string | undefined {
    const read = readDestination(destination);
    if (read.kind === 'domain') return undefined;
    if (read.kind === 'literal') return siteKey(read.domain);
    const { routes, ...settings } = this.#input.settings();
    if (read.kind === 'servers') return siteOfRoute({ mx: read.servers.hosts, port: read.servers.port }, settings);
    const route = read.kind === 'route' && Object.hasOwn(routes, read.route) ? routes[read.route] : undefined;
    return route === undefined ? destination : siteOfRoute(route, settings);
  }

  async #lookUp(destination: string): Promise<void> {
    const { hops, clock } = this.#input;
    const site = siteOf(destination, await hops.refresh(destination));
    const hung = hops.peek(destination)?.hung === true;
    this.#known.set(destination, { site, fixed: false, suspectUntil: hung ? clock.monotonic() + suspectMs : 0 });
  }

  #notify(): void {
    if (this.#lanes.isCrowded) {
      this.#notifyTimer ??= setTimeout(() => this.#notifyNow(), tellMs).unref();
    } else this.#notifyNow();
  }

  #notifyNow(): void {
    clearTimeout(this.#notifyTimer);
    this.#notifyTimer = undefined;
    for (const listener of this.#listeners) listener();
  }
}

/** A failed lookup gets a site of its own for now; the attempt reports the reason. */
const siteOf = (destination: string, found: Servers | NoRoute): string =>
  found.outcome === 'found' ? found.site : siteKey(destination);

/** Concurrent lookups in the normal lane. */
const quickAtOnce = 200;
/** A lookup that takes longer counts as hanging and leaves its place. Milliseconds. */
export const quickLookupMs = 1000;
/** Maximum of hanging lookups. */
const maxHanging = 1000;
/** Concurrent lookups of domains that hung last time. */
const slowAtOnce = 100;

/** Waiting lookups; taken from the oldest and the newest end in turn. */
class Waiting {
  #names: (string | undefined)[] = [];
  /** Index of the first one left. */
  #head = 0;
  #newestNext = false;

  get size(): number {
    return this.#names.length - this.#head;
  }

  add(name: string): void {
    this.#names.push(name);
  }

  take(): string | undefined {
    if (this.size === 0) return undefined;
    this.#newestNext = !this.#newestNext;
    if (!this.#newestNext) return this.#names.pop();
    const oldest = this.#names[this.#head];
    this.#names[this.#head] = undefined;
    this.#head += 1;
    if (this.#head * 2 > this.#names.length) {
      this.#names = this.#names.slice(this.#head);
      this.#head = 0;
    }
    return oldest;
  }
}

interface Lane {
  readonly most: number;
  readonly waiting: Waiting;
  busy: number;
}

interface Lookup {
  lane: Lane | 'hanging';
}

/**
 * Looks up destinations with bounded concurrency. Hanging lookups make room for others, and domains that hung last time
 * have a small lane of their own, so that a burst of mail for dead domains does not delay others. Alternating between
 * oldest and newest also protects earlier ones.
 */
export class LookupLanes {
  /** Never rejects. */
  readonly #look: (destination: string) => Promise<void>;
  readonly #ended: () => void;
  readonly #quick: Lane = { most: quickAtOnce, waiting: new Waiting(), busy: 0 };
  readonly #slow: Lane = { most: slowAtOnce, waiting: new Waiting(), busy: 0 };
  readonly #asked = new Set<string>();
  #hanging = 0;
  /** They hang too, and wait to be counted. */
  readonly #lingering = new Set<Lookup>();

  /** @param ended called after each lookup */
  constructor(look: (destination: string) => Promise<void>, ended: () => void) {
    this.#look = look;
    this.#ended = ended;
  }

  /** Some wait for their turn. */
  get isCrowded(): boolean {
    return this.#quick.waiting.size + this.#slow.waiting.size > 0;
  }

  /** It is looked up, or waits for a lookup. */
  has(destination: string): boolean {
    return this.#asked.has(destination);
  }

  /** @param hung its last lookup hung */
  add(destination: string, hung: boolean): void {
    if (this.#asked.has(destination)) return;
    this.#asked.add(destination);
    const lane = hung ? this.#slow : this.#quick;
    lane.waiting.add(destination);
    this.#serve(lane);
  }

  #serve(lane: Lane): void {
    while (lane.busy < lane.most) {
      const next = lane.waiting.take();
      if (next === undefined) return;
      lane.busy += 1;
      void this.#run(next, lane);
    }
  }

  async #run(destination: string, lane: Lane): Promise<void> {
    const lookup: Lookup = { lane };
    const timer = lane === this.#quick ? setTimeout(() => this.#overdue(lookup), quickLookupMs).unref() : undefined;
    await this.#look(destination);
    clearTimeout(timer);
    this.#lingering.delete(lookup);
    this.#asked.delete(destination);
    if (lookup.lane === 'hanging') this.#hanging -= 1;
    else lookup.lane.busy -= 1;
    const [lingering] = this.#lingering;
    if (lingering !== undefined) this.#overdue(lingering);
    this.#serve(lane);
    this.#ended();
  }

  #overdue(lookup: Lookup): void {
    this.#lingering.add(lookup);
    if (this.#hanging >= maxHanging) return;
    this.#lingering.delete(lookup);
    lookup.lane = 'hanging';
    this.#hanging += 1;
    this.#quick.busy -= 1;
    this.#serve(this.#quick);
  }
}
