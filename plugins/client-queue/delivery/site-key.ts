import type { HopSearch } from '../../../core/dns/next-hop.js';
import type { ClientQueueSettings } from '../options.js';

/** Limits of a site; what is absent is as for every site. */
export interface SiteLimits {
  readonly maxConnections?: number | undefined;
  readonly ratePerMinute?: number | undefined;
}

type Settings = Pick<ClientQueueSettings, 'sites' | 'port'>;

const prefix = 'site:';

export const siteKey = (name: string): string => `${prefix}${name}`;
export const isSite = (key: string): boolean => key.startsWith(prefix);

/** Names of servers, as they stand in the key of their site. */
const written = /^[a-z0-9._:[\]-]+(,[a-z0-9._:[\]-]+)*$/;

/** A site as somebody wrote it, in its one spelling; undefined when it is none. */
export function parseSite(text: string): string | undefined {
  const key = text.trim().toLowerCase();
  return isSite(key) && written.test(key.slice(prefix.length)) ? key : undefined;
}

/** The site of a destination for people; null when it says no more than the name of the destination. */
export function siteLabel(site: string | null, destination: string): string | null {
  if (site === null || !isSite(site) || site === destination || site === siteKey(destination)) return null;
  return site.slice(prefix.length).replaceAll(',', ', ');
}

/** The site of a domain: its best servers belong to a configured one, or it is the set of all its servers. */
export function siteOfSearch(search: HopSearch, domain: string, settings: Settings): string {
  if (search.outcome === 'failed') return siteKey(servers([domain]));
  const best = Math.min(...search.hops.map(({ preference }) => preference));
  const hosts = search.hops.filter(({ preference }) => preference === best).map(({ host }) => host);
  return groupOf(hosts, settings) ?? siteKey(servers(search.site.split(',')));
}

/** The site of a route, by the names that it has: nobody is asked. */
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

/** `*.example.org` covers all names below, any other rule itself. */
export function covers(rule: string, name: string): boolean {
  return rule.startsWith('*.') ? name.endsWith(rule.slice(1)) : rule === name;
}

/** A site has no more names than that: a domain may name hundreds of servers. */
const mostNamed = 10;

/** Sorted, each once. A name without a dot gets one behind it: the names of configured sites have none. */
function servers(hosts: readonly string[]): string {
  return [...new Set(hosts.map((host) => (/[.:]/.test(host) ? host : `${host}.`)))]
    .sort()
    .slice(0, mostNamed)
    .join(',');
}
