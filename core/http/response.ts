import { pipeline, Readable } from 'node:stream';
import { problem, type Problem } from '../problem.js';
import { bodyType, isForm } from './body.js';
import {
  type ByteSource,
  type EndpointRequest,
  type Method,
  type Representation,
  respond,
  type Response,
} from './endpoint.js';
import { type Context, wantsFragment } from './exchange.js';
import { listPath, type Notices, type Pages } from './pages.js';
import { isOwnPath, ownReferer, withParameter } from './referer.js';
import { bytesPolicy } from './response-headers.js';
import type { MatchedRoute } from './routes.js';
import type { Fields } from './validation.js';

const cacheControl = { 'no-store': 'no-store', private: 'private, no-cache', public: 'public, max-age=86400' } as const;

interface ResponseDeps {
  readonly pages: Pages;
  readonly notices: Notices;
}

export const isResponse = (value: unknown): value is Response =>
  typeof value === 'object' && value !== null && (value as Partial<Response>).postern === 'response';

export const asObject = (model: unknown): object => (typeof model === 'object' && model !== null ? model : {});

/**
 * Writes the result of a handler in the negotiated representation.
 *
 * @param pageModel the model for the view
 */
export async function writeResponse(
  ctx: Context,
  response: Response,
  pageModel: () => object,
  { pages, notices }: ResponseDeps,
): Promise<void> {
  const { matched, representation } = ctx.state;
  const { endpoint, template } = matched.route;
  ctx.res.setHeader('Cache-Control', cacheControl[endpoint.cache ?? 'private']);
  const view = response.view === undefined ? template : viewOf(matched, response.view, pages);
  if (representation === 'html' && endpoint.method !== 'GET' && view === undefined) {
    redirect(ctx, response, notices);
    return;
  }
  ctx.status = response.status ?? defaultStatus(endpoint.method, response);
  // For other statuses only forms use the location.
  if (response.location !== undefined && [201, 202].includes(ctx.status))
    ctx.set('Location', encodePath(response.location));
  if (fresh(ctx, response, representation)) {
    await response.bytes?.source.close?.();
    return;
  }
  if (response.bytes !== undefined) await sendBytes(ctx, response.bytes, response.etag);
  else if (response.stream !== undefined) sendStream(ctx, response.stream.source, response.stream.contentType);
  else if (response.text !== undefined) sendText(ctx, response.text.body, response.text.contentType);
  else if (representation === 'html' && view !== undefined) {
    sendText(ctx, pages.render(ctx, view, endpoint.summary, pageModel()), 'text/html; charset=utf-8');
  } else sendJson(ctx, response);
  if (response.headers !== undefined) override(ctx, response.headers);
}

/**
 * Resolved like the `view` of the endpoint: among the views of its plugin. The confirmation page is always the
 * server's.
 */
const viewOf = ({ route }: MatchedRoute, view: string, pages: Pages): string =>
  view === confirmationView ? view : pages.resolve(route.plugin, view);

const defaultStatus = (method: Method, { location }: Response): number =>
  method === 'POST' && location !== undefined ? 201 : 200;

/** A response that the handler has encoded is not encoded again. */
const encodePath = (path: string): string => encodeURI(path).replaceAll('%25', '%');

/** Post/redirect/get. Redirects only to paths of this server. */
function redirect(ctx: Context, response: Response, notices: Notices): void {
  const { location, notice, noticeAction: action } = response;
  const target = location !== undefined && isOwnPath(location) ? location : (ownReferer(ctx) ?? ctx.path);
  const key =
    notice === undefined ? undefined : notices.keep({ text: notice, action }, ctx.state.exchange.account?.username);
  ctx.status = 303;
  ctx.set('Location', encodePath(withParameter(target, 'notice', key)));
  ctx.set('Cache-Control', 'no-store');
  ctx.body = '';
}

/**
 * Sets the entity tag; true when the client has it already (304). A page also shows the account, so its tag includes
 * it.
 */
