import { problem } from '../problem.js';
import type { Context, Next, Middleware } from './exchange.js';
import type { HttpSettings } from './options.js';

const safe = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Browsers send Basic credentials by themselves, also for a form of another site. Unsafe methods therefore need
 * `Sec-Fetch-Site: same-origin | none`; from older browsers an `Origin` that is ours; without both it is no browser.
 */
export function crossSiteCheck(settings: () => HttpSettings): Middleware {
  return function checkCrossSite(ctx: Context, next: Next) {
    if (!safe.has(ctx.method) && !isOwn(ctx, settings().publicUrls)) {
      throw problem('cross-site', 'A page of another site asked for this. Open the page here and do it again.');
    }
    return next();
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
