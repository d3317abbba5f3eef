import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../../core/clock.js';
import type { Configuration } from '../../../core/contracts/server.js';
import { CachingResolver } from '../../../core/dns/caching-resolver.js';
import { MailRoutes, ownAddresses } from '../../../core/dns/mail-routes.js';
import type { HopFinder, HopSearch, SearchOptions } from '../../../core/dns/next-hop.js';
import type { Resolver } from '../../../core/dns/resolver.js';
import { SystemResolver } from '../../../core/dns/system-resolver.js';
import type { ClientQueueSettings } from '../options.js';

type ResolverSettings = ClientQueueSettings['resolver'];

/** A resolver without name servers of its own asks those of the whole server, as they are now. */
type Surroundings = Pick<Configuration, 'hostname' | 'nameServers'>;

/** Whom it asks. */
interface Asked {
  readonly servers: readonly string[];
  readonly timeoutMs: number;
}

/** What answers, by those who are asked. */
interface Answering {
  readonly resolver: Resolver;
  readonly routes: MailRoutes;
}

/** Finds servers by the name servers that are configured now. */
export class MailFinder implements HopFinder {
  readonly #surroundings: Surroundings;
  readonly #clock: Clock;
  #settings: ResolverSettings;
  #asked: Asked;
  #answering: Answering;

  /** @throws Problem `invalid` when a name server has no usable address */
  constructor(settings: ResolverSettings, surroundings: Surroundings, clock: Clock) {
    this.#surroundings = surroundings;
    this.#clock = clock;
    this.#settings = settings;
    this.#asked = this.#askedBy(settings);
    this.#answering = this.#made(this.#asked);
  }

  /** Asks those who are asked for servers; it changes with them. */
  get resolver(): Resolver {
    return this.#answering.resolver;
  }

  /**
   * Makes ready for other settings, or for other name servers of the whole server; what it gives puts that in force, and says whether others
   * are asked now. @throws as the constructor
   */
  prepare(settings: ResolverSettings = this.#settings): () => boolean {
    const asked = this.#askedBy(settings);
    const answering = isDeepStrictEqual(asked, this.#asked) ? undefined : this.#made(asked);
    return () => {
      this.#settings = settings;
      if (answering === undefined) return false;
      this.#asked = asked;
      this.#answering = answering;
      return true;
    };
  }

  /** What the DNS has said before counts no more: an operator has mended something. */
  forget(): void {
    this.#answering = this.#made(this.#asked);
  }

  forDomain(domain: string, options?: SearchOptions): Promise<HopSearch> {
    return this.#answering.routes.forDomain(domain, options);
  }

  forHosts(hosts: readonly string[], options?: SearchOptions): Promise<HopSearch> {
    return this.#answering.routes.forHosts(hosts, options);
  }

  #askedBy({ servers, timeoutMs }: ResolverSettings): Asked {
    return { servers: servers ?? this.#surroundings.nameServers ?? [], timeoutMs };
  }

  #made(asked: Asked): Answering {
    const resolver = new CachingResolver(new SystemResolver(asked), {}, this.#clock);
    return { resolver, routes: new MailRoutes({ resolver, ownNames: [this.#surroundings.hostname], ownAddresses }) };
  }
}
