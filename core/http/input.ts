import { problem } from '../problem.js';
import type { Account } from '../contracts/accounts.js';
import type { AccessControl } from './access.js';
import { bodyType, hasBody, isForm, readBody, refuseJsonAsForm, type Uploads } from './body.js';
import type { EndpointRequest, HandlerInput, Representation } from './endpoint.js';
import { wantsFragment, type Context, type Next, type ReadBody, type Middleware } from './exchange.js';
import { negotiate, prefersHtml } from './negotiation.js';
import type { HttpSettings } from './options.js';
import { listPath } from './pages.js';
import { pageField } from './form-refill.js';
import { hostName, parseFields } from './request-checks.js';
import { isPageForm } from './response.js';
import { schemaOf, type MatchedRoute } from './routes.js';
import { validate } from './validation.js';

type Input = HandlerInput<unknown, unknown, unknown>;
const reserved = ['format', 'notice'];
/** Characters of an `Accept` that is cached. */
const maxAgreed = 300;

/** Chooses the representation of the response. */
export function negotiation(): Middleware {
  return function chooseFormat(ctx: Context, next: Next) {
    ctx.state.representation = chooseRepresentation(ctx, ctx.state.matched);
    return next(ctx);
  };
}

/** Reads the body that the endpoint declares, unless it is a form that `matchMethod` has read. */
export function bodyParser(settings: () => HttpSettings, uploadLimit: () => number, uploads: Uploads): Middleware {
  async function parse(ctx: Context, next: Next) {
    const { matched, body } = ctx.state;
    const limits = { ...settings().limits, uploadBytes: uploadLimit() };
    const read = body.kind === 'form' ? body : await readBody(ctx, matched.route.endpoint.body, limits, uploads);
    ctx.state.body = takePage(ctx, read);
    await next(ctx);
  }
  return function parseBody(ctx: Context, next: Next) {
    const isEmpty = ctx.state.matched.route.endpoint.body === undefined && !hasBody(ctx);
    return isEmpty ? next(ctx) : parse(ctx, next);
  };
}

/** Checks parameters and query. */
export function inputReader(access: AccessControl): Middleware {
  return function checkInput(ctx: Context, next: Next) {
    const { matched, representation, body, once } = ctx.state;
    ctx.state.input = readInput(ctx, matched, { representation, body, once, access });
    return next(ctx);
  };
}

/** Checks the values of the body. */
export function bodyValidator(): Middleware {
  return function checkBody(ctx: Context, next: Next) {
    const { input, matched, body } = ctx.state;
    const values = readValues(matched, body);
    if (values !== undefined) ctx.state.input = { ...input, body: values };
    return next(ctx);
  };
}

interface InputSources {
  readonly representation: Representation;
  readonly body: ReadBody;
  readonly once: string | undefined;
  readonly access: AccessControl;
}

/** The input of a handler, except the values of the body. */
export function readInput(ctx: Context, matched: MatchedRoute, sources: InputSources): Input {
  const { endpoint } = matched.route;
  return {
    params: validate(endpoint.params, matched.params, 'bad-request', 'names'),
    query: readQuery(ctx, matched),
    body: undefined,
    request: new HandlerRequest(ctx, sources),
  };
}

/** What few handlers ask for is read when they do. */
class HandlerRequest implements EndpointRequest {
  readonly #ctx: Context;
  readonly #sources: InputSources;
  readonly fragment: boolean;
  readonly confirmed: boolean;
  readonly once?: string;
  #signal: AbortSignal | undefined;

  constructor(ctx: Context, sources: InputSources) {
    const { representation, body, once } = sources;
    this.#ctx = ctx;
    this.#sources = sources;
    this.fragment = representation === 'html' && wantsFragment(ctx);
    this.confirmed = !isForm(bodyType(ctx)) || body.kind !== 'form' || body.fields['confirm'] === 'yes';
    if (once !== undefined) this.once = once;
  }

  static contextOf(request: EndpointRequest): Context {
    if (!(request instanceof HandlerRequest)) throw new Error('not the request of a handler');
    return request.#ctx;
  }

  get id(): string {
    return this.#ctx.state.exchange.id;
  }

  get account(): Account | null {
    return this.#ctx.state.exchange.account;
  }

  get remoteAddress(): string {
    return this.#ctx.state.exchange.remoteAddress;
  }

