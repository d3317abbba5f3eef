import { problem } from '../problem.js';
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
export function readInput(
  ctx: Context,
  matched: MatchedRoute,
  { representation, body: read, once, access }: InputSources,
): Input {
  const { endpoint } = matched.route;
  const params = validate(endpoint.params, matched.params, 'bad-request', 'names');
  const input = {
    params,
    query: readQuery(ctx, matched),
    body: undefined,
    request: {
      [context]: ctx,
      id: ctx.state.exchange.id,
      account: ctx.state.exchange.account,
      remoteAddress: ctx.state.exchange.remoteAddress,
      get host() {
        return hostName(ctx.get('Host'));
      },
      path: ctx.path,
      get listPath() {
        return listPath(ctx);
      },
      representation,
      fragment: representation === 'html' && wantsFragment(ctx),
      confirmed: !isForm(bodyType(ctx)) || (read.kind === 'form' ? read.fields['confirm'] === 'yes' : true),
      ifMatch: ctx.get('If-Match') || undefined,
      ifNoneMatch: ctx.get('If-None-Match') || undefined,
      stream: read.kind === 'raw' ? read.stream : undefined,
      files: read.kind === 'raw' ? read.files : [],
      fields: read.kind === 'raw' ? read.fields : {},
      contentType: ctx.get('Content-Type') || undefined,
      ...(once !== undefined && { once }),
      get signal() {
        return abortSignal(ctx, access);
      },
    },
  };
  return input;
}

/** Key of the context in a request. */
const context = Symbol('context');

/** For the endpoints of the shell itself, which set cookies. */
export function contextOf(request: EndpointRequest & { readonly [context]?: Context }): Context {
  const ctx = request[context];
  if (ctx === undefined) throw new Error('not the request of a handler');
  return ctx;
}

/**
 * Unknown parameters are refused, because a misspelt filter would otherwise select everything. Empty ones count as
 * absent.
 */
function readQuery(ctx: Context, { route }: MatchedRoute): unknown {
  if (ctx.querystring === '') return validate(route.endpoint.query, {}, 'bad-request', 'names');
  const given = parseFields(ctx.querystring, 'query');
  const fields = Object.fromEntries(
    Object.entries(given).filter(([name, value]) => value !== '' && !reserved.includes(name)),
  );
  const unknown = route.query.unknown(fields);
  if (unknown.length > 0) {
    const errors = unknown.slice(0, 20).map((name) => ({ pointer: name.slice(0, 100), message: 'unknown parameter' }));
    throw problem('bad-request', { detail: `Unknown query parameter: ${errors[0]?.pointer ?? ''}.`, errors });
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
  ctx.res.once('close', () => {
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
