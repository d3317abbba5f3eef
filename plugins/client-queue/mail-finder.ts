import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../core/clock.js';
import { CachingResolver } from '../../core/dns/caching-resolver.js';
import { MailRoutes } from '../../core/dns/mail-routes.js';
import type { HopFinder, HopSearch, SearchOptions } from '../../core/dns/next-hop.js';
import { ownAddresses } from '../../core/dns/own-addresses.js';
import { SystemResolver } from '../../core/dns/system-resolver.js';
import type { ClientQueueSettings } from './options.js';

type ResolverSettings = ClientQueueSettings['resolver'];

/** Finds servers by the resolver that is configured now. */
export class MailFinder implements HopFinder {
  readonly #hostname: string;
  readonly #clock: Clock;
  #settings: ResolverSettings;
  #routes: MailRoutes;

  /** @throws Problem `invalid` when a name server has no usable address */
  constructor(settings: ResolverSettings, hostname: string, clock: Clock) {
    this.#hostname = hostname;
    this.#clock = clock;
    this.#settings = settings;
    this.#routes = this.#made(settings);
  }

  /** Makes ready for another resolver; what it gives puts that in force. @throws as the constructor */
  prepare(settings: ResolverSettings): () => void {
    if (isDeepStrictEqual(settings, this.#settings)) return () => undefined;
    const routes = this.#made(settings);
    return () => {
      this.#settings = settings;
      this.#routes = routes;
    };
  }

  forDomain(domain: string, options?: SearchOptions): Promise<HopSearch> {
    return this.#routes.forDomain(domain, options);
  }

  forHosts(hosts: readonly string[], options?: SearchOptions): Promise<HopSearch> {
    return this.#routes.forHosts(hosts, options);
  }

  #made({ servers, timeoutMs }: ResolverSettings): MailRoutes {
    const system = new SystemResolver({ timeoutMs, ...(servers !== undefined && { servers }) });
    const resolver = new CachingResolver(system, {}, this.#clock);
    return new MailRoutes({ resolver, ownNames: [this.#hostname], ownAddresses });
  }
}
