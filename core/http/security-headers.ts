import type { Context, Next, Stage } from './exchange.js';
import { hostName } from './host.js';
import type { HttpSettings } from './options.js';

export const pagePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "frame-src 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ');

/** For bytes that somebody else chose: whatever they are, nothing in them may act. */
export const bytesPolicy = "default-src 'none'; frame-ancestors 'self'; sandbox";

const yearSeconds = 31_536_000;

/** Set first, so that every answer has them, errors included. An endpoint may set its own policy. */
export function securityHeaders(settings: () => HttpSettings): Stage {
  return function setSecurityHeaders(ctx: Context, next: Next) {
    // Straight into the answer: Koa would look at each value again.
    for (const [name, value] of headers) ctx.res.setHeader(name, value);
    const { publicUrls } = settings();
    if (publicUrls.length > 0 && reachedByTls(ctx, publicUrls))
      ctx.set('Strict-Transport-Security', `max-age=${yearSeconds}`);
    return next();
  };
}

const headers = Object.entries({
  'Content-Security-Policy': pagePolicy,
  'X-Frame-Options': 'DENY',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Permissions-Policy': 'camera=(), geolocation=(), microphone=(), payment=()',
  'Cache-Control': 'no-store',
});

/** The listener itself speaks no TLS: it is used when a proxy offers this host under https. */
function reachedByTls(ctx: Context, publicUrls: readonly string[]): boolean {
  const name = hostName(ctx.req.headers.host ?? '');
  return publicUrls.some((url) => url.startsWith('https:') && hostName(new URL(url).host) === name);
}
