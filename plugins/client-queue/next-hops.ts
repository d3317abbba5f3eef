import type { Clock } from '../../core/clock.js';
import type { HopFinder, HopSearch, NextHop, NoRoute } from '../../core/dns/next-hop.js';
import type { ClientCredentials, Destination as Server, TlsPolicy } from '../../core/smtp/client/destination.js';
import { readDestination, type Destination } from './destination-key.js';
import { domainTls } from './domain-tls.js';
import { findNamedServers } from './named-servers.js';
import type { ClientQueueSettings, Route } from './options.js';
import { siteOfRoute, siteOfSearch } from './site-key.js';

/** Servers for a destination, best first, ready to be dialled. */
export interface Servers {
  readonly outcome: 'found';
  /** What destinations with the same servers share: the key of their limits. */
  readonly site: string;
  readonly servers: readonly Server[];
}

export interface NextHopsInput {
  readonly finder: HopFinder;
  readonly clock: Clock;
  readonly hostname: string;
  readonly settings: () => ClientQueueSettings;
}

/** How long an answer is used without asking again; the resolver has its own memory, by what the DNS says. */
const keepMs = 30_000;
const keepFailureMs = 3000;
const mostKept = 10_000;
/** RFC 5321 §5.1 wants two at least; more would only keep a dead destination's mail busy. */
const mostServers = 5;

interface Kept {
  readonly until: number;
  readonly found: Promise<Servers | NoRoute>;
}

/** Knows the servers of destinations, by route or by MX, and how to speak with them. */
export class NextHops {
  readonly #input: NextHopsInput;
  readonly #kept = new Map<string, Kept>();

  constructor(input: NextHopsInput) {
    this.#input = input;
  }

  /** Never rejects. */
  find(destination: string): Promise<Servers | NoRoute> {
    const now = this.#input.clock.monotonic();
    const kept = this.#kept.get(destination);
    if (kept !== undefined && kept.until > now) return kept.found;
    if (this.#kept.size >= mostKept) this.#kept.clear();
    const found = this.#find(readDestination(destination));
    this.#kept.set(destination, { until: now + keepMs, found });
    void this.#shortenFailure(destination, found);
    return found;
  }

  async #shortenFailure(destination: string, found: Kept['found']): Promise<void> {
    const { outcome } = await found;
    const until = this.#input.clock.monotonic() + keepFailureMs;
    if (outcome === 'failed' && this.#kept.get(destination)?.found === found) {
      this.#kept.set(destination, { until, found });
    }
  }

  /** New settings, or an operator who wants it tried again now. All destinations if none is named. */
  forget(destinations?: readonly string[]): void {
    if (destinations === undefined) this.#kept.clear();
    else for (const destination of destinations) this.#kept.delete(destination);
  }

  async #find(destination: Destination): Promise<Servers | NoRoute> {
    const { finder, settings } = this.#input;
    if (destination.kind === 'target') return unknownRoute('No server takes this destination');
    if (destination.kind === 'route') {
      const { routes } = settings();
      const route = Object.hasOwn(routes, destination.route) ? routes[destination.route] : undefined;
      if (route === undefined) return unknownRoute(`The route ${destination.route} is not configured`);
      // A route is what the operator has written: it may lead into the private network.
      const search = await finder.forHosts(route.mx, { allowPrivate: true });
      return this.#servers(search, siteOfRoute(route, settings()), (hop) => this.#routed(hop, route));
    }
    if (destination.kind === 'servers') {
      const { hosts, port, protocol, tls: mode } = destination.servers;
      const search = await findNamedServers(destination.servers, settings().targets, finder);
      const site = siteOfRoute({ mx: hosts, port }, settings());
      return this.#servers(search, site, (hop) => this.#server(hop, { port, protocol, tls: { mode } }));
    }
    const allowPrivate = settings().allowPrivateAddresses;
    const search = await finder.forDomain(destination.domain, { allowPrivate });
    const site = siteOfSearch(search, destination.domain, settings());
    const tls = domainTls(destination.domain, settings());
    return this.#servers(search, site, (hop) => this.#server(hop, { port: settings().port, protocol: 'smtp', tls }));
  }

  #servers(search: HopSearch, site: string, server: (hop: NextHop) => Server): Servers | NoRoute {
    if (search.outcome === 'failed') return search;
    return { outcome: 'found', site, servers: search.hops.slice(0, mostServers).map(server) };
  }

  #routed(hop: NextHop, { port, protocol, tls, verify, auth }: Route): Server {
    const policy: TlsPolicy = { mode: tls, ...(verify !== undefined && { verify }) };
    const credentials: ClientCredentials | undefined = auth && {
      username: auth.user,
      password: auth.pass,
      plaintext: 'never',
    };
    return this.#server(hop, { port, protocol, tls: policy, ...(credentials && { auth: credentials }) });
  }

  #server({ host, address }: NextHop, about: Pick<Server, 'port' | 'protocol' | 'tls' | 'auth'>): Server {
    const { hostname, settings } = this.#input;
    const { localAddress } = settings();
    return { address, host, helloName: hostname, ...about, ...(localAddress !== undefined && { localAddress }) };
  }
}

const unknownRoute = (text: string): NoRoute => ({
  outcome: 'failed',
  reason: 'no-address',
  code: 451,
  status: '4.4.4',
  text,
  permanent: false,
});
