import { Router } from '@koa/router';
import { LRUCache } from 'lru-cache';
import type { z } from 'zod';
import { problem, type Problem, startError } from '../problem.js';
import { type Mark, markOf } from '../watchdog/running-code.js';
import { refuseBadEndpoint } from './endpoint-check.js';
import type { AnyEndpoint, BodyDeclaration, Endpoint, Method, Representation } from './endpoint.js';
import { FieldShape } from './validation.js';
import type { Views } from './views.js';

/** The handler of an endpoint without its types: validated input goes in. */
export type OpenEndpoint = Endpoint;

/** An endpoint with everything that can be computed before a request. */
export interface Route {
  readonly plugin: string;
  readonly endpoint: OpenEndpoint;
  readonly mark: Mark;
  readonly template: string | undefined;
  readonly produces: readonly Representation[];
  readonly fallback: Representation;
  /** Cached results of `Accept`: clients repeat themselves. */
  readonly agreed: LRUCache<string, Representation>;
  readonly query: FieldShape;
  readonly form: FieldShape;
  /** In the order of preference for this path: literal segments before parameters. */
  readonly specificity: string;
}

export function compileRoute(plugin: string, declared: AnyEndpoint, views: Views): Route {
  const endpoint = declared as unknown as OpenEndpoint;
  refuseBadEndpoint(plugin, endpoint);
  const { view, path } = endpoint;
  const produces: readonly Representation[] = endpoint.produces ?? (view === undefined ? ['json'] : ['html', 'json']);
  const usual = produces.includes('json') ? 'json' : (produces[0] ?? 'json');
  return {
    plugin,
    endpoint,
    mark: markOf(plugin, `${endpoint.method} ${path}`),
    template: view === undefined ? undefined : views.resolve(plugin, view),
    produces,
    fallback: endpoint.fallback ?? usual,
    agreed: new LRUCache({ max: 20 }),
    query: new FieldShape(endpoint.query),
    form: new FieldShape(schemaOf(endpoint.body)),
    specificity: path.replaceAll(/\{[^}]*\}/g, '~'),
  };
}

export function schemaOf(body: BodyDeclaration<z.ZodType> | undefined): z.ZodType | undefined {
  return body === undefined || body.kind === 'raw' ? undefined : body.schema;
}

/** Routes of a path by method. */
export interface Found {
  readonly routes: ReadonlyMap<Method, MatchedRoute>;
  readonly endpoints: readonly OpenEndpoint[];
  /** The methods for `Allow`, HEAD and OPTIONS included. */
  readonly allow: string;
}

export interface MatchedRoute {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}

/** Characters of a path that is cached. */
const maxCachedPath = 300;

/** All routes. Rebuilt when a plugin mounts or unmounts; prepared for matching by the first request. */
export class RouteTable {
  #router: Router | undefined;
  readonly #byName = new Map<string, Route>();
  readonly #found = new LRUCache<string, Found>({ max: 500 });

  constructor(routes: readonly Route[]) {
    for (const route of routes.toSorted((a, b) => (a.specificity < b.specificity ? -1 : 1))) this.#add(route);
  }

  find(path: string): Found | undefined {
    const known = this.#found.get(path);
    if (known !== undefined) return known;
    const found = this.#match(path);
    if (found !== undefined && path.length <= maxCachedPath) this.#found.set(path, found);
    return found;
  }

  #match(path: string): Found | undefined {
    const routes = new Map<Method, MatchedRoute>();
    for (const layer of this.#prepared.match(path, 'GET').path) {
      const route = this.#byName.get(layer.name ?? '');
      if (route === undefined || routes.has(route.endpoint.method)) continue;
      routes.set(route.endpoint.method, { route, params: Object.freeze(layer.params(path, layer.captures(path))) });
    }
    if (routes.size === 0) return undefined;
    return foundOf(routes);
  }

  /** A page at an address above, or the one with the shortest address below it, which may have been meant. */
  pageNear(path: string): Route | undefined {
    for (let above = path; above !== ''; above = above.slice(0, above.lastIndexOf('/'))) {
      const near = this.#pages.find(({ endpoint }) => endpoint.path === above) ?? this.pagesBelow(above)[0];
      if (near !== undefined) return near;
    }
    return undefined;
  }

  /** Those with the shortest address first. */
  pagesBelow(path: string): readonly Route[] {
    return this.#pages
      .filter(({ endpoint }) => endpoint.path.startsWith(`${path}/`))
      .toSorted(({ endpoint: one }, { endpoint: other }) => one.path.length - other.path.length);
  }

  get #pages(): readonly Route[] {
    return [...this.#byName.values()].filter(
      ({ endpoint: { method, path }, produces }) =>
        method === 'GET' && produces.includes('html') && !path.includes('{'),
    );
  }

  get #prepared(): Router {
    this.#router ??= routerOf(this.#byName);
    return this.#router;
  }

  #add(route: Route): void {
    const { method, path } = route.endpoint;
    if (!/^\/(?:[^{}]|\{[A-Za-z][A-Za-z0-9]*\})*$/.test(path))
      throw startError(`The endpoint path ${path} is malformed.`);
    const name = `${method} ${route.specificity}`;
    const other = this.#byName.get(name);
    if (other !== undefined) {
      throw startError(`${method} ${path} is mounted twice, by the plugins ${other.plugin} and ${route.plugin}.`);
    }
    this.#byName.set(name, route);
  }
}

const foundOf = (routes: ReadonlyMap<Method, MatchedRoute>): Found => ({
  routes,
  endpoints: [...routes.values()].map(({ route }) => route.endpoint),
  allow: allowed([...routes.keys()]),
});

function routerOf(routes: ReadonlyMap<string, Route>): Router {
  const router = new Router({ strict: true, sensitive: true });
  for (const [name, { endpoint }] of routes) {
    const path = toRouterPath(endpoint.path);
    router.register(path, [endpoint.method], () => undefined, { name, strict: true, sensitive: true });
  }
  return router;
}

/** `/store/{domain}` → `/store/:domain`. Everything else with a meaning there is escaped. */
function toRouterPath(path: string): string {
  return path
    .split(/(\{[^}]*\})/)
    .map((piece) => (piece.startsWith('{') ? `:${piece.slice(1, -1)}` : piece.replaceAll(/[:*(){}[\]+?!\\]/g, '\\$&')))
    .join('');
}

function allowed(methods: readonly Method[]): string {
  const all = methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
  return [...all, 'OPTIONS'].join(', ');
}

/** The answer to an unsupported method: what the other methods do, and a page that may be meant. */
export function methodNotAllowed(method: Method, path: string, found: Found, table: RouteTable): Problem {
  const { allow, routes } = found;
  const ways = [...routes].map(([other, { route }]) => `${other}: ${sentence(route.endpoint.summary)}`);
  const page = table.pageNear(path)?.endpoint;
  return problem('method-not-allowed', {
    detail: `This address is not for ${method}. ${ways.join(' ')}`,
    headers: { Allow: allow },
    ...(page !== undefined && { instead: [{ href: page.path, title: page.summary }] }),
  });
}

/**
 * The routes of exactly this path, where a route with a parameter found nothing by that name: `/queue/retry` is for
 * POST, not an entry called retry.
 */
export function namesake(path: string, method: Method, found: Found): Found | undefined {
  const routes = new Map([...found.routes].filter(([, { route }]) => route.endpoint.path === path));
  return routes.size === 0 || routes.has(method) ? undefined : foundOf(routes);
}

const sentence = (summary: string): string => (/[.!?]$/.test(summary) ? summary : `${summary}.`);
