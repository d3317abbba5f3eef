import type { Context } from './exchange.js';
import { isReadablePath } from './request-checks.js';

/** A path on this server that no browser could take for another server, and that a `Location` can hold. */
export const isOwnPath = (target: string): boolean => /^\/(?![/\\])[^\\\p{Cc}\p{Cs}]*$/u.test(target);

/** One that a request could have. */
const isRequestPath = (target: string): boolean => isOwnPath(target) && isReadablePath(target.split('?', 1)[0] ?? '');

/** Path and query of the page that the request came from, if it is one of this server. */
export function ownReferer(ctx: Context): string | undefined {
  const { page } = ctx.state.exchange;
  if (page !== undefined && isRequestPath(page)) return page;
  const referer = ctx.get('Referer');
  if (!/^https?:\/\//i.test(referer) || !URL.canParse(referer)) return undefined;
  const { host, pathname, search } = new URL(referer);
  const path = `${pathname}${search}`;
  return host === ctx.get('Host').toLowerCase() && isRequestPath(path) ? path : undefined;
}

/** The same path with that query parameter set, or removed. */
export function withParameter(path: string, name: string, value: string | undefined): string {
  const [bare = ''] = path.split('?', 1);
  const parameters = new URLSearchParams(path.slice(bare.length));
  parameters.delete(name);
  if (value !== undefined) parameters.append(name, value);
  const text = parameters.toString();
  return text === '' ? bare : `${bare}?${text}`;
}