function fresh(ctx: Context, { etag }: Response, representation: Representation): boolean {
  if (etag === undefined) return false;
  const page = representation === 'html';
  if (page && ctx.query['notice'] !== undefined) return false;
  const opaque = page
    ? `${etag}.${ctx.state.exchange.account?.username ?? ''}.${wantsFragment(ctx) ? 'f' : 'p'}${ctx.state.exchange.session === undefined ? '' : 's'}`
    : etag;
  ctx.set('ETag', page ? `W/${strongTag(opaque)}` : strongTag(opaque));
  if (ctx.method !== 'GET' && ctx.method !== 'HEAD') return false;
  if (!namesTag(ctx.get('If-None-Match') || undefined, opaque)) return false;
  ctx.status = 304;
  ctx.body = null;
  ctx.status = 304;
  return true;
}

function override(ctx: Context, headers: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(headers)) {
    if (value === '') ctx.remove(name);
    else ctx.set(name, value);
  }
}

function sendText(ctx: Context, body: string | Buffer, contentType: string): void {
  ctx.res.setHeader('Content-Type', contentType);
  ctx.body = body;
}

function sendJson(ctx: Context, { model, etag }: Response): void {
  if (model === undefined) {
    if (ctx.status === 200) ctx.status = 204;
    ctx.body = null;
    return;
  }
  const { nextCursor: next } = Object(model) as { nextCursor?: unknown };
  if (typeof next === 'string') ctx.set('Link', `<${withParameter(listPath(ctx), 'cursor', next)}>; rel="next"`);
  ctx.res.setHeader('Content-Type', 'application/json; charset=utf-8');
  const isRead = ctx.method === 'GET' || ctx.method === 'HEAD';
  ctx.body = isRead && etag !== undefined ? jsonOf(Object(model), etag) : JSON.stringify(model);
}

interface SerialisedModel {
  readonly etag: string;
  readonly json: Buffer;
}

/** Of models that handlers keep. */
const serialised = new WeakMap<object, SerialisedModel>();

/** A handler that returns the same object with the same tag means the same bytes: they are made once. */
function jsonOf(model: object, etag: string): Buffer {
  const known = serialised.get(model);
  if (known?.etag === etag) return known.json;
  const json = Buffer.from(JSON.stringify(model));
  serialised.set(model, { etag, json });
  return json;
}

async function sendBytes(ctx: Context, bytes: NonNullable<Response['bytes']>, etag: string | undefined): Promise<void> {
  const { source, contentType, filename, disposition } = bytes;
  const safe = safeBytes(contentType, filename, disposition);
  ctx.compress = false;
  ctx.set({
    'Content-Type': safe.contentType,
    'Content-Disposition': safe.disposition,
    'Content-Security-Policy': bytesPolicy,
    'Accept-Ranges': 'bytes',
  });
  const range = await rangeOrClose(ctx, source, etag);
  const length = range.end - range.start + 1;
  if (ctx.method === 'HEAD' || length === 0) {
    await source.close?.();
    ctx.body = Buffer.alloc(0);
    ctx.status = ctx.status === 204 ? 200 : ctx.status;
    ctx.length = length;
    return;
  }
  const stream = source.open(range.start, range.end);
  stream.once('close', () => void source.close?.());
  sendStream(ctx, stream, safe.contentType);
  ctx.length = length;
}

async function rangeOrClose(ctx: Context, source: ByteSource, etag: string | undefined): Promise<ByteRange> {
  try {
    return wantedRange(ctx, source.size, etag);
  } catch (error) {
    await source.close?.();
    throw error;
  }
}

/** A range is for GET alone (RFC 9110 §14.2); `If-Range` with another tag means the whole (§13.1.5). */
function wantedRange(ctx: Context, size: number, etag: string | undefined): ByteRange {
  const whole = { start: 0, end: size - 1 };
  const condition = ctx.get('If-Range');
  if (ctx.get('Range') === '' || ctx.method !== 'GET' || ctx.status !== 200) return whole;
  if (condition !== '' && (etag === undefined || condition !== strongTag(etag))) return whole;
  const range = parseRange(ctx.get('Range'), size);
  if (range === undefined) return whole;
  ctx.status = 206;
  ctx.set('Content-Range', `bytes ${range.start}-${range.end}/${size}`);
  return range;
}

