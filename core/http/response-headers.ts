import koaCompress from 'koa-compress';
import type { Context, Middleware, Next } from './exchange.js';
import type { HttpSettings } from './options.js';
import { hostName, isTls } from './request-checks.js';

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

/**
 * Set before anything can refuse, so that errors have them too; only what `server.ts` answers by itself has not. An
 * endpoint may set its own policy.
 */
export function securityHeaders(settings: () => HttpSettings): Middleware {
  return function setSecurityHeaders(ctx: Context, next: Next) {
    // Set directly: Koa would check each value again.
    for (const [name, value] of headers) ctx.res.setHeader(name, value);
    const { publicUrls, https } = settings();
    if ((publicUrls.length > 0 || https !== undefined) && reachedByTls(ctx, publicUrls))
      ctx.set('Strict-Transport-Security', `max-age=${yearSeconds}`);
    return next(ctx);
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

/** On the HTTPS listener, or where a proxy offers the host under https. */
function reachedByTls(ctx: Context, publicUrls: readonly string[]): boolean {
  if (isTls(ctx.req.socket)) return true;
  const name = hostName(ctx.req.headers.host ?? '');
  return publicUrls.some((url) => url.startsWith('https:') && hostName(new URL(url).host) === name);
}

/**
 * Compresses pages and JSON. Runs outside of everything that sets an entity tag; a tag of the uncompressed bytes
 * becomes weak.
 */
export function compression(): Middleware {
  const compress = koaCompress({ threshold: 1024, zstd: null, deflate: null });
  return function compressAnswer(ctx: Context, next: Next) {
    // A client that accepts no encoding gets the response uncompressed (RFC 9110 §12.5.3).
    const { 'accept-encoding': accepted } = ctx.req.headers;
    if (accepted === undefined || ctx.acceptsEncodings('br', 'gzip', 'identity') === false) {
      ctx.res.setHeader('Vary', 'Accept-Encoding');
      return next(ctx);
    }
    return compressed(ctx, next);
  };

  async function compressed(ctx: Context, next: Next) {
    await compress(ctx, () => next(ctx));
    const tag = ctx.res.getHeader('ETag');
    const recoded = ctx.compress !== false && ctx.res.hasHeader('Content-Encoding');
    if (recoded && typeof tag === 'string' && tag.startsWith('"')) {
      ctx.set('ETag', `W/${tag}`);
    }
  }
}
