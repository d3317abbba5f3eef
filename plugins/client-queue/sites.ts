import { LRUCache } from 'lru-cache';
import { roomFor } from '../../core/cache-room.js';
import type { Clock } from '../../core/clock.js';
import { readDestination } from './destination-key.js';
import type { NextHops } from './next-hops.js';
import type { ClientQueueSettings } from './options.js';
import { siteKey, siteOfRoute } from './site-key.js';

export interface SitesInput {
  readonly hops: Pick<NextHops, 'find'>;
  readonly settings: () => Pick<ClientQueueSettings, 'routes' | 'sites' | 'port'>;
  readonly clock: Clock;
}

/** Domains whose site is remembered. */
const mostKnown = 50_000;
/** A site that was looked up so long ago is looked up again, while the old one still counts. */
const freshMs = 600_000;
/** What could not be looked up is tried again so soon. */
const failedMs = 3000;
const lookedUpAtOnce = 200;
/** While many are looked up, those who wait are told now and then. */
const tellMs = 20;

interface Known {
  readonly site: string;
  readonly until: number;
  /** Still good while it is looked up again. */
  readonly sure: boolean;
}

/** Knows which destinations have the same servers, and so share connections, limits, rate and slow start. */
export class Sites {
  readonly #input: SitesInput;
  readonly #known = new LRUCache<string, Known>(roomFor(mostKnown));
  readonly #listeners = new Set<() => void>();
  readonly #waiting = new Set<string>();
  readonly #asked = new Set<string>();
  #telling: NodeJS.Timeout | undefined;

  constructor(input: SitesInput) {
    this.#input = input;
  }

  /** Undefined while nobody knows; who listens is told when that has changed. */
  of(destination: string): string | undefined {
    const known = this.#known.get(destination);
    if (known !== undefined && known.until > this.#input.clock.monotonic()) return known.site;
    const site = this.#withoutAsking(destination);
    if (site === undefined) this.#ask(destination);
    else this.#remember(destination, site, true);
    return site ?? (known?.sure === true ? known.site : undefined);
  }

  /** What is known, without asking for more. */
  peek(destination: string): string | undefined {
    return this.#known.peek(destination)?.site ?? this.#withoutAsking(destination);
  }

  /** The site after a look into the DNS where that is needed. Never rejects. */
  async find(destination: string): Promise<string> {
    return this.peek(destination) ?? (await this.#look(destination));
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

  #remember(destination: string, site: string, sure: boolean): void {
    const until = this.#input.clock.monotonic() + (sure ? freshMs : failedMs);
    this.#known.set(destination, { site, until, sure });
  }

  #ask(destination: string): void {
    if (this.#asked.has(destination)) return;
    if (this.#asked.size >= lookedUpAtOnce) this.#waiting.add(destination);
    else void this.#lookFor(destination);
  }

  async #lookFor(destination: string): Promise<void> {
    this.#asked.add(destination);
    await this.#look(destination);
    this.#asked.delete(destination);
    const [next] = this.#waiting;
    if (next !== undefined) {
      this.#waiting.delete(next);
      void this.#lookFor(next);
    }
    this.#tell();
  }

  /** What cannot be found has a site of its own for now: the attempt says why. */
  async #look(destination: string): Promise<string> {
    const found = await this.#input.hops.find(destination);
    const isFound = found.outcome === 'found';
    const site = isFound ? found.site : siteKey(destination);
    this.#remember(destination, site, isFound);
    return site;
  }

  #tell(): void {
    if (this.#waiting.size > 0) {
      this.#telling ??= setTimeout(() => this.#tellNow(), tellMs).unref();
    } else this.#tellNow();
  }

  #tellNow(): void {
    clearTimeout(this.#telling);
    this.#telling = undefined;
    for (const listener of this.#listeners) listener();
  }
}
