import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../core/clock.js';
import type { HopFinder, HopSearch, NextHop, NoRoute } from '../../../core/dns/next-hop.js';
import type { Log } from '../../../core/log/log.js';
import { type Dane, usableTlsa } from '../../../core/net/tlsa.js';
import { isProblem } from '../../../core/problem.js';
import type { ClientCredentials, RemoteServer as Server, TlsPolicy } from '../../../core/smtp/client/remote-server.js';
import {
  covers,
  type Destination,
  type NamedServers,
  readDestination,
  siteOfRoute,
  siteOfSearch,
  type Target,
  TargetList,
} from './destination.js';
import type { ClientQueueSettings, OutboundRoute } from '../options.js';

/** Servers of a destination, best first, ready to dial. */
export interface Servers {
  readonly outcome: 'found';
  /** Key of the limits that destinations with the same servers share. */
  readonly site: string;
  readonly servers: readonly Server[];
  /** The policy of the domain demands TLS with a valid certificate (RFC 8461). */
  readonly mustVerify?: boolean;
  /** What the operator alone demands, where the domain demands more. */
  readonly ownTls?: TlsPolicy;
  /** Names of servers left out because their TLSA records cannot be looked up (RFC 7672). */
  readonly skipped?: readonly string[];
}

interface NextHopsInput {
  readonly finder: HopFinder;
  readonly clock: Clock;
  readonly hostname: string;
  readonly settings: () => ClientQueueSettings;
  readonly log?: Log;
}

/** How long an answer is used without a new search; the resolver has its own cache, by TTL. */
const keepMs = 30_000;
/** Age after which an answer is refreshed in the background. */
const ageingMs = 20_000;
const keepFailureMs = 3000;
/** Name servers that stay silent this long are not asked again for that domain for a while. */
const hangsMs = 1000;
const keepHangingMs = 30_000;
/** A search that takes this long occupies its place too long, even if it succeeds. */
const crawlsMs = 5000;
const maxKept = 10_000;
/** Timeout of a search: a domain may name many servers, each with its own name servers. */
const maxSearchMs = 30_000;
/** After which a search that does not heed its timeout has failed. */
const maxFindMs = 90_000;
/** RFC 5321 §5.1 asks for at least two; more would only waste attempts on a dead destination. */
const maxServers = 5;

/** What is known of a destination. */
interface KnownHops {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly found: Servers | NoRoute;
  /** By `clock.monotonic()`. */
  readonly until: number;
  readonly ageingAt: number;
  /** Its name servers were silent for so long that others do not wait for them. */
  readonly hung: boolean;
}

/** Digits of TLSA records that one entry of the cache depends on. */
const entryDigits = 4000;

/** Strangers choose the size of their records. */
function sizeOf({ found }: KnownHops): number {
  const records = found.outcome === 'found' ? found.servers.flatMap(({ tls: { dane } }) => dane?.records ?? []) : [];
  return 1 + Math.floor(records.reduce((sum, { data }) => sum + data.length, 0) / entryDigits);
}

/** Finds the servers of destinations, by route or MX, and how to talk to them. */
export class NextHops {
  readonly #input: NextHopsInput;
  readonly #kept = new LRUCache<string, KnownHops>({ maxSize: maxKept, sizeCalculation: sizeOf });
  /** Searches in flight. */
  readonly #asked = new Map<string, Promise<Servers | NoRoute>>();

  constructor(input: NextHopsInput) {
    this.#input = input;
  }

  /** Never rejects. */
  async find(destination: string): Promise<Servers | NoRoute> {
    return this.peek(destination)?.found ?? this.refresh(destination);
  }

  /** The cached answer, without a search. */
  peek(destination: string): KnownHops | undefined {
    const kept = this.#kept.get(destination);
    return kept !== undefined && kept.until > this.#input.clock.monotonic() ? kept : undefined;
  }

  /** The latest answer, however old. */
  last(destination: string): Pick<KnownHops, 'at' | 'found'> | undefined {
    return this.#kept.peek(destination);
  }

  /** Searches again; the previous answer stays valid until then. Never rejects. */
  refresh(destination: string): Promise<Servers | NoRoute> {
    const asked = this.#asked.get(destination);
    if (asked !== undefined) return asked;
    const began = this.#input.clock.monotonic();
    const asking = this.#findInTime(destination);
    this.#asked.set(destination, asking);
    void this.#learn(destination, asking, began);
    return asking;
  }

  async #learn(destination: string, asking: Promise<Servers | NoRoute>, began: number): Promise<void> {
    const found = await asking;
    if (this.#asked.get(destination) !== asking) return;
    this.#asked.delete(destination);
    const now = this.#input.clock.monotonic();
    const isFound = found.outcome === 'found';
    const took = now - began;
    const hung = isFound ? took >= crawlsMs : found.reason === 'dns' && took >= hangsMs;
    const until = now + (isFound ? keepMs : hung ? keepHangingMs : keepFailureMs);
    const at = this.#input.clock.now();
    this.#kept.set(destination, { at, found, until, ageingAt: isFound ? now + ageingMs : Infinity, hung });
  }

