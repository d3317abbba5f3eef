import { classOf, isProblem, problem } from '../problem.js';
import { type AccessControl, type AccessRules, unauthorized } from './access.js';
import { isPageForm, isResponse, namesTag, writeAnswer } from './response.js';
import { bodyType, isForm, readBody, readFields, refuseJsonAsForm, type ReadBody } from './body.js';
import { askToConfirm, confirmationView, unconfirmed } from './confirmation.js';
import type { HandlerInput, Method, RefusedForm, Representation, Response } from './endpoint.js';
import { holdAll } from './endpoint-hold.js';
import { wantsFragment, type Context } from './exchange.js';
import { negotiate, prefersHtml } from './negotiation.js';
import { listPath, type Notices, type Pages } from './pages.js';
import type { HttpSettings } from './options.js';
import { pageField, refillForm } from './refused-form.js';
import { parseFields, type Fields } from './request-target.js';
import { type Found, type MatchedRoute, namesake, type RouteTable, schemaOf, wrongMethod } from './routes.js';
import { type KeptAnswers, onlyOnce } from './idempotency.js';
import type { Uploads } from './uploads.js';
import { validate } from './validation.js';
import { wayBack, withParameter } from './referer.js';
import { runAs } from '../watchdog/running-code.js';

export interface DispatchParts {
  readonly table: () => RouteTable;
  readonly rules: () => AccessRules;
  readonly access: AccessControl;
  readonly settings: () => HttpSettings;
  readonly pages: Pages;
  readonly notices: Notices;
  readonly uploads: Uploads;
  readonly answers: KeptAnswers;
  /** Bytes. */
  readonly uploadLimit: () => number;
}

type Input = HandlerInput<unknown, unknown, unknown>;
const reserved = ['format', 'notice'];
/** Characters of an `Accept` that is remembered. */
const longestAgreed = 300;

/** From a checked request to an answer: route, access, body, schema, one call, representation. */
export class Dispatcher {
  readonly #parts: DispatchParts;

  constructor(parts: DispatchParts) {
    this.#parts = parts;
  }

  readonly run = async (ctx: Context): Promise<void> => {
    const found = this.#parts.table().find(ctx.path);
    if (found === undefined) {
      await this.#leadOn(ctx);
      return;
    }
    const letGo = holdAll([...found.routes.values()].map(({ route }) => route.endpoint));
    try {
      await this.#dispatch(ctx, found);
    } finally {
      letGo();
    }
  };

  /** An address with nothing at it may be one with a slash too many, or have pages below it. */
  async #leadOn(ctx: Context): Promise<void> {
    const account = await this.#parts.access.identify(ctx);
    const bare = bareOf(ctx.path);
    const found = bare === ctx.path || bare === '' ? undefined : this.#parts.table().find(bare);
    // Who has not signed in is not told what exists.
    if (account === null && !(found !== undefined && this.#parts.pages.may(ctx, bare))) throw unauthorized('Postern');
    if (found !== undefined) return sendOn(ctx, 308, `${bare}${ctx.search}`);
    const page = this.#pageBelow(ctx);
    if (page === undefined) throw problem('not-found', 'There is nothing at this address.');
    sendOn(ctx, 303, page);
  }

  /** For people: scripts are told that there is nothing for them to get. */
  #pageBelow(ctx: Context): string | undefined {
    const asksForPage = (ctx.method === 'GET' || ctx.method === 'HEAD') && prefersHtml(ctx.get('Accept'));
    return asksForPage ? this.#parts.pages.below(ctx, bareOf(ctx.path)) : undefined;
  }

  async #dispatch(ctx: Context, found: Found): Promise<void> {
    // The stage that compresses has put its own name there.
    ctx.res.setHeader('Vary', 'Accept-Encoding, Accept, HX-Request');
    if (ctx.method === 'OPTIONS') {
      await this.#admitToAny(ctx, found);
      ctx.set('Allow', found.allow);
      ctx.status = 204;
      return;
    }
    ctx.state.exchange.route = found.routes.get(methodOf(ctx, undefined))?.route;
    const form = await this.#overridingForm(ctx, found);
    const method = methodOf(ctx, form);
    const matched = found.routes.get(method);
    if (matched === undefined) {
      await this.#parts.access.identify(ctx);
      const page = this.#pageBelow(ctx);
      if (page !== undefined) return sendOn(ctx, 303, page);
      await this.#admitToAny(ctx, found);
      throw wrongMethod(method, ctx.path, found, this.#parts.table());
    }
    ctx.state.exchange.route = matched.route;
    ctx.state.exchange.params = matched.params;
    await this.#parts.access.admit(ctx, this.#gate(ctx, method, matched));
    try {
      await this.#answer(ctx, matched, form);
    } catch (error) {
      const meant = isProblem(error) && error.problem === 'not-found' ? namesake(ctx.path, method, found) : undefined;
      throw meant === undefined ? error : wrongMethod(method, ctx.path, meant, this.#parts.table());
    }
  }

  #gate(ctx: Context, method: Method, { route }: MatchedRoute) {
    return this.#parts.rules().gate(method, ctx.path, route.endpoint);
  }

