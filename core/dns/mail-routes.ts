import { randomInt } from 'node:crypto';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Clock } from '../clock.js';
import { isLoopbackAddress, normalAddress } from '../net/ip-address.js';
import type { Dane } from '../net/tlsa.js';
import { CachingResolver } from './caching-resolver.js';
import { lookUpDane } from './dane.js';
import type { HopFinder, HopSearch, NextHop, NoRoute, SearchOptions } from './next-hop.js';
import { isPrivateAddress } from './private-address.js';
import {
  type DnsResponse,
  dnsFailure,
  type DnsFailure,
  isDnsFailure,
  type LookupOptions,
  type MxRecord,
  type Resolver,
  type SecureResolver,
} from './resolver.js';
import { SystemResolver } from './system-resolver.js';

export interface MailRoutesOptions {
  readonly resolver: Resolver;
  /** The same one, where TLSA records are to be looked up (DANE). */
  readonly secureResolver?: SecureResolver | undefined;
  /** Names of this server in MX records. */
  readonly ownNames: readonly string[];
  /** Addresses of this server, without loopback; read for each search, since they may change. */
  readonly ownAddresses: () => readonly string[];
  /** Maximum number of addresses in a result. */
  readonly maxAddresses?: number;
  /** Returns a whole number from 0 up to, but not including, the given one. */
  readonly random?: (below: number) => number;
}

/** Maximum number of servers of a domain that are resolved. */
const maxHosts = 10;
/** Maximum number of servers that are resolved at the same time. */
const hostsAtOnce = 3;

interface Servers {
  readonly site: string;
  /** Best first. */
  readonly hosts: readonly { readonly host: string; readonly preference: number }[];
  /** True when there is no MX record, so that the domain itself is its server. */
  readonly implicit: boolean;
  /** The answer about them is validated: they may have TLSA records. */
  readonly secure: boolean;
}

/** Why hosts were skipped. */
interface Passed {
  private: boolean;
  unanswered: DnsFailure | undefined;
  /** Names of servers whose TLSA records cannot be looked up. */
  readonly withoutTlsa: Set<string>;
}

/** What is asked about the servers of a domain. */
interface AddressSearch extends SearchOptions {
  /** With their TLSA records. */
  readonly daneOf?: string | undefined;
}

/** Finds mail servers by RFC 5321 §5.1: MX records by preference, equal ones shuffled, else the domain itself. */
export class MailRoutes implements HopFinder {
  readonly #resolver: Resolver;
  readonly #secure: SecureResolver | undefined;
  readonly #ownNames: ReadonlySet<string>;
  readonly #ownAddresses: () => readonly string[];
  readonly #most: number;
  readonly #random: (below: number) => number;

  constructor(options: MailRoutesOptions) {
    const { resolver, secureResolver, ownNames, ownAddresses, maxAddresses = 5, random = randomInt } = options;
    this.#resolver = resolver;
    this.#secure = secureResolver;
    this.#ownNames = new Set(ownNames.map((name) => name.toLowerCase()));
    this.#ownAddresses = ownAddresses;
    this.#most = maxAddresses;
    this.#random = random;
  }

  async forDomain(domain: string, options: SearchOptions = {}): Promise<HopSearch> {
    const literal = addressIn(domain);
    if (literal !== undefined) return this.#forLiteral(domain, literal, options);
    const servers = await this.#serversOf(domain, options);
    if ('outcome' in servers) return servers;
    const better = this.#withoutOwnNames(servers);
    if (better.length === 0) return loop(domain);
    const isAllowed = (await options.allowed?.()) ?? (() => true);
    const allowed = better.filter(({ host }) => isAllowed(host));
    if (allowed.length === 0) return unwanted(domain, better);
    const passed = nonePassed();
    const daneOf = servers.secure ? domain : undefined;
    const found = await this.#addresses(allowed, { ...options, daneOf }, passed);
    const hops = this.#withoutOwnAddresses(found).slice(0, this.#most);
    if (hops.length > 0) return { outcome: 'found', site: servers.site, hops, ...skippedBy(passed) };
    // The better server may be the one that cannot be resolved now.
    return found.length > 0 && passed.unanswered === undefined
      ? loop(domain)
      : noServer(domain, servers.implicit, passed);
  }

