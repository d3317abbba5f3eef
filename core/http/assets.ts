import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { strongTag } from './entity-tag.js';
import type { Context, Next, Stage } from './exchange.js';
import { problem } from '../problem.js';
import { namesTag } from './entity-tag.js';

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.ico': 'image/x-icon',
  '.png': 'image/png',
  '.woff2': 'font/woff2',
};
const largest = 4 * 1024 * 1024;

interface Asset {
  readonly type: string;
  readonly tag: string;
  readonly bytes: Buffer;
  readonly encoded: Map<'br' | 'gzip', Buffer>;
}

/**
 * The files of `public/`, read once at start: nothing else can be reached, and no link is followed. The hash in a name
 * makes a copy immutable.
 */
export class Assets {
  readonly #byUrl = new Map<string, Asset>();
  readonly #urls = new Map<string, string>();

  constructor(folder: string) {
    for (const name of filesBelow(folder, '')) this.#add(name, readFileSync(join(folder, name)));
  }

  /** URL of a file of `public/`: `app.css` → `/assets/app.0123456789ab.css`. */
  readonly url = (name: string): string => {
    const url = this.#urls.get(name);
    if (url === undefined) throw new Error(`there is no asset ${name}`);
    return url;
  };

  /** Answers `/assets/…`; everything else goes on. */
  readonly serve: Stage = (ctx, next: Next) => {
    if (!ctx.path.startsWith('/assets/')) return next();
    ctx.compress = false;
    const asset = this.#byUrl.get(ctx.path);
    if (asset === undefined) throw problem('not-found', 'There is no such asset.');
    if (ctx.method !== 'GET' && ctx.method !== 'HEAD') {
      throw problem('method-not-allowed', { headers: { Allow: 'GET, HEAD' } });
    }
    send(ctx, asset);
    return Promise.resolve();
  };

  /** Compresses text in the background; until it is ready, assets go out as they are. */
  async compress(): Promise<void> {
    for (const asset of this.#byUrl.values()) {
      if (!/^text\/|svg/.test(asset.type) || asset.bytes.length < 1024) continue;
      const options = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } };
      asset.encoded.set('br', await promisify(brotliCompress)(asset.bytes, options));
      asset.encoded.set('gzip', await promisify(gzip)(asset.bytes, { level: 9 }));
    }
  }

  #add(name: string, bytes: Buffer): void {
    const extension = extname(name);
    const tag = createHash('sha256').update(bytes).digest('hex').slice(0, 12);
    const url = `/assets/${name.slice(0, name.length - extension.length)}.${tag}${extension}`;
    const type = types[extension] ?? 'application/octet-stream';
    this.#byUrl.set(url, { type, tag, bytes, encoded: new Map() });
    this.#urls.set(name, url);
  }
}

function send(ctx: Context, asset: Asset): void {
  const encoding = asset.encoded.size === 0 ? false : ctx.acceptsEncodings('br', 'gzip', 'identity');
  const encoded = encoding === 'br' || encoding === 'gzip' ? asset.encoded.get(encoding) : undefined;
  const opaque = encoded === undefined ? asset.tag : `${asset.tag}-${String(encoding)}`;
  ctx.set({
    'Cache-Control': 'public, max-age=31536000, immutable',
    ETag: strongTag(opaque),
    Vary: 'Accept-Encoding',
    'Content-Type': asset.type,
  });
  if (namesTag(ctx.get('If-None-Match') || undefined, opaque)) {
    ctx.status = 304;
    return;
  }
  if (encoded !== undefined) ctx.set('Content-Encoding', String(encoding));
  ctx.body = encoded ?? asset.bytes;
}

function filesBelow(folder: string, prefix: string): readonly string[] {
  return readdirSync(join(folder, prefix), { withFileTypes: true }).flatMap((entry) => {
    const name = prefix === '' ? entry.name : `${prefix}/${entry.name}`;
    if (entry.name.startsWith('.')) return [];
    if (entry.isDirectory()) return filesBelow(folder, name);
    return entry.isFile() && lstatSync(join(folder, name)).size <= largest ? [name] : [];
  });
}