  /** Lets in whoever may use one of the methods here. */
  async #admitToAny(ctx: Context, found: Found): Promise<void> {
    let refused: unknown;
    for (const [method, matched] of found.routes) {
      const gate = this.#gate(ctx, method, matched);
      try {
        await this.#parts.access.admit(ctx, gate);
        // An account that opens one method alone opens no other.
        if (gate.kind === 'own') ctx.state.exchange.account = null;
        return;
      } catch (error) {
        refused ??= error;
      }
    }
    throw refused;
  }

  /** A form may name its method in `_method`; so it is read before the route is known, but only for somebody who may do something here. */
  async #overridingForm(ctx: Context, found: Found): Promise<Fields | undefined> {
    if (ctx.method !== 'POST' || bodyType(ctx) !== 'application/x-www-form-urlencoded') return undefined;
    await this.#admitToAny(ctx, found);
    const limits = [...found.routes.values()].map(({ route: { endpoint } }) =>
      endpoint.body !== undefined && endpoint.body.kind !== 'raw' ? (endpoint.body.limit ?? 0) : 0,
    );
    const limit = Math.max(this.#parts.settings().limits.jsonBytes, ...limits);
    const body = await readFields(ctx, bodyType(ctx), limit);
    return body.kind === 'form' ? body.fields : undefined;
  }

  async #answer(ctx: Context, matched: MatchedRoute, form: Fields | undefined): Promise<void> {
    const { access, pages, uploads, settings } = this.#parts;
    const { endpoint } = matched.route;
    const representation = chooseRepresentation(ctx, matched);
    const read = takePage(
      ctx,
      form === undefined
        ? await readBody(ctx, endpoint.body, { ...settings().limits, uploadBytes: this.#parts.uploadLimit() }, uploads)
        : { kind: 'form', fields: form },
    );
    await onlyOnce(ctx, matched, read, this.#parts.answers, async (body, once) => {
      const given = readGiven(ctx, matched, { representation, read: body, once, access });
      const write = (response: Response, pageModel: () => object): Promise<void> =>
        writeAnswer(ctx, { matched, representation, response, pageModel }, this.#parts);
      try {
        const input = { ...given, body: readValues(matched, body) };
        if (endpoint.confirm !== undefined && !input.request.confirmed) {
          if (representation !== 'html') throw unconfirmed(endpoint.confirm);
          askToConfirm(ctx, endpoint.confirm, body.kind === 'form' ? body.fields : {}, pages);
          return;
        }
        await refuseOldTag(matched, input);
        const result = await runAs(matched.route.mark, () => endpoint.handle(input));
        const response: Response = isResponse(result) ? result : { postern: 'response', model: result };
        ctx.state.exchange.audit = response.audit;
        ctx.state.exchange.asked = response.view === confirmationView;
        await write(response, () => endpoint.page?.(response.model, input) ?? asObject(response.model));
      } catch (error) {
        if (!isProblem(error)) throw error;
        ctx.state.exchange.audit = error.details.audit;
        if (representation !== 'html') throw error;
        const refused = { ...given, fields: fieldsOf(body), problem: error };
        if (endpoint.again !== undefined && error.problem === 'invalid') {
          const response = await endpoint.again(refused);
          swapWholePage(ctx);
          await write({ ...response, status: 422 }, () => asObject(response.model));
        } else if (!(await this.#showFormAgain(ctx, refused))) throw error;
      }
    });
  }

  /**
   * The page of the form, with what was written and what is wrong with it: the one it came from, else the one at the address of the form or
   * near it. False when this account may see no such page.
   */
  async #showFormAgain(ctx: Context, refused: RefusedForm<unknown, unknown>): Promise<boolean> {
    if (!['invalid', 'conflict'].includes(refused.problem.problem) || !isForm(bodyType(ctx))) return false;
    const near = this.#parts.table().pageNear(ctx.path)?.endpoint.path;
    const pages = new Set([wayBack(ctx), ctx.url, near].filter((page) => page !== undefined));
    for (const page of pages) {
      const html = await this.#refilledPage(ctx, withParameter(page, 'notice', undefined), refused);
      if (html === undefined) continue;
      swapWholePage(ctx);
      ctx.status = classOf(refused.problem).http;
      ctx.set({ 'Cache-Control': 'no-store', 'Content-Type': 'text/html; charset=utf-8' });
      ctx.body = html;
      return true;
    }
    return false;
  }

  async #refilledPage(
    ctx: Context,
    page: string,
    { fields, problem: { details } }: RefusedForm<unknown, unknown>,
  ): Promise<string | undefined> {
    const { access, pages, table } = this.#parts;
    const [path = ''] = page.split('?', 1);
    const matched = table().find(path)?.routes.get('GET');
    if (matched?.route.template === undefined || !pages.may(ctx, path)) return undefined;
    const { endpoint, mark, plugin, template } = matched.route;
    const action = ctx.url;
    const release = holdAll([endpoint]);
    try {
      // A view shows links and filters of the address that it is asked for.
      ctx.url = page;
      const read: ReadBody = { kind: 'none' };
      const given = readGiven(ctx, matched, { representation: 'html', read, once: undefined, access });
      const input = { ...given, body: undefined };
      const result = await runAs(mark, () => endpoint.handle(input));
      const { model, view }: Partial<Response> = isResponse(result) ? result : { model: result };
      const html = pages.render(
        ctx,
        view === undefined ? template : pages.resolve(plugin, view),
        endpoint.summary,
        endpoint.page?.(model, input) ?? asObject(model),
      );
      return await refillForm(html, { action, fields, details, page });
    } catch (error) {
      // What keeps the page from being shown is not what was wrong with the form.
      if (isProblem(error)) return undefined;
      throw error;
    } finally {
      ctx.url = action;
      release();
    }
  }
}