  async forHosts(names: readonly string[], options: SearchOptions = {}): Promise<HopSearch> {
    const hosts = names.map((host, index) => ({ host: host.toLowerCase(), preference: index }));
    const passed = nonePassed();
    const found = await this.#addresses(hosts, options, passed);
    const site = siteOf(hosts.map(({ host }) => host));
    if (found.length > 0) return { outcome: 'found', site, hops: found.slice(0, Math.max(this.#most, names.length)) };
    return noServer(names.join(', '), false, passed);
  }

  #forLiteral(domain: string, address: string, { allowPrivate = false }: SearchOptions): HopSearch {
    if (!allowPrivate && isPrivateAddress(address)) return forbidden(domain);
    if (this.#isOwnAddress(address)) return loop(domain);
    return { outcome: 'found', site: domain.toLowerCase(), hops: [{ host: address, address, preference: 0 }] };
  }

  async #serversOf(domain: string, options: SearchOptions): Promise<Servers | NoRoute> {
    const answer = await this.#mx(domain, options);
    if (isDnsFailure(answer)) {
      if (answer.kind === 'nxdomain') return noDomain(domain);
      if (answer.kind !== 'nodata') return unanswered(domain, answer);
      const hosts = [{ host: domain, preference: 0 }];
      return { site: domain, hosts, implicit: true, secure: answer.secure === true };
    }
    const named = answer.records.filter(({ exchange }) => exchange !== '' && exchange !== '.');
    if (named.length === 0) return nullMx(domain);
    const site = siteOf(named.map(({ exchange }) => exchange));
    const hosts = this.#ordered(named).map(({ exchange, preference }) => ({
      host: exchange.toLowerCase(),
      preference,
    }));
    return { site, hosts, implicit: false, secure: answer.secure === true };
  }

  /** NXDOMAIN makes mail bounce, so it is believed only when a second query confirms it. */
  async #mx(domain: string, { signal }: SearchOptions): Promise<DnsResponse<MxRecord> | DnsFailure> {
    const known = signal === undefined ? {} : { signal };
    const ask = (options: LookupOptions) => this.#resolver.resolveMx(domain, options).catch(asDnsFailure);
    const first = await ask(known);
    return isDnsFailure(first) && first.kind === 'nxdomain' ? ask({ ...known, fresh: true }) : first;
  }

  #ordered(records: readonly MxRecord[]): readonly MxRecord[] {
    return this.#shuffled(records).sort((one, other) => one.preference - other.preference);
  }

  #shuffled<T>(list: readonly T[]): T[] {
    const shuffled: T[] = [];
    for (const one of list) shuffled.splice(this.#random(shuffled.length + 1), 0, one);
    return shuffled;
  }

  /** RFC 5321 §5.1: a server that is itself among the MX hosts uses only those with a better preference. */
  #withoutOwnNames({ hosts, implicit }: Servers): Servers['hosts'] {
    const own = hosts.filter(({ host }) => this.#ownNames.has(host)).map(({ preference }) => preference);
    return implicit && own.length > 0 ? [] : hosts.filter(({ preference }) => preference < Math.min(...own));
  }

  #withoutOwnAddresses(hops: readonly NextHop[]): readonly NextHop[] {
    const own = hops.filter(({ address }) => this.#isOwnAddress(address)).map(({ preference }) => preference);
    return hops.filter(({ preference }) => preference < Math.min(...own));
  }

  #isOwnAddress(address: string): boolean {
    return this.#ownAddresses().some((own) => normalAddress(own) === address);
  }

  async #addresses(hosts: Servers['hosts'], options: AddressSearch, passed: Passed): Promise<readonly NextHop[]> {
    const found: NextHop[] = [];
    const asked = hosts.slice(0, Math.max(maxHosts, this.#most));
    for (let at = 0; at < asked.length && found.length < this.#most; at += hostsAtOnce) {
      const some = asked.slice(at, at + hostsAtOnce);
      const lists = await Promise.all(some.map(({ host }) => this.#addressesOf(host, options, passed)));
      for (const [index, server] of some.entries()) {
        const { addresses = [], dane } = lists[index] ?? {};
        for (const address of addresses) found.push({ ...server, address, ...(dane && { dane }) });
      }
    }
    return found;
  }

  async #addressesOf(
    host: string,
    options: AddressSearch,
    passed: Passed,
  ): Promise<{ readonly addresses: readonly string[]; readonly dane?: Dane | undefined }> {
    const known = options.signal === undefined ? {} : { signal: options.signal };
    const literal = withoutAsking(host);
    const asked =
      literal === undefined ? [this.#resolver.resolve4(host, known), this.#resolver.resolve6(host, known)] : [];
    const answers = await Promise.all(asked.map((asking) => asking.catch((error: unknown) => nothing(error, passed))));
    const lists = literal ?? answers.map(({ records }) => records);
    const [four = [], six = []] = lists.map((list) => this.#shuffled(list.map(normalAddress)));
    const all = alternating(four, six);
    const open = options.allowPrivate === true ? all : all.filter((address) => !isPrivateAddress(address));
    if (open.length < all.length) passed.private = true;
    if (options.daneOf === undefined || this.#secure === undefined || open.length === 0) return { addresses: open };
    const addresses = answers.filter(({ records }) => records.length > 0);
    try {
      const dane = await lookUpDane(this.#secure, { host, domain: options.daneOf, addresses }, known);
      return { addresses: open, dane };
    } catch (error) {
      nothing(error, passed);
      passed.withoutTlsa.add(host);
      return { addresses: [] };
    }
  }
}

const nonePassed = (): Passed => ({ private: false, unanswered: undefined, withoutTlsa: new Set() });

const skippedBy = ({ withoutTlsa }: Passed) => (withoutTlsa.size > 0 ? { skipped: [...withoutTlsa] } : {});

function siteOf(hosts: readonly string[]): string {
  return [...new Set(hosts.map((host) => host.toLowerCase()))].sort().join(',');
}

/** IPv4 and IPv6 addresses of hosts that need no query: addresses, and localhost (RFC 6761 §6.3). */
function withoutAsking(host: string): readonly (readonly string[])[] | undefined {
  if (host === 'localhost') return [['127.0.0.1'], ['::1']];
  const literal = addressIn(host);
  return literal === undefined ? undefined : [[literal]];
}

function nothing(error: unknown, passed: Passed): DnsResponse<string> {
  const failure = asDnsFailure(error);
  if (failure.kind !== 'nxdomain' && failure.kind !== 'nodata') passed.unanswered = failure;
  return { records: [], ttl: undefined };
}

function asDnsFailure(error: unknown): DnsFailure {
  return isDnsFailure(error) ? error : dnsFailure('servfail', 'a question', error);
}

function alternating(one: readonly string[], other: readonly string[]): readonly string[] {
  const all: string[] = [];
  for (let at = 0; at < Math.max(one.length, other.length); at += 1) {
    all.push(...one.slice(at, at + 1), ...other.slice(at, at + 1));
  }
  return all;
}

/** The IP address of a bracketed literal or a bare address. */
function addressIn(text: string): string | undefined {
  const inner = /^\[(?:ipv6:)?([0-9a-f:.]+)\]$/i.exec(text)?.[1] ?? text;
  return isIP(inner) === 0 ? undefined : normalAddress(inner);
}

function noRoute(
  reason: NoRoute['reason'],
  [code, status]: readonly [code: number, status: string],
  text: string,
): NoRoute {
  return { outcome: 'failed', reason, code, status, text, permanent: code >= 500 };
}

/** RFC 7505 §4.1. */
const nullMx = (domain: string): NoRoute => noRoute('null-mx', [556, '5.1.10'], `${domain} takes no mail (null MX)`);
const noDomain = (domain: string): NoRoute =>
  noRoute('no-domain', [550, '5.1.2'], `The domain ${domain} does not exist`);
const loop = (domain: string): NoRoute =>
  noRoute('loop', [554, '5.4.6'], `Mail for ${domain} would come back to this server`);
const forbidden = (domain: string): NoRoute =>
  noRoute('private', [550, '5.4.4'], `The servers of ${domain} have private addresses only`);

function someOf(names: readonly string[]): string {
  const [...some] = new Set(names);
  return `${some.slice(0, 5).join(', ')}${some.length > 5 ? ` and ${some.length - 5} more` : ''}`;
}

const unwanted = (domain: string, hosts: Servers['hosts']): NoRoute =>
  noRoute(
    'policy',
    [451, '4.7.0'],
    `The MTA-STS policy of ${domain} allows none of its mail servers (${someOf(hosts.map(({ host }) => host))})`,
  );

const noTlsa = (hosts: readonly string[]): NoRoute =>
  noRoute(
    'dns',
    [451, '4.4.3'],
    `The TLSA records of ${someOf(hosts)} cannot be looked up, so nothing is sent there (DANE)`,
  );

function unanswered(domain: string, { kind }: DnsFailure): NoRoute {
  if (kind === 'aborted') return noRoute('aborted', [451, '4.3.0'], 'The search for a server was stopped here');
  const what = kind === 'timeout' ? 'did not answer in time' : 'could not answer';
  return noRoute('dns', [451, '4.4.3'], `The name servers ${what} for ${domain}`);
}

/**
 * MX records that name hosts without addresses are a mistake that the domain may mend: temporary. A domain with no
 * record at all accepts no mail.
 */
function noServer(domain: string, implicit: boolean, passed: Passed): NoRoute {
  const { private: hidden, unanswered: failure, withoutTlsa } = passed;
  if (withoutTlsa.size > 0 && failure?.kind !== 'aborted') return { ...noTlsa([...withoutTlsa]), ...skippedBy(passed) };
  if (failure !== undefined) return unanswered(domain, failure);
  if (hidden) return forbidden(domain);
  if (implicit) return noRoute('no-address', [550, '5.1.2'], `${domain} has neither mail servers nor an address`);
  return noRoute('no-address', [451, '4.4.4'], `The servers of ${domain} have no address`);
}

/** Resolves servers that an operator has named, with the system's resolver; none of them counts as this server. */
export function hostRoutes(clock: Clock): MailRoutes {
  const resolver = new CachingResolver(new SystemResolver({}), {}, clock);
  return new MailRoutes({ resolver, ownNames: [], ownAddresses: () => [] });
}

/** Addresses of this machine's interfaces, without loopback. */
export function ownAddresses(): readonly string[] {
  return Object.values(networkInterfaces())
    .flatMap((interfaces) => interfaces ?? [])
    .map(({ address }) => normalAddress(address))
    .filter((address) => !isLoopbackAddress(address));
}
