import { isIP } from 'node:net';
import { problem, startError } from '../problem.js';
import type { Context, Middleware, Next } from './exchange.js';
import type { HttpSettings } from './options.js';
import type { Fields } from './validation.js';

/** Checks length and spelling of the target before anything reads it. */
export function targetCheck(largest: () => number): Middleware {
  return function checkTarget(ctx: Context, next: Next) {
    if (ctx.url.length > largest()) throw problem('uri-too-long');
    if (!isReadablePath(ctx.url.split('?', 1)[0] ?? '')) throw problem('bad-request', 'The path cannot be read.');
    return next(ctx);
  };
}

/** Characters that could mislead a reader or a file system: controls, direction marks, invisible spaces. */
const forbidden = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069\u200b\ufeff/\\]/u;

/** Nothing to decode, no segment that begins with a dot. */
const plainPath = /^(?:\/(?:[\w~@:+,=-][\w~@:+,=.-]*)?)+$/;

/**
 * Checks a path as it came in. Everything that could be read in two ways is refused here, once, so that a parameter is
 * decoded exactly once and never holds a separator or a control character.
 */
export function isReadablePath(path: string): boolean {
  if (plainPath.test(path)) return true;
  if (!path.startsWith('/') || /[^\x21-\x7e]|[\\#]/.test(path)) return false;
  return path.split('/').every((segment) => {
    const decoded = decodedSegment(segment);
    return decoded !== undefined && decoded !== '.' && decoded !== '..' && !forbidden.test(decoded);
  });
}

function decodedSegment(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}

const maxFields = 1000;
/** An object with more is slow, and no form of this server has as many. */
const maxNames = 100;

/** Parses `a=1&b=2`. Malformed percent signs, broken UTF-8, NUL, and more than 1,000 fields or 100 names are refused. */
export function parseFields(text: string, what: 'query' | 'form'): Fields {
  const unreadable = () => problem('bad-request', `The ${what} cannot be read.`);
  if (separators(text, maxFields) >= maxFields) throw unreadable();
  try {
    decodeURIComponent(text);
  } catch {
    throw unreadable();
  }
  const fields = Object.create(null) as Record<string, string | string[]>;
  let names = 0;
  for (const [name, value] of new URLSearchParams(text)) {
    if (name.includes('\0') || value.includes('\0')) throw unreadable();
    const before = fields[name];
    if (before === undefined) {
      names += 1;
      if (names > maxNames) throw problem('bad-request', `The ${what} has more than ${maxNames} different fields.`);
      fields[name] = value;
    } else if (typeof before === 'string') fields[name] = [before, value];
    else before.push(value);
  }
  return fields;
}

/** How many `&` there are, as far as `most`. */
function separators(text: string, most: number): number {
  let count = 0;
  for (let at = text.indexOf('&'); at >= 0 && count < most; at = text.indexOf('&', at + 1)) count += 1;
  return count;
}

/** `::ffff:127.0.0.1` → `127.0.0.1`. */
export const plainAddress = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/i, '');

export const isLoopback = (address: string): boolean => address === '::1' || plainAddress(address).startsWith('127.');

/** Whether the connection came in on the HTTPS listener. */
export const isTls = (socket: object): boolean => 'encrypted' in socket && socket.encrypted === true;

const isLoopbackName = (name: string): boolean =>
  name === 'localhost' || name.endsWith('.localhost') || (isIP(name) !== 0 && isLoopback(name));

/** Whether an address to listen on can only be reached from this machine. */
export const isLoopbackHost = (host: string): boolean => isLoopbackName(host.toLowerCase().replace(/^\[|\]$/g, ''));

/** The name in a `Host` field without port and brackets, or undefined when it is malformed. */
export function hostName(field: string): string | undefined {
  const match = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/i.exec(field);
  return match?.[1]
    ?.toLowerCase()
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '');
}

/** Documents for other programs at fixed addresses (RFC 8615): public, under whatever name they are asked for. */
const isWellKnown = ({ path }: Context): boolean => path.startsWith('/.well-known/');

/** With an HTTPS listener, passwords of other machines do not travel in clear text: 308 to the same page there. */
export function httpsRedirect(settings: () => HttpSettings): Middleware {
  return function redirectToHttps(ctx: Context, next: Next) {
    const { https } = settings();
    const { isSecure, isLocal } = ctx.state.exchange;
    if (https === undefined || isSecure || isLocal || isWellKnown(ctx)) return next(ctx);
    const name = hostName(ctx.req.headers.host ?? '');
    if (name === undefined || !safe.has(ctx.method)) throw problem('forbidden', 'Use the https address.');
    const host = name.includes(':') ? `[${name}]` : name;
    ctx.status = 308;
    ctx.set('Location', `https://${host}${https.port === 443 ? '' : `:${https.port}`}${ctx.url}`);
    return Promise.resolve();
  };
}

