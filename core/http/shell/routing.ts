import { isProblem, problem } from '../../problem.js';
import { signInFirst, type AccessControl, type AccessRules } from '../access.js';
import { bodyType, fieldsLimit, readFields } from '../body.js';
import { beginUse, endUse, type Method } from '../endpoint.js';
import type { Context, Next } from '../exchange.js';
import { prefersHtml } from '../negotiation.js';
import type { HttpSettings } from '../options.js';
import type { Pages } from '../pages.js';
import type { Fields } from '../validation.js';
import { namesake, methodNotAllowed, type Found, type MatchedRoute, type RouteTable } from '../routes.js';

interface RoutingDeps {
  readonly table: () => RouteTable;
  readonly rules: () => AccessRules;
  readonly access: AccessControl;
  readonly settings: () => HttpSettings;
  readonly pages: Pages;
}

/** Middleware that finds the route of a request and checks access to it. */
export class Routing {
  readonly #deps: RoutingDeps;

  constructor(deps: RoutingDeps) {
    this.#deps = deps;
  }

  /** Finds the routes of the path, and keeps their plugins in use until the request is answered. */
  readonly findPath = async (ctx: Context, next: Next): Promise<void> => {
    const found = this.#deps.table().find(ctx.path);
    if (found === undefined) {
      await this.#redirectOrRefuse(ctx);
      return;
    }
    beginUse(found.endpoints);
    try {
      // The compression middleware has set its own name there.
      ctx.res.setHeader('Vary', 'Accept-Encoding, Accept, HX-Request');
      ctx.state.found = found;
      await next(ctx);
    } finally {
      endUse(found.endpoints);
    }
  };

  /** Finds the route of the method; answers OPTIONS, and a method that the path does not have. */
  readonly matchMethod = async (ctx: Context, next: Next): Promise<void> => {
    const { exchange, found } = ctx.state;
    if (ctx.method === 'OPTIONS') {
      await this.#admitToAny(ctx, found);
      ctx.set('Allow', found.allow);
      ctx.status = 204;
      return;
    }
    exchange.route = found.routes.get(methodOf(ctx, undefined))?.route;
    const form = ctx.method === 'POST' ? await this.#overridingForm(ctx, found) : undefined;
    const method = methodOf(ctx, form);
    const matched = found.routes.get(method);
    if (matched === undefined) {
      await this.#deps.access.identify(ctx);
      const page = this.#pageBelow(ctx);
      if (page !== undefined) return sendOn(ctx, 303, page);
      await this.#admitToAny(ctx, found);
      throw methodNotAllowed(method, ctx.path, found, this.#deps.table());
    }
    exchange.route = matched.route;
    exchange.params = matched.params;
    ctx.state.matched = matched;
    ctx.state.body = form === undefined ? { kind: 'none' } : { kind: 'form', fields: form };
    await next(ctx);
  };

  readonly checkAccess = async (ctx: Context, next: Next): Promise<void> => {
    const { matched } = ctx.state;
    await this.#deps.access.admit(ctx, this.#gate(ctx, matched.route.endpoint.method, matched));
    await next(ctx);
  };

  /**
   * `GET /queue/retry` may match `/queue/{id}` and find nothing there: then the answer names the methods of
   * `/queue/retry`.
   */
  readonly explainNotFound = async (ctx: Context, next: Next): Promise<void> => {
    try {
      await next(ctx);
    } catch (error) {
      const { found, matched } = ctx.state;
      const { method } = matched.route.endpoint;
      const meant = isProblem(error) && error.problem === 'not-found' ? namesake(ctx.path, method, found) : undefined;
      throw meant === undefined ? error : methodNotAllowed(method, ctx.path, meant, this.#deps.table());
    }
  };

  /** An unknown address may have a slash too many, or pages below it. */
  async #redirectOrRefuse(ctx: Context): Promise<void> {
    const account = await this.#deps.access.identify(ctx);
    const bare = bareOf(ctx.path);
    const found = bare === ctx.path || bare === '' ? undefined : this.#deps.table().find(bare);
    // An anonymous client does not learn what exists.
    if (account === null && !(found !== undefined && this.#deps.pages.may(ctx, bare))) throw signInFirst();
    if (found !== undefined) return sendOn(ctx, 308, `${bare}${ctx.search}`);
    const page = this.#pageBelow(ctx);
    if (page === undefined) throw problem('not-found', 'There is nothing at this address.');
    sendOn(ctx, 303, page);
  }

  /** For people only; scripts get 404. */
  #pageBelow(ctx: Context): string | undefined {
    const asksForPage = (ctx.method === 'GET' || ctx.method === 'HEAD') && prefersHtml(ctx.get('Accept'));
    return asksForPage ? this.#deps.pages.below(ctx, bareOf(ctx.path)) : undefined;
  }

  #gate(ctx: Context, method: Method, { route }: MatchedRoute) {
    return this.#deps.rules().gate(method, ctx.path, route.endpoint);
  }

  /** Admits clients that may use one of the methods here. */
  async #admitToAny(ctx: Context, found: Found): Promise<void> {
    let refused: unknown;
    for (const [method, matched] of found.routes) {
      const gate = this.#gate(ctx, method, matched);
      try {
        await this.#deps.access.admit(ctx, gate);
        // An account of one method opens no other.
        if (gate.kind === 'own') ctx.state.exchange.account = null;
        return;
      } catch (error) {
        refused ??= error;
      }
    }
    throw refused;
  }

  /**
   * A form may name its method in `_method`, so it is read before the route is known, but only for clients that may use
   * something here.
   */
  async #overridingForm(ctx: Context, found: Found): Promise<Fields | undefined> {
    if (bodyType(ctx) !== 'application/x-www-form-urlencoded') return undefined;
    await this.#admitToAny(ctx, found);
    const { jsonBytes } = this.#deps.settings().limits;
    const reached = found.endpoints.filter(({ method }) => method !== 'GET');
    const limits = reached.map(({ body }) => fieldsLimit(body, jsonBytes));
    const body = await readFields(ctx, bodyType(ctx), Math.max(fieldsLimit(undefined, jsonBytes), ...limits));
    return body.kind === 'form' ? body.fields : undefined;
  }
}

const bareOf = (path: string): string => path.replace(/\/+$/, '');

function sendOn(ctx: Context, status: 303 | 308, target: string): void {
  ctx.status = status;
  ctx.set({ Location: target, 'Cache-Control': 'no-store' });
  ctx.body = '';
}

function methodOf(ctx: Context, form: Fields | undefined): Method {
  const method = ctx.method === 'HEAD' ? 'GET' : ctx.method;
  const override = form?.['_method'];
  if (override === undefined) return method as Method;
  if (override === 'PUT' || override === 'PATCH' || override === 'DELETE' || override === 'POST') return override;
  throw problem('bad-request', { errors: [{ pointer: '_method', message: 'must be PUT, PATCH or DELETE' }] });
}
