import type { Context, Next, Middleware } from './exchange.js';
import { hostName } from './host.js';
import type { HttpSettings } from './options.js';

const pagePolicy = [
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

/** For bytes of untrusted origin: nothing in them may run. */
export const bytesPolicy = "default-src 'none'; frame-ancestors 'self'; sandbox";

const yearSeconds = 31_536_000;

/** Set first, so that every response has them, errors included. An endpoint may set its own policy. */
export function securityHeaders(settings: () => HttpSettings): Middleware {
  return function setSecurityHeaders(ctx: Context, next: Next) {
    // Set directly: Koa would check each value again.
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

/** The listener itself has no TLS: this is used when a proxy offers the host under https. */
function reachedByTls(ctx: Context, publicUrls: readonly string[]): boolean {
  const name = hostName(ctx.req.headers.host ?? '');
  return publicUrls.some((url) => url.startsWith('https:') && hostName(new URL(url).host) === name);
}
