import { LRUCache } from 'lru-cache';
import { roomFor } from '../../../core/disk/cache-room.js';
import type { Clock } from '../../../core/clock.js';
import type { NoRoute } from '../../../core/dns/next-hop.js';
import { readDestination } from './destination-key.js';
import { LookupLanes } from './lookup-lanes.js';
import type { NextHops, Servers } from './next-hops.js';
import type { ClientQueueSettings } from '../options.js';
import { siteKey, siteOfRoute } from './site-key.js';

export interface SitesInput {
  readonly hops: Pick<NextHops, 'find' | 'peek' | 'refresh'>;
  readonly settings: () => Pick<ClientQueueSettings, 'routes' | 'sites' | 'port'>;
  readonly clock: Clock;
}

/** Domains whose site is remembered. */
const mostKnown = 50_000;
/** Whose name servers did not answer is looked up among others of that kind for so long. */
const suspectMs = 3_600_000;
/** While many are looked up, those who wait are told now and then. */
const tellMs = 20;

interface Known {
  readonly site: string;
  /** The settings alone say so. */
  readonly fixed: boolean;
  /** Its name servers may still hang. By `clock.monotonic()`. */
  readonly suspectUntil: number;
}

/** Knows which destinations have the same servers, and so share connections, limits, rate and slow start. */
export class Sites {
  readonly #input: SitesInput;
  readonly #known = new LRUCache<string, Known>(roomFor(mostKnown));
  readonly #listeners = new Set<() => void>();
  readonly #lanes = new LookupLanes(
    (destination) => this.#lookFor(destination),
    () => this.#tell(),
  );
  #telling: NodeJS.Timeout | undefined;

  constructor(input: SitesInput) {
    this.#input = input;
  }

  /**
   * Undefined while its servers are not known: who listens is told when that has changed. Those of a site that is given are at hand, so
   * that no attempt has to wait for the DNS.
   */
  of(destination: string): string | undefined {
    const known = this.#known.get(destination) ?? this.#fixed(destination);
    if (known === undefined && this.#lanes.has(destination)) return undefined;
    if (known?.fixed === true) return known.site;
    const { hops, clock } = this.#input;
    const now = clock.monotonic();
    const kept = hops.peek(destination);
    if (kept === undefined || kept.ageingAt <= now) this.#lanes.ask(destination, now < (known?.suspectUntil ?? 0));
    return kept && siteOf(destination, kept.found);
  }

  #fixed(destination: string): Known | undefined {
    const site = this.#lanes.has(destination) ? undefined : this.#withoutAsking(destination);
    if (site === undefined) return undefined;
    const known: Known = { site, fixed: true, suspectUntil: 0 };
    this.#known.set(destination, known);
    return known;
  }

  /** What is known, without asking for more. */
  peek(destination: string): string | undefined {
    return this.#known.peek(destination)?.site ?? this.#withoutAsking(destination);
  }

  /** The site after a look into the DNS where that is needed. Never rejects. */
  async find(destination: string): Promise<string> {
    return this.peek(destination) ?? siteOf(destination, await this.#input.hops.find(destination));
  }

  /** Called when a site has become known. Returns the undo. */
  onFound(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Settings have changed, or an operator wants these to be asked anew. All if none is named. */
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

  async #lookFor(destination: string): Promise<void> {
    const { hops, clock } = this.#input;
    const site = siteOf(destination, await hops.refresh(destination));
    const hung = hops.peek(destination)?.hung === true;
    this.#known.set(destination, { site, fixed: false, suspectUntil: hung ? clock.monotonic() + suspectMs : 0 });
  }

  #tell(): void {
    if (this.#lanes.isCrowded) {
      this.#telling ??= setTimeout(() => this.#tellNow(), tellMs).unref();
    } else this.#tellNow();
  }

  #tellNow(): void {
    clearTimeout(this.#telling);
    this.#telling = undefined;
    for (const listener of this.#listeners) listener();
  }
}

/** What cannot be found has a site of its own for now: the attempt says why. */
const siteOf = (destination: string, found: Servers | NoRoute): string =>
  found.outcome === 'found' ? found.site : siteKey(destination);
