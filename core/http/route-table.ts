import { Router } from '@koa/router';
import { LRUCache } from 'lru-cache';
import { startError } from '../start-error.js';
import type { Method } from './endpoint.js';
import type { Route } from './route.js';

/** What a path leads to: its route for each method. */
export interface Found {
  readonly routes: ReadonlyMap<Method, MatchedRoute>;
  /** The methods for `Allow`, HEAD and OPTIONS included. */
  readonly allow: string;
}

export interface MatchedRoute {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}

/** Characters of a path that is remembered. */
const longestKnown = 300;

/** All routes, prepared for matching. Built anew when a plugin mounts or goes, never for a request. */
export class RouteTable {
  readonly #router = new Router({ strict: true, sensitive: true });
  readonly #byName = new Map<string, Route>();
  readonly #found = new LRUCache<string, Found>({ max: 500 });

  constructor(routes: readonly Route[]) {
    for (const route of routes.toSorted((a, b) => (a.specificity < b.specificity ? -1 : 1))) this.#add(route);
  }

  find(path: string): Found | undefined {
    const known = this.#found.get(path);
    if (known !== undefined) return known;
    const found = this.#match(path);
    if (found !== undefined && path.length <= longestKnown) this.#found.set(path, found);
    return found;
  }

  #match(path: string): Found | undefined {
    const routes = new Map<Method, MatchedRoute>();
    for (const layer of this.#router.match(path, 'GET').path) {
      const route = this.#byName.get(layer.name ?? '');
      if (route === undefined || routes.has(route.endpoint.method)) continue;
      routes.set(route.endpoint.method, { route, params: Object.freeze(layer.params(path, layer.captures(path))) });
    }
    if (routes.size === 0) return undefined;
    return {
      routes,
      get allow() {
        return allowed([...routes.keys()]);
      },
    };
  }

  #add(route: Route): void {
    const { method, path } = route.endpoint;
    const name = `${method} ${route.specificity}`;
    const other = this.#byName.get(name);
    if (other !== undefined) {
      throw startError(`${method} ${path} is mounted twice, by the plugins ${other.plugin} and ${route.plugin}.`);
    }
    this.#byName.set(name, route);
    this.#router.register(toRouterPath(path), [method], () => undefined, { name, strict: true, sensitive: true });
  }
}

/** `/store/{domain}` → `/store/:domain`. What else has a meaning there is escaped. */
function toRouterPath(path: string): string {
  if (!/^\/(?:[^{}]|\{[A-Za-z][A-Za-z0-9]*\})*$/.test(path))
    throw startError(`The endpoint path ${path} is malformed.`);
  return path
    .split(/(\{[^}]*\})/)
    .map((piece) => (piece.startsWith('{') ? `:${piece.slice(1, -1)}` : piece.replaceAll(/[:*(){}[\]+?!\\]/g, '\\$&')))
    .join('');
}

function allowed(methods: readonly Method[]): string {
  const all = methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
  return [...all, 'OPTIONS'].join(', ');
}
