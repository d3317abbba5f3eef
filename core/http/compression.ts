import koaCompress from 'koa-compress';
import type { Context, Next, Middleware } from './exchange.js';

/**
 * Compresses pages and JSON. Runs outside of everything that sets an entity tag; a tag of the uncompressed bytes
 * becomes weak.
 */
export function compression(): Middleware {
  const compress = koaCompress({ threshold: 1024, zstd: null, deflate: null });
  return async function compressAnswer(ctx: Context, next: Next) {
    // A client that accepts no encoding gets the response uncompressed (RFC 9110 §12.5.3).
    const takesSome = ctx.acceptsEncodings('br', 'gzip', 'identity') !== false;
    if (ctx.req.headers['accept-encoding'] === undefined || !takesSome) {
      ctx.res.setHeader('Vary', 'Accept-Encoding');
      await next();
      return;
    }
    await compress(ctx, next as never);
    const tag = ctx.res.getHeader('ETag');
    const recoded = ctx.compress !== false && ctx.res.hasHeader('Content-Encoding');
    if (recoded && typeof tag === 'string' && tag.startsWith('"')) {
      ctx.set('ETag', `W/${tag}`);
    }
  };
}
