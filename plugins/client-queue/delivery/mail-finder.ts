import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../../core/clock.js';
import type { Configuration } from '../../../core/contracts/server.js';
import { CachingResolver } from '../../../core/dns/caching-resolver.js';
import { MailRoutes, ownAddresses } from '../../../core/dns/mail-routes.js';
import type { HopFinder, HopSearch, SearchOptions } from '../../../core/dns/next-hop.js';
import type { Resolver } from '../../../core/dns/resolver.js';
import { SystemResolver } from '../../../core/dns/system-resolver.js';
import { ValidatingResolver } from '../../../core/dns/validating-resolver.js';
import type { ClientQueueSettings } from '../options.js';

type FinderSettings = Pick<ClientQueueSettings, 'resolver' | 'dane' | 'tls'>;

/** Without name servers of its own, a resolver uses those of the server. */
type FinderDeps = Pick<Configuration, 'hostname' | 'nameServers'>;

/** Its name servers. */
interface Asked {
  readonly servers: readonly string[];
  readonly timeoutMs: number;
  /** They validate answers, and TLSA records are looked up. */
  readonly dane: boolean;
}

/** The resolver for those name servers. */
interface Answering {
  readonly resolver: Resolver;
  readonly routes: MailRoutes;
}

/** Finds servers with the name servers configured now. */
export class MailFinder implements HopFinder {
  readonly #deps: FinderDeps;
  readonly #clock: Clock;
  #settings: FinderSettings;
  #asked: Asked;
  #answering: Answering;

  /** @throws Problem `invalid` when a name server has no usable address */
  constructor(settings: FinderSettings, deps: FinderDeps, clock: Clock) {
    this.#deps = deps;
    this.#clock = clock;
    this.#settings = settings;
    this.#asked = this.#askedBy(settings);
    this.#answering = this.#made(this.#asked);
  }

  /** A finder that follows changes of the name servers. */
  get resolver(): Resolver {
    return this.#answering.resolver;
  }

  /**
   * Prepares other settings, or other name servers of the server; the returned function applies them and says whether
   * the name servers changed. @throws as the constructor
   */
  prepare(settings: FinderSettings = this.#settings): () => boolean {
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

  /** Drops cached DNS answers: an operator has fixed something. */
  forget(): void {
    this.#answering = this.#made(this.#asked);
  }

  forDomain(domain: string, options?: SearchOptions): Promise<HopSearch> {
    return this.#answering.routes.forDomain(domain, options);
  }

  forHosts(hosts: readonly string[], options?: SearchOptions): Promise<HopSearch> {
    return this.#answering.routes.forHosts(hosts, options);
  }

  #askedBy({ resolver: { servers, timeoutMs }, dane, tls }: FinderSettings): Asked {
    return { servers: servers ?? this.#deps.nameServers ?? [], timeoutMs, dane: dane && tls !== 'never' };
  }

  #made(asked: Asked): Answering {
    const own = { ownNames: [this.#deps.hostname], ownAddresses };
    if (asked.dane) {
      const resolver = new CachingResolver(new ValidatingResolver(asked), {}, this.#clock);
      return { resolver, routes: new MailRoutes({ resolver, secureResolver: resolver, ...own }) };
    }
    const resolver = new CachingResolver(new SystemResolver(asked), {}, this.#clock);
    return { resolver, routes: new MailRoutes({ resolver, ...own }) };
  }
}
