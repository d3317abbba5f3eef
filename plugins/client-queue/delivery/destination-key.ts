import { parseAddressLiteral, parseDomain } from '../../../core/mime/address.js';
import { isProblem } from '../../../core/problem.js';
import { type NamedServers, readNamedServers } from './named-servers.js';
import { parseSite } from './site-key.js';

/** What a destination key of the queue stands for. */
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

/** A destination, or a site of several, as somebody wrote it, in its one spelling. @throws Problem `invalid` */
export function parseDestination(written: string): string {
  const text = written.trim().toLowerCase();
  const site = parseSite(text);
  if (site !== undefined) return site;
  if (/^(route|target):[a-z0-9][a-z0-9-]{0,62}$/.test(text) || readNamedServers(text) !== undefined) return text;
  return text.startsWith('[') ? parseAddressLiteral(text) : parseDomain(text);
}

/** The same of what is only looked up: what is no destination is not found. */
export function spelledDestination(written: string): string {
  try {
    return parseDestination(written);
  } catch (error) {
    if (isProblem(error)) return written.toLowerCase();
    throw error;
  }
}

export interface RouteRules {
  readonly routes: Readonly<Record<string, { readonly domains: readonly string[] }>>;
  readonly defaultRoute?: string | undefined;
}

/** Where recipients go: by the domains of routes, the exact ones first, then the longest `*.` in front of a domain, then the default route. */
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
    // A mail for one certain machine goes there.
    return domain.startsWith('[') ? undefined : this.#usual;
  }
}