  get host(): string | undefined {
    return hostName(this.#ctx.get('Host'));
  }

  get path(): string {
    return this.#ctx.path;
  }

  get listPath(): string {
    return listPath(this.#ctx);
  }

  get representation(): Representation {
    return this.#sources.representation;
  }

  get ifMatch(): string | undefined {
    return this.#ctx.get('If-Match') || undefined;
  }

  get ifNoneMatch(): string | undefined {
    return this.#ctx.get('If-None-Match') || undefined;
  }

  get stream(): EndpointRequest['stream'] {
    return this.#raw?.stream;
  }

  get files(): EndpointRequest['files'] {
    return this.#raw?.files ?? [];
  }

  get fields(): EndpointRequest['fields'] {
    return this.#raw?.fields ?? {};
  }

  get #raw(): Extract<ReadBody, { kind: 'raw' }> | undefined {
    const { body } = this.#sources;
    return body.kind === 'raw' ? body : undefined;
  }

  get contentType(): string | undefined {
    return this.#ctx.get('Content-Type') || undefined;
  }

  get signal(): AbortSignal {
    return (this.#signal ??= abortSignal(this.#ctx, this.#sources.access));
  }
}

/** For the endpoints of the shell itself, which set cookies. */
export const contextOf = (request: EndpointRequest): Context => HandlerRequest.contextOf(request);

/**
 * Unknown parameters are refused, because a misspelt filter would otherwise select everything. Empty ones count as
 * absent.
 */
export function readQuery(ctx: Context, { route }: MatchedRoute): unknown {
  if (ctx.querystring === '') return validate(route.endpoint.query, {}, 'bad-request', 'names');
  const given = parseFields(ctx.querystring, 'query');
  const fields = Object.fromEntries(
    Object.entries(given).filter(([name, value]) => value !== '' && !reserved.includes(name)),
  );
  const unknown = route.query.unknown(fields);
  if (unknown.length > 0) {
    const names = unknown.slice(0, 20).map((name) => name.slice(0, 100));
    const errors = names.map((pointer) => ({ pointer, message: `Unknown query parameter: ${pointer}.` }));
    throw problem('bad-request', { detail: errors[0]?.message ?? '', errors });
  }
  return validate(route.endpoint.query, route.query.read(fields), 'bad-request', 'names');
}

function readValues({ route }: MatchedRoute, read: ReadBody): unknown {
  const schema = schemaOf(route.endpoint.body);
  if (schema === undefined || read.kind === 'raw') return undefined;
  if (read.kind === 'form') {
    refuseJsonAsForm(read.fields);
    const { _method, confirm, ...fields } = read.fields;
    void _method;
    return validate(schema, route.form.read(confirmIsField(route, confirm) ? read.fields : fields), 'invalid', 'json');
  }
  return validate(schema, read.kind === 'json' ? read.value : {}, 'invalid', 'json');
}

/** `confirm` belongs to the shell unless the endpoint declares a field of that name. */
const confirmIsField = (route: MatchedRoute['route'], confirm: unknown): boolean =>
  confirm !== undefined && route.form.unknown({ confirm: '' }).length === 0;

function abortSignal(ctx: Context, access: AccessControl): AbortSignal {
  const controller = new AbortController();
  if (ctx.res.destroyed) controller.abort();
  else access.untilTakenAway(ctx, () => controller.abort());
  ctx.state.exchange.atEnd.push(() => {
    if (!ctx.res.writableFinished) controller.abort();
  });
  return controller.signal;
}

/** The field with the page of a form is not a field of its endpoint. */
function takePage(ctx: Context, read: ReadBody): ReadBody {
  if (read.kind !== 'form' && read.kind !== 'raw') return read;
  const { [pageField]: page, ...fields } = read.fields;
  if (typeof page === 'string') ctx.state.exchange.page = page;
  return page === undefined ? read : { ...read, fields };
}

function chooseRepresentation(ctx: Context, { route }: MatchedRoute): Representation {
  const format = ctx.querystring === '' ? undefined : ctx.query['format'];
  if (Array.isArray(format)) throw problem('bad-request', 'The parameter format occurs twice.');
  const accept = ctx.get('Accept');
  const htmx = ctx.get('HX-Request') === 'true';
  if (format === undefined && route.endpoint.method !== 'GET' && isPageForm(ctx, htmx || prefersHtml(accept)))
    return 'html';
  if (format === undefined && htmx && route.endpoint.method !== 'GET') return 'html';
  if (format !== undefined || htmx || accept.length > maxAgreed)
    return negotiate(route.produces, route.fallback, { accept, format, htmx });
  const known = route.agreed.get(accept);
  if (known !== undefined) return known;
  const agreed = negotiate(route.produces, route.fallback, { accept, format, htmx });
  route.agreed.set(accept, agreed);
  return agreed;
}
