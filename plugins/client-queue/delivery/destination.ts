import { isIP } from 'node:net';
import type { HopFinder, HopSearch, NextHop } from '../../../core/dns/next-hop.js';
import { parseAddressLiteral, parseDomain } from '../../../core/mime/address.js';
import { normalAddress } from '../../../core/net/ip-address.js';
import { type NetworkSet, parseNetworks } from '../../../core/net/networks.js';
import { isProblem, problem, type Problem } from '../../../core/problem.js';
import type { TlsMode } from '../../../core/smtp/client/remote-server.js';
import type { ClientQueueSettings } from '../options.js';

/** The meaning of a destination key of the queue. */
export type Destination =
  | { readonly kind: 'domain' | 'literal'; readonly domain: string }
  | { readonly kind: 'route'; readonly route: string }
  | { readonly kind: 'servers'; readonly servers: NamedServers }
  | { readonly kind: 'target'; readonly target: string };

export const routeKey = (name: string): string => `route:${name}`;

export const targetKey = (name: string): string => `target:${name}`;

export function readDestination(key: string): Destination {
  if (key.startsWith('[')) return { kind: 'literal', domain: key };
  const [, kind, name = ''] = /^(route|target):(.*)$/.exec(key) ?? [];
  if (kind === 'route') return { kind, route: name };
  if (kind === 'target') return { kind, target: name };
  const servers = key.startsWith('mx:') ? readNamedServers(key) : undefined;
  return servers === undefined ? { kind: 'domain', domain: key } : { kind: 'servers', servers };
}

/** Normalises a destination or site as written by a person. @throws Problem `invalid` */
export function parseDestination(written: string): string {
  const text = written.trim().toLowerCase();
  const site = parseSite(text);
  if (site !== undefined) return site;
  if (/^(route|target):[a-z0-9][a-z0-9-]{0,62}$/.test(text) || readNamedServers(text) !== undefined) return text;
  return text.startsWith('[') ? parseAddressLiteral(text) : parseDomain(text);
}

/** The same for a lookup: an invalid destination is not found. */
export function spelledDestination(written: string): string {
  try {
    return parseDestination(written);
  } catch (error) {
    if (isProblem(error)) return written.toLowerCase();
    throw error;
  }
}

interface RouteRules {
  readonly routes: Readonly<Record<string, { readonly domains: readonly string[] }>>;
  readonly defaultRoute?: string | undefined;
}

/**
 * Where recipients go: by the domains of routes, exact ones first, then the longest `*.` prefix, then the default
 * route.
 */
export class DestinationRules {
  readonly #exact = new Map<string, string>();
  readonly #below = new Map<string, string>();
  readonly #usual: string | undefined;

  constructor({ routes, defaultRoute }: RouteRules) {
    for (const [name, { domains }] of Object.entries(routes)) {
      for (const domain of domains) {
        const known = domain.startsWith('*.') ? this.#below : this.#exact;
        const key = domain.replace(/^\*\./, '').toLowerCase();
        if (!known.has(key)) known.set(key, name);
      }
    }
    this.#usual = defaultRoute;
  }

  keyOf({ domain }: { readonly domain: string }): string {
    const name = this.#routeOf(domain.toLowerCase());
    return name === undefined ? domain.toLowerCase() : routeKey(name);
  }

  #routeOf(domain: string): string | undefined {
    const exact = this.#exact.get(domain);
    if (exact !== undefined) return exact;
    for (let dot = domain.indexOf('.'); dot >= 0; dot = domain.indexOf('.', dot + 1)) {
      const route = this.#below.get(domain.slice(dot + 1));
      if (route !== undefined) return route;
    }
    // Mail for an address literal goes to that machine.
    return domain.startsWith('[') ? undefined : this.#usual;
  }
}