/** A request for a name that is not ours was led here by somebody's DNS: 421. Two names: 400. */
export function hostCheck(settings: () => HttpSettings): Middleware {
  let ours: KnownHost | undefined;
  return function checkHost(ctx: Context, next: Next) {
    // The first node has checked the name by which its client reached it.
    if (ctx.state.exchange.forwarder !== undefined) return next(ctx);
    if (ctx.req.httpVersionMajor < 1) throw problem('bad-request', 'Speak HTTP/1.1.');
    if (hostFields(ctx.req.rawHeaders) > 1) throw problem('bad-request', 'There are two Host fields.');
    takeOriginForm(ctx);
    const field = ctx.req.headers.host;
    // HTTP/1.0 has no Host, and browsers, whom this protects, do not speak it.
    if (field === undefined || isWellKnown(ctx)) return next(ctx);
    const { localAddress } = ctx.req.socket;
    const known = ours?.field === field && ours.localAddress === localAddress && ours.settings === settings();
    if (!known && !isOurs(field, settings(), localAddress)) throw misdirected();
    if (!known) ours = { field, localAddress, settings: settings() };
    return next(ctx);
  };
}

/** The last that was found to be ours: the next request mostly says the same. */
interface KnownHost {
  readonly field: string;
  readonly localAddress: string | undefined;
  readonly settings: HttpSettings;
}

/** Names and values in turn, as they came. */
function hostFields(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    if (name.length === 4 && name.toLowerCase() === 'host') count += 1;
  }
  return count;
}

const misdirected = () =>
  problem('misdirected', 'Add the address that you use to http.publicUrls, or use the one that the server listens on.');

/** `GET http://host/path` (RFC 9112 §3.2.2): the host of the target counts, the rest goes on as usual. */
function takeOriginForm(ctx: Context): void {
  if (ctx.url.startsWith('/')) return;
  const match = /^https?:\/\/([^/?#]*)([/?].*)?$/i.exec(ctx.url);
  if (match === null) throw problem('bad-request', 'The target of the request cannot be read.');
  ctx.req.headers.host = match[1] ?? '';
  const rest = match[2] ?? '/';
  ctx.url = rest.startsWith('/') ? rest : `/${rest}`;
}

function isOurs(field: string, { host, publicUrls }: HttpSettings, localAddress: string | undefined): boolean {
  const name = hostName(field);
  if (name === undefined) return false;
  if (isLoopbackName(name) || name === host.toLowerCase().replace(/^\[|\]$/g, '')) return true;
  if (localAddress !== undefined && name === plainAddress(localAddress)) return true;
  return publicUrls.some((url) => hostName(new URL(url).host) === name);
}

/** @throws start error when other machines can reach the pages and no account is configured */
export function requireAccountForRemoteBind(
  { host, socket, https }: Pick<HttpSettings, 'host' | 'socket' | 'https'>,
  chosen: boolean,
): void {
  const isTlsLocal = https === undefined || isLoopbackHost(https.host);
  const isLocal = socket === undefined && isLoopbackHost(host);
  if (chosen || (isLocal && isTlsLocal)) return;
  const plain = socket === undefined ? `http.host ${host}` : `http.socket ${socket}`;
  const place = isLocal ? `http.https.host ${https?.host}` : plain;
  throw startError(
    `${place} can be reached from other machines, but no account was chosen: ` +
      'add one to http.accounts, or set POSTERN_ADMIN_PASSWORD, or listen on http.host 127.0.0.1.',
  );
}

const safe = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Against cross-site request forgery (CSRF). Browsers send Basic credentials by themselves, also for a form of another site. Unsafe methods therefore need
 * `Sec-Fetch-Site: same-origin | none`; from older browsers an `Origin` that is ours; without both it is no browser.
 */
export function crossSiteCheck(settings: () => HttpSettings): Middleware {
  return function checkCrossSite(ctx: Context, next: Next) {
    if (!safe.has(ctx.method) && !isOwn(ctx, settings().publicUrls)) {
      throw problem('cross-site', 'A page of another site asked for this. Open the page here and do it again.');
    }
    return next(ctx);
  };
}

function isOwn(ctx: Context, publicUrls: readonly string[]): boolean {
  const site = ctx.req.headers['sec-fetch-site'];
  if (site !== undefined) return site === 'same-origin' || site === 'none';
  const { origin, host } = ctx.req.headers;
  if (origin === undefined) return true;
  const given = parse(origin);
  if (given === undefined) return false;
  if (publicUrls.some((url) => new URL(url).origin === given.origin)) return true;
  return parse(`${given.protocol}//${host ?? ''}`)?.host === given.host;
}

function parse(url: string): URL | undefined {
  return /^https?:\/\//i.test(url) && URL.canParse(url) ? new URL(url) : undefined;
}