/**
 * Koa pipes with back-pressure and destroys the source when the client disconnects; a failing source cuts the response
 * off.
 */
function sendStream(ctx: Context, source: Readable, contentType: string): void {
  ctx.compress = false;
  source.once('error', () => ctx.res.destroy());
  ctx.set('Content-Type', contentType);
  ctx.body = source;
  ctx.set('Content-Type', contentType);
}

/** Sends what the stages have set, as Koa would, but without its listeners for the end of each answer. */
export function send(ctx: Context): void {
  const { res } = ctx;
  if (ctx.status === 204 || ctx.status === 304) ctx.body = null;
  else if (ctx.body === undefined) ctx.body = ctx.message;
  const { body } = ctx;
  if (!ctx.writable || body === null) res.end();
  else if (!(body instanceof Readable)) res.end(body);
  else if (ctx.method === 'HEAD') res.end();
  else pipeline(body, res, (error) => error && ctx.onerror(error));
}

/** A form posted by a browser: answered by a page, whatever the endpoint produces. */
export function isPageForm(ctx: Context, html: boolean): boolean {
  return ctx.method === 'POST' && isForm(bodyType(ctx)) && html;
}

/** Bytes `start` to `end`, both inclusive. */
interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * The one range of a `Range` field (RFC 9110 §14.2). Undefined means the whole: no field, another unit, several ranges,
 * or a malformed one. Throws 416 when it lies after the end.
 */
function parseRange(field: string, size: number): ByteRange | undefined {
  const match = /^bytes=\s*(\d{0,15})-(\d{0,15})\s*$/i.exec(field);
  const [, from = '', to = ''] = match ?? [];
  if (from === '' && to === '') return undefined;
  if (from !== '' && to !== '' && Number(to) < Number(from)) return undefined;
  const start = from === '' ? Math.max(0, size - Number(to)) : Number(from);
  const end = from === '' || to === '' ? size - 1 : Math.min(Number(to), size - 1);
  if (start >= size || (from === '' && Number(to) === 0)) {
    throw problem('range-not-satisfiable', { headers: { 'Content-Range': `bytes */${size}` } });
  }
  return { start, end };
}

/** Types that a browser only displays: pictures, sound, plain text. Everything else is saved instead of opened. */
const passive = /^(?:image\/(?:png|jpeg|gif|webp|avif|bmp)|audio\/[\w.+-]+|video\/[\w.+-]+|text\/plain)$/;
/** Types that could run code when opened are not even named. */
const active = /html|xml|svg|script|flash|java|wasm|mhtml|multipart/;

interface SafeBytes {
  readonly contentType: string;
  readonly disposition: string;
}

/** Headers for bytes of unknown origin: type and Content-Disposition (RFC 6266, RFC 8187). */
export function safeBytes(
  contentType: string,
  filename: string | undefined,
  wished: 'inline' | 'attachment' | undefined,
): SafeBytes {
  const type = (contentType.split(';')[0] ?? '').trim().toLowerCase();
  const known = /^[\w.+-]+\/[\w.+-]+$/.test(type) && !active.test(type);
  // Text of any kind is shown as source; no browser runs it.
  const shown = type.startsWith('text/') ? 'text/plain' : known ? type : 'application/octet-stream';
  const disposition = passive.test(type) && wished !== 'attachment' ? 'inline' : 'attachment';
  return {
    contentType: withCharset(shown, contentType),
    disposition: filename === undefined ? disposition : `${disposition}; ${dispositionName(filename)}`,
  };
}

function withCharset(type: string, contentType: string): string {
  const charset = /;\s*charset="?([\w.:-]{1,40})"?/i.exec(contentType)?.[1];
  return type === 'text/plain' ? `${type}; charset=${charset ?? 'utf-8'}` : type;
}