/** Servers that the caller named for a message, instead of a route or the MX. */
export interface NamedServers {
  /** In this order. */
  readonly hosts: readonly string[];
  readonly port: number;
  readonly protocol: 'smtp' | 'lmtp';
  readonly tls: TlsMode;
}

const modes: readonly TlsMode[] = ['never', 'opportunistic', 'require', 'implicit'];

const namedServersPattern =
  /^mx:(smtp|lmtp):(never|opportunistic|require|implicit):(\d{1,5}):([a-z0-9._:[\]-]+(?:,[a-z0-9._:[\]-]+)*)$/;

/** The key of the destination. @throws Problem `invalid` for hosts that no key can hold */
export function namedServersKey({ hosts, port, protocol, tls }: NamedServers): string {
  const key = `mx:${protocol}:${tls}:${port}:${hosts.map((host) => host.trim().toLowerCase()).join(',')}`;
  if (readNamedServers(key) === undefined) throw problem('invalid', 'mx: has something that is no name of a host.');
  return key;
}

/** Undefined for any other key. */
function readNamedServers(key: string): NamedServers | undefined {
  const [, protocol, tls, port, hosts] = namedServersPattern.exec(key) ?? [];
  if (hosts === undefined || Number(port) < 1 || Number(port) > 65_535) return undefined;
  return {
    hosts: hosts.split(','),
    port: Number(port),
    protocol: protocol === 'lmtp' ? 'lmtp' : 'smtp',
    tls: modes.find((mode) => mode === tls) ?? 'opportunistic',
  };
}

/** Limits of a site; absent ones are those of every site. */
interface SiteLimits {
  readonly maxConnections?: number | undefined;
  readonly ratePerMinute?: number | undefined;
}

type Settings = Pick<ClientQueueSettings, 'sites' | 'port'>;

const prefix = 'site:';

export const siteKey = (name: string): string => `${prefix}${name}`;

export const isSite = (key: string): boolean => key.startsWith(prefix);

/** Names of the servers in the key of a site. */
const sitePattern = /^[a-z0-9._:[\]-]+(,[a-z0-9._:[\]-]+)*$/;

/** Normalises a site as written by a person; undefined when it is none. */
function parseSite(text: string): string | undefined {
  const key = text.trim().toLowerCase();
  return isSite(key) && sitePattern.test(key.slice(prefix.length)) ? key : undefined;
}

/** The site of a destination for display; null when it adds nothing to the name of the destination. */
export function siteLabel(site: string | null, destination: string): string | null {
  if (site === null || !isSite(site) || site === destination || site === siteKey(destination)) return null;
  return site.slice(prefix.length).replaceAll(',', ', ');
}

/** The site of a domain: the configured one of its best servers, or the set of all its servers. */
export function siteOfSearch(search: HopSearch, domain: string, settings: Settings): string {
  if (search.outcome === 'failed') return siteKey(servers([domain]));
  const best = Math.min(...search.hops.map(({ preference }) => preference));
  const hosts = search.hops.filter(({ preference }) => preference === best).map(({ host }) => host);
  return groupOf(hosts, settings) ?? siteKey(servers(search.site.split(',')));
}

/** The site of a route by its configured names, without lookups. */
export function siteOfRoute(
  { mx, port }: { readonly mx: readonly string[]; readonly port: number },
  settings: Settings,
): string {
  const hosts = mx.map((host) => host.toLowerCase());
  const elsewhere = port === settings.port ? '' : `:${port}`;
  return groupOf(hosts.slice(0, 1), settings) ?? siteKey(servers(hosts) + elsewhere);
}

/** What is configured for a site. */
export function siteLimits(site: string, { sites }: Pick<ClientQueueSettings, 'sites'>): SiteLimits {
  const name = site.slice(prefix.length);
  return isSite(site) && Object.hasOwn(sites, name) ? (sites[name] ?? {}) : {};
}

