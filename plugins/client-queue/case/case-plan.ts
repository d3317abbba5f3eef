import { isIP } from 'node:net';
import type { HopFinder, NextHop } from '../../../core/dns/next-hop.js';
import { normalAddress } from '../../../core/net/ip-address.js';
import { type NetworkSet, parseNetworks } from '../../../core/net/networks.js';
import { problem, type Problem } from '../../../core/problem.js';
import type { ClientCredentials, TlsPolicy } from '../../../core/smtp/client/destination.js';
import { DestinationRules, readDestination } from '../delivery/destination-controls.js';
import { domainTls } from '../delivery/next-hops.js';
import type { ClientQueueSettings, Route } from '../options.js';
import type { CaseDefinition } from './definition.js';

/** Where a case goes and how, once that is looked up and allowed. */
export interface CasePlan {
  readonly servers: readonly (NextHop & { readonly port: number })[];
  readonly protocol: 'smtp' | 'lmtp';
  readonly tls: TlsPolicy;
  readonly auth: ClientCredentials | undefined;
  /** Name of the route; null when the servers were named or found by MX. */
  readonly route: string | null;
}

interface PlanGround {
  readonly settings: ClientQueueSettings;
  readonly targets: TargetList;
  readonly finder: HopFinder;
}

type Where = Pick<CaseDefinition, 'route' | 'mx' | 'port' | 'protocol' | 'tls' | 'verify' | 'auth'>;

/**
 * By the hosts that the case names, the route that it names, the one that queued mail to its recipients takes, or the MX of the one domain that
 * all recipients share.
 * @throws Problem `forbidden` for hosts that are not allowed, `invalid`, `unavailable`
 */
export async function planCase(
  where: Where,
  domains: readonly string[],
  ground: PlanGround,
  signal: AbortSignal,
): Promise<CasePlan> {
  if (where.mx !== undefined) return byHosts(where.mx, where, ground, signal);
  const name = where.route ?? routeOfDomains(domains, ground.settings);
  return name === undefined ? byDomain(domains, where, ground, signal) : byRoute(name, ground, signal);
}

/** The route that queued mail to all of them takes, if it takes one. */
function routeOfDomains(domains: readonly string[], settings: ClientQueueSettings): string | undefined {
  const rules = new DestinationRules(settings);
  const [key = '', ...others] = new Set(domains.map((domain) => rules.keyOf({ domain })));
  const read = readDestination(key);
  return others.length === 0 && read.kind === 'route' ? read.route : undefined;
}

async function byHosts(
  hosts: readonly string[],
  where: Where,
  { targets }: PlanGround,
  signal: AbortSignal,
): Promise<CasePlan> {
  const protocol = where.protocol ?? 'smtp';
  const port = where.port ?? (protocol === 'lmtp' ? 24 : 25);
  const servers = (await targets.find(hosts, port, signal)).map((hop) => ({ ...hop, port }));
  return { servers, protocol, tls: tlsOf(where, 'opportunistic', undefined), auth: authOf(where.auth), route: null };
}

async function byRoute(name: string, { settings, finder }: PlanGround, signal: AbortSignal): Promise<CasePlan> {
  const route = routeOf(settings, name);
  const search = await finder.forHosts(route.mx, { signal, allowPrivate: true });
  if (search.outcome !== 'found') throw problem('unavailable', `The route ${name} has no server: ${search.text}.`);
  return {
    servers: search.hops.map((hop) => ({ ...hop, port: route.port })),
    protocol: route.protocol,
    tls: tlsOf({}, route.tls, route.verify),
    auth: authOf(route.auth),
    route: name,
  };
}

/** @throws Problem `invalid` when there is no such route */
export function routeOf({ routes }: ClientQueueSettings, name: string): Route {
  const route = Object.hasOwn(routes, name) ? routes[name] : undefined;
  if (route === undefined)
    throw problem('invalid', `There is no route “${name}”. Routes are configured in plugins.client-queue.routes.`);
  return route;
}

async function byDomain(
  domains: readonly string[],
  where: Where,
  { settings, finder }: PlanGround,
  signal: AbortSignal,
): Promise<CasePlan> {
  const [domain, ...others] = new Set(domains);
  if (domain === undefined || others.length > 0)
    throw problem(
      'invalid',
      'The recipients have several domains: name a route or mx, or make a case for each domain.',
    );
  const allowPrivate = settings.allowPrivateAddresses;
  const search = await finder.forDomain(domain, { signal, allowPrivate });
  if (search.outcome !== 'found')
    throw problem(search.permanent ? 'invalid' : 'unavailable', `There is no way to ${domain}: ${search.text}.`);
  const policy = domainTls(domain, settings, search);
  return {
    servers: search.hops.map((hop) => ({ ...hop, port: settings.port })),
    protocol: 'smtp',
    // What the configuration or the domain requires no caller takes away.
    tls: policy.mode === 'require' ? policy : tlsOf(where, policy.mode, undefined),
    auth: undefined,
    route: null,
  };
}

function tlsOf({ tls, verify, auth }: Where, usual: TlsPolicy['mode'], usualVerify: boolean | undefined): TlsPolicy {
  const mode = tls ?? (auth === undefined ? usual : 'require');
  const check = verify ?? usualVerify;
  return check === undefined ? { mode } : { mode, verify: check };
}

function authOf(auth: { readonly user: string; readonly pass: string } | undefined): ClientCredentials | undefined {
  return auth === undefined ? undefined : { username: auth.user, password: auth.pass };
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
 * Hosts and ports that a caller may name. A name is resolved once, and the address that was looked at is the one that is
 * dialled: a name that later points elsewhere changes nothing.
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
   * @throws Problem `forbidden` when one of the hosts is not allowed, `unavailable` when none has an address
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
    // What looks like a number but is no address as people write them would be dialled as one by the system.
    if (isIP(name) === 0 && /^(0x[0-9a-f]*|[0-9]+)$/.test(name.split('.').at(-1) ?? '')) throw forbidden(host, port);
    const search = await this.#finder.forHosts([name], { signal, allowPrivate: true });
    const hops = search.outcome === 'found' ? search.hops : [];
    if (allowed.names.has(name)) return hops;
    const inside = hops.filter(({ address }) => allowed.networks.has(address));
    if (inside.length < hops.length || hops.length === 0) throw forbidden(host, port);
    return inside;
  }
}

/** The same sentence whether a name exists or not: the list is no way to ask the DNS. */
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