  /** New settings, or an operator demands a retry. All destinations if none is named. */
  forget(destinations: readonly string[] = [...this.#kept.keys(), ...this.#asked.keys()]): void {
    for (const destination of destinations) {
      this.#kept.delete(destination);
      this.#asked.delete(destination);
    }
  }

  /** Mail waits for the answer: a fault of this server, or a search without an end, is one too. */
  async #findInTime(destination: string): Promise<Servers | NoRoute> {
    let timer: NodeJS.Timeout | undefined;
    const overdue = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('It took too long.')), maxFindMs).unref();
    });
    try {
      return await Promise.race([this.#find(readDestination(destination)), overdue]);
    } catch (error) {
      this.#input.log?.error({ destination, err: error }, 'the servers of a destination could not be searched');
      return noWay('dns', '4.3.0', 'The search for a server failed here, it is tried again');
    } finally {
      clearTimeout(timer);
    }
  }

  async #find(destination: Destination): Promise<Servers | NoRoute> {
    const { finder, settings } = this.#input;
    if (destination.kind === 'target') return unknownRoute('No server takes this destination');
    if (destination.kind === 'route') {
      const { routes } = settings();
      const route = Object.hasOwn(routes, destination.route) ? routes[destination.route] : undefined;
      if (route === undefined) return unknownRoute(`The route ${destination.route} is not configured`);
      // A route is set by the operator, so it may lead into the private network.
      const search = await finder.forHosts(route.mx, { allowPrivate: true });
      return this.#servers(search, siteOfRoute(route, settings()), (hop) => this.#routed(hop, route));
    }
    if (destination.kind === 'servers') {
      const { hosts, port, protocol, tls: mode } = destination.servers;
      const search = await findNamedServers(destination.servers, settings().targets, finder);
      const site = siteOfRoute({ mx: hosts, port }, settings());
      return this.#servers(search, site, (hop) => this.#server(hop, { port, protocol, tls: { mode } }));
    }
    const search = await this.#search(destination.domain);
    const site = siteOfSearch(search, destination.domain, settings());
    const mustVerify = search.outcome === 'found' && search.mustVerify === true;
    const found = this.#servers(search, site, (hop) =>
      this.#server(hop, {
        port: settings().port,
        protocol: 'smtp',
        tls: hopTls(destination.domain, settings(), { mustVerify, dane: hop.dane }),
      }),
    );
    if (found.outcome === 'failed') return found;
    const isDemanded = mustVerify || found.servers.some(({ tls }) => tls.dane !== undefined);
    const { skipped } = search.outcome === 'found' ? search : {};
    return {
      ...found,
      mustVerify,
      ...(isDemanded && { ownTls: hopTls(destination.domain, settings(), {}) }),
      ...(skipped !== undefined && { skipped }),
    };
  }

  async #search(domain: string): Promise<HopSearch> {
    const { finder, settings } = this.#input;
    const allowPrivate = settings().allowPrivateAddresses;
    const search = await finder.forDomain(domain, { allowPrivate, signal: AbortSignal.timeout(maxSearchMs) });
    return search.outcome === 'failed' && search.reason === 'aborted' ? unanswered(domain) : search;
  }

  #servers(search: HopSearch, site: string, server: (hop: NextHop) => Server): Servers | NoRoute {
    if (search.outcome === 'failed') return search;
    return { outcome: 'found', site, servers: search.hops.slice(0, maxServers).map(server) };
  }

  #routed(hop: NextHop, { port, protocol, tls, verify, auth }: OutboundRoute): Server {
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

const unanswered = (domain: string): NoRoute => ({
  outcome: 'failed',
  reason: 'dns',
  code: 451,
  status: '4.4.3',
  text: `The name servers did not answer in time for ${domain}`,
  permanent: false,
});

const unknownRoute = (text: string): NoRoute => ({
  outcome: 'failed',
  reason: 'no-address',
  code: 451,
  status: '4.4.4',
  text,
  permanent: false,
});
/** Timeout of a lookup. */
const timeoutMs = 60_000;

/** Their addresses, as far as they may be dialled now: the list may have changed since. Never rejects. */
async function findNamedServers(
  { hosts, port }: NamedServers,
  targets: readonly Target[],
  finder: HopFinder,
): Promise<HopSearch> {
  try {
    const hops = await new TargetList(targets, finder).find(hosts, port, AbortSignal.timeout(timeoutMs));
    return { outcome: 'found', site: hosts.join(','), hops };
  } catch (error) {
    return isProblem(error) && error.problem === 'forbidden'
      ? noWay('private', '4.7.1', error.message)
      : noWay('no-address', '4.4.4', `None of ${hosts.join(', ')} has an address`);
  }
}

const noWay = (reason: NoRoute['reason'], status: string, text: string): NoRoute => ({
  outcome: 'failed',
  reason,
  code: 451,
  status,
  text,
  permanent: false,
});

interface DomainDemands {
  readonly mustVerify?: boolean | undefined;
  readonly dane?: Dane | undefined;
}

/** TLS for a server found by MX: as the operator and the domain demand. */
export function hopTls(
  domain: string,
  { tls, requireTls }: Pick<ClientQueueSettings, 'tls' | 'requireTls'>,
  { mustVerify = false, dane }: DomainDemands,
): TlsPolicy {
  const isRequired = mustVerify || tls === 'require' || requireTls.some((rule) => covers(rule.toLowerCase(), domain));
  // TLSA records take the place of public authorities (RFC 7672 §2.2.3, RFC 8461 §2).
  if (dane !== undefined && usableTlsa(dane).length > 0) {
    return { mode: 'require', verify: false, servername: dane.base, dane };
  }
  if (isRequired) return { mode: 'require', verify: true, ...(dane && { dane }) };
  return dane === undefined ? { mode: tls, verify: false } : { mode: 'require', verify: false, dane };
}