function groupOf(hosts: readonly string[], { sites }: Settings): string | undefined {
  if (hosts.length === 0) return undefined;
  for (const [name, { mx }] of Object.entries(sites)) {
    const rules = mx.map((rule) => rule.toLowerCase());
    if (hosts.every((host) => rules.some((rule) => covers(rule, host)))) return siteKey(name);
  }
  return undefined;
}

/** `*.example.org` covers all names below it, any other rule only itself. */
export function covers(rule: string, name: string): boolean {
  return rule.startsWith('*.') ? name.endsWith(rule.slice(1)) : rule === name;
}

/** Maximum names of a site: a domain may have hundreds of servers. */
const maxNamedServers = 10;

/** Sorted and unique. A name without a dot gets a trailing one, since names of configured sites have none. */
export function servers(hosts: readonly string[]): string {
  return [...new Set(hosts.map((host) => (/[.:]/.test(host) ? host : `${host}.`)))]
    .sort()
    .slice(0, maxNamedServers)
    .join(',');
}

export interface Target {
  readonly host: string;
  readonly ports: readonly number[];
}

interface Allowed {
  readonly names: ReadonlySet<string>;
  readonly networks: NetworkSet;
}

/**
 * Hosts and ports that a caller may name. A name is resolved once, and the checked address is the dialled one, so that
 * DNS rebinding changes nothing.
 */
export class TargetList {
  readonly #byPort = new Map<number, Allowed>();
  readonly #finder: HopFinder;

  constructor(targets: readonly Target[], finder: HopFinder) {
    this.#finder = finder;
    for (const port of new Set(targets.flatMap(({ ports }) => ports))) {
      const hosts = targets.filter(({ ports }) => ports.includes(port)).map(({ host }) => host);
      this.#byPort.set(port, {
        names: new Set(hosts.filter((host) => !isAddress(host)).map(canonical)),
        networks: parseNetworks(hosts.filter(isAddress)),
      });
    }
  }

  /**
   * Servers that may be dialled, in the order of the hosts.
   * @throws Problem `forbidden` when a host is not allowed, `unavailable` when none has an address
   */
  async find(hosts: readonly string[], port: number, signal: AbortSignal): Promise<readonly NextHop[]> {
    const found: NextHop[] = [];
    for (const host of hosts) found.push(...(await this.#one(host, port, signal)));
    if (found.length === 0) throw problem('unavailable', `None of ${hosts.join(', ')} has an address.`);
    return found;
  }

  async #one(host: string, port: number, signal: AbortSignal): Promise<readonly NextHop[]> {
    const allowed = this.#byPort.get(port);
    const name = canonical(host);
    if (allowed === undefined) throw forbidden(host, port);
    if (isIP(name) !== 0 && !allowed.networks.has(name)) throw forbidden(host, port);
    // Numbers that are no normal address, but that the system would dial as one.
    if (isIP(name) === 0 && /^(0x[0-9a-f]*|[0-9]+)$/.test(name.split('.').at(-1) ?? '')) throw forbidden(host, port);
    const search = await this.#finder.forHosts([name], { signal, allowPrivate: true });
    const hops = search.outcome === 'found' ? search.hops : [];
    if (allowed.names.has(name)) return hops;
    const inside = hops.filter(({ address }) => allowed.networks.has(address));
    if (inside.length < hops.length || hops.length === 0) throw forbidden(host, port);
    return inside;
  }
}

/** The same sentence whether a name exists or not, so that the list does not reveal DNS answers. */
function forbidden(host: string, port: number): Problem {
  const shown = host.length > 100 ? `${host.slice(0, 100)}…` : host;
  return problem(
    'forbidden',
    `${shown} port ${port} is not among the targets that plugins.client-queue.targets allows.`,
  );
}

const isAddress = (host: string): boolean => isIP(host.split('/')[0] ?? '') !== 0;

function canonical(host: string): string {
  const bare = host.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  return isIP(bare) === 0 ? bare.replace(/\.$/, '') : normalAddress(bare);
}