const bareOf = (path: string): string => path.replace(/\/+$/, '');

function sendOn(ctx: Context, status: 303 | 308, target: string): void {
  ctx.status = status;
  ctx.set({ Location: target, 'Cache-Control': 'no-store' });
  ctx.body = '';
}

/** The page that a form says it is on is no field of its endpoint. */
function takePage(ctx: Context, read: ReadBody): ReadBody {
  if (read.kind !== 'form' && read.kind !== 'raw') return read;
  const { [pageField]: page, ...fields } = read.fields;
  if (typeof page === 'string') ctx.state.exchange.page = page;
  return page === undefined ? read : { ...read, fields };
}

/** Wherever htmx would have put the answer of a form that succeeds: the page with what is wrong takes the place of the page. */
function swapWholePage(ctx: Context): void {
  if (ctx.get('HX-Request') !== 'true') return;
  const target = wantsFragment(ctx) ? '#content' : 'body';
  ctx.set({ 'HX-Retarget': target, 'HX-Reswap': 'innerHTML', 'HX-Reselect': 'unset' });
}

const fieldsOf = (body: ReadBody): Fields => (body.kind === 'form' || body.kind === 'raw' ? body.fields : {});

const asObject = (model: unknown): object => (typeof model === 'object' && model !== null ? model : {});

/** RFC 9110 §13.1.1, for endpoints that can tell their tag beforehand. */
async function refuseOldTag({ route }: MatchedRoute, input: Input): Promise<void> {
  const { ifMatch } = input.request;
  if (ifMatch === undefined || route.endpoint.etag === undefined) return;
  const tag = await route.endpoint.etag(input);
  if (tag !== undefined && namesTag(ifMatch, tag)) return;
  throw problem('precondition-failed', 'It has changed since you read it. Read it again, then repeat your change.');
}

function methodOf(ctx: Context, form: Fields | undefined): Method {
  const method = ctx.method === 'HEAD' ? 'GET' : ctx.method;
  const override = form?.['_method'];
  if (override === undefined) return method as Method;
  if (override === 'PUT' || override === 'PATCH' || override === 'DELETE' || override === 'POST') return override;
  throw problem('bad-request', { errors: [{ pointer: '_method', message: 'must be PUT, PATCH or DELETE' }] });
}

function chooseRepresentation(ctx: Context, { route }: MatchedRoute): Representation {
  const format = ctx.query['format'];
  if (Array.isArray(format)) throw problem('bad-request', 'The parameter format occurs twice.');
  const accept = ctx.get('Accept');
  const htmx = ctx.get('HX-Request') === 'true';
  if (format === undefined && route.endpoint.method !== 'GET' && isPageForm(ctx, htmx || prefersHtml(accept)))
    return 'html';
  if (format === undefined && htmx && route.endpoint.method !== 'GET') return 'html';
  if (format !== undefined || htmx || accept.length > longestAgreed)
    return negotiate(route.produces, route.fallback, { accept, format, htmx });
  const known = route.agreed.get(accept);
  if (known !== undefined) return known;
  const agreed = negotiate(route.produces, route.fallback, { accept, format, htmx });
  route.agreed.set(accept, agreed);
  return agreed;
}

interface Given {
  readonly representation: Representation;
  readonly read: ReadBody;
  readonly once: string | undefined;
  readonly access: AccessControl;
}

/** All but the values of the body. */
function readGiven(
  ctx: Context,
  matched: MatchedRoute,
  { representation, read, once, access }: Given,
): Omit<Input, 'body'> {
  const { endpoint } = matched.route;
  const params = validate(endpoint.params, matched.params, 'bad-request', 'names');
  return {
    params,
    query: readQuery(ctx, matched),
    request: {
      id: ctx.state.exchange.id,
      account: ctx.state.exchange.account,
      remoteAddress: ctx.state.exchange.remoteAddress,
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
}

/** Unknown parameters are refused, because a misspelt filter would otherwise select everything. Empty ones count as absent. */
function readQuery(ctx: Context, { route }: MatchedRoute): unknown {
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
