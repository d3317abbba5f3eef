import type { HopFinder, NextHop } from '../../../core/dns/next-hop.js';
import { problem } from '../../../core/problem.js';
import type { ClientCredentials, TlsPolicy } from '../../../core/smtp/client/remote-server.js';
import type { TargetList } from '../delivery/destination.js';
import { DestinationRules, readDestination } from '../delivery/destination.js';
import { hopTls } from '../delivery/next-hops.js';
import type { ClientQueueSettings, OutboundRoute } from '../options.js';
import type { CaseDefinition } from './definition.js';

/** Where and how a case is sent, after lookups and permission checks. */
export interface CasePlan {
  readonly servers: readonly (NextHop & { readonly port: number; readonly tls: TlsPolicy })[];
  readonly protocol: 'smtp' | 'lmtp';
  readonly auth: ClientCredentials | undefined;
  /** Name of the route; null when the servers were given or found by MX. */
  readonly route: string | null;
}

interface PlanContext {
  readonly settings: ClientQueueSettings;
  readonly targets: TargetList;
  readonly finder: HopFinder;
}

type Where = Pick<CaseDefinition, 'route' | 'mx' | 'port' | 'protocol' | 'tls' | 'verify' | 'auth'>;

/**
 * Uses the hosts that the case names, else its route, else the route of queued mail to its recipients, else the MX of
 * the one domain that all recipients share.
 * @throws Problem `forbidden` for hosts that are not allowed, `invalid`, `unavailable`
 */
export async function planCase(
  where: Where,
  domains: readonly string[],
  context: PlanContext,
  signal: AbortSignal,
): Promise<CasePlan> {
  if (where.mx !== undefined) return byHosts(where.mx, where, context, signal);
  const name = where.route ?? routeOfDomains(domains, context.settings);
  return name === undefined ? byDomain(domains, where, context, signal) : byRoute(name, context, signal);
}

/** The route of queued mail to all of these domains, if they share one. */
function routeOfDomains(domains: readonly string[], settings: ClientQueueSettings): string | undefined {
  const rules = new DestinationRules(settings);
  const [key = '', ...others] = new Set(domains.map((domain) => rules.keyOf({ domain })));
  const read = readDestination(key);
  return others.length === 0 && read.kind === 'route' ? read.route : undefined;
}

async function byHosts(
  hosts: readonly string[],
  where: Where,
  { targets }: PlanContext,
  signal: AbortSignal,
): Promise<CasePlan> {
  const protocol = where.protocol ?? 'smtp';
  const port = where.port ?? (protocol === 'lmtp' ? 24 : 25);
  const tls = tlsOf(where, 'opportunistic', undefined);
  const servers = (await targets.find(hosts, port, signal)).map((hop) => ({ ...hop, port, tls }));
  return { servers, protocol, auth: authOf(where.auth), route: null };
}

async function byRoute(name: string, { settings, finder }: PlanContext, signal: AbortSignal): Promise<CasePlan> {
  const route = routeOf(settings, name);
  const search = await finder.forHosts(route.mx, { signal, allowPrivate: true });
  if (search.outcome !== 'found') throw problem('unavailable', `The route ${name} has no server: ${search.text}.`);
  const tls = tlsOf({}, route.tls, route.verify);
  return {
    servers: search.hops.map((hop) => ({ ...hop, port: route.port, tls })),
    protocol: route.protocol,
    auth: authOf(route.auth),
    route: name,
  };
}

/** @throws Problem `invalid` for an unknown route */
export function routeOf({ routes }: ClientQueueSettings, name: string): OutboundRoute {
  const route = Object.hasOwn(routes, name) ? routes[name] : undefined;
  if (route === undefined)
    throw problem('invalid', `There is no route “${name}”. Routes are configured in plugins.client-queue.routes.`);
  return route;
}

async function byDomain(
  domains: readonly string[],
  where: Where,
  { settings, finder }: PlanContext,
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
  const { mustVerify } = search;
  return {
    servers: search.hops.map((hop) => {
      const policy = hopTls(domain, settings, { mustVerify, dane: hop.dane });
      // A caller cannot weaken what the configuration or the domain requires.
      const tls = policy.mode === 'require' ? policy : tlsOf(where, policy.mode, undefined);
      return { ...hop, port: settings.port, tls };
    }),
    protocol: 'smtp',
    auth: undefined,
    route: null,
  };
}

function tlsOf({ tls, verify, auth }: Where, usual: TlsPolicy['mode'], defaultVerify: boolean | undefined): TlsPolicy {
  const mode = tls ?? (auth === undefined ? usual : 'require');
  const check = verify ?? defaultVerify;
  return check === undefined ? { mode } : { mode, verify: check };
}

function authOf(auth: { readonly user: string; readonly pass: string } | undefined): ClientCredentials | undefined {
  return auth === undefined ? undefined : { username: auth.user, password: auth.pass };
}