function dispositionName(filename: string): string {
  const clean = filename
    .normalize('NFC')
    .replaceAll(/[\p{Cc}\p{Cf}\p{Cs}/\\]/gu, '_')
    .slice(0, 200);
  const ascii = clean.replaceAll(/[^\x20-\x7e]|["%;]/g, '_');
  const encoded = encodeURIComponent(clean).replaceAll(/['()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`);
  return `filename="${ascii || 'file'}"; filename*=UTF-8''${encoded || 'file'}`;
}

export function sourceOfBytes(bytes: Uint8Array): ByteSource {
  return { size: bytes.length, open: (start, end) => Readable.from([bytes.subarray(start, end + 1)]) };
}

/** A second defence: the sandbox blocks anything that the sanitiser may have missed. */
export function sandboxedHtml(document: string, remote: boolean) {
  const policy = [
    "default-src 'none'",
    `img-src data:${remote ? ' https: http:' : ''}`,
    "style-src 'unsafe-inline'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
    'sandbox allow-popups allow-popups-to-escape-sandbox',
  ].join('; ');
  return respond({
    headers: { 'Content-Security-Policy': policy, 'X-Frame-Options': '', 'Referrer-Policy': 'no-referrer' },
    text: { body: document, contentType: 'text/html; charset=utf-8' },
  });
}

/** `"etag"` for bytes and JSON. Never contains a quote. */
export const strongTag = (opaque: string): string => `"${opaque.replace(/[^\x21\x23-\x7e]/g, '_')}"`;

/**
 * Whether a field such as `If-Match` or `If-None-Match` names the tag (RFC 9110 §13.1). `*` names every one. Weakness
 * is ignored on both sides: our tags stand for the state of a resource, and compression makes them weak on the way.
 */
export function namesTag(field: string | undefined, opaque: string): boolean {
  if (field === undefined) return false;
  if (field.trim() === '*') return true;
  const wanted = strongTag(opaque);
  return field.split(',').some((tag) => tag.trim().replace(/^W\//, '') === wanted);
}

/** The one confirmation page; always the server's own view. */
export const confirmationView = 'confirm.njk';

/** Answers a destructive form with the confirmation page, which carries the form's fields. */
export function askToConfirm(ctx: Context, question: string, fields: Fields, pages: Pages): void {
  const model = {
    question,
    action: ctx.url,
    fields: hiddenFields(fields),
    label: 'Confirm',
    back: ownReferer(ctx) ?? null,
  };
  ctx.state.exchange.asked = true;
  ctx.set('Cache-Control', 'no-store');
  ctx.set('Content-Type', 'text/html; charset=utf-8');
  ctx.body = pages.render(ctx, confirmationView, 'Please confirm', model);
}

interface Question {
  readonly question: string;
  /** The fields of the form, sent again with the confirmation. */
  readonly fields: SentFields;
  readonly label: string;
  readonly back: string;
}

/** Problem for a caller that asked for no page and did not send `confirm=yes`. */
export const unconfirmed = (question: string): Problem =>
  problem('invalid', {
    detail: `${question} Send confirm=yes to do it.`,
    errors: [{ pointer: '/confirm', message: 'must be yes' }],
  });

/** A handler's answer that asks for confirmation. For forms only; scripts have `dryRun`. */
export function ask(request: EndpointRequest, { question, fields, label, back }: Question): Response<never> {
  if (request.representation !== 'html') throw unconfirmed(question);
  const model = { question, fields: hiddenFields(fields), label, back, action: request.listPath };
  // The model type of the endpoint is for scripts, which never get this page.
  return respond({ view: confirmationView, model }) as unknown as Response<never>;
}

type SentFields = Readonly<Record<string, string | readonly string[] | undefined>>;

const hiddenFields = (fields: SentFields) =>
  Object.entries(fields).flatMap(([name, value]) => [value ?? []].flat().map((text) => ({ name, value: text })));
