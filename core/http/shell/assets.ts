import { createHash } from 'node:crypto';
import {
  closeSync,
  constants as openFlags,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
} from 'node:fs';
import { extname, isAbsolute, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { unreadableFolder } from '../../disk/fault.js';
import type { Log } from '../../log/log.js';
import { problem, startError } from '../../problem.js';
import type { Context, Next, Middleware } from '../exchange.js';
import { namesTag, strongTag } from '../response.js';

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.ico': 'image/x-icon',
  '.png': 'image/png',
  '.woff2': 'font/woff2',
};

interface Asset {
  /** Name in views: `app.css`, `greylist/style.css`. */
  readonly name: string;
  readonly url: string;
  /** Registered by a plugin. */
  readonly owned: boolean;
  readonly type: string;
  readonly tag: string;
  readonly bytes: Buffer;
  readonly encoded: Map<'br' | 'gzip', Buffer>;
}

/**
 * The files of `public/`, and those of plugins below their names. They are read once, when they are added: nothing else
 * can be reached, and no link is followed. The hash in a URL makes a copy immutable.
 */
export class Assets {
  readonly #byUrl = new Map<string, Asset>();
  readonly #byName = new Map<string, Asset>();

  constructor(folder: string) {
    for (const file of readAssetFolder(folder, 'The server')) this.#put(makeAsset('', file));
  }

  /**
   * Reads the files of a plugin. What is returned puts them into force, and then returns the undo.
   *
   * @throws start error when the folder cannot be read, or `public/` has a folder of the plugin's name
   */
  prepare(plugin: string, folder: string): () => () => void {
    const prefix = `${plugin}/`;
    if ([...this.#byName.values()].some(({ name, owned }) => !owned && name.startsWith(prefix))) {
      throw startError(`Plugin ${plugin} cannot have assets: /assets/${prefix} is the server's own.`);
    }
    const assets = readAssetFolder(folder, `Plugin ${plugin}`).map((file) => makeAsset(prefix, file));
    return () => {
      for (const asset of assets) this.#put(asset);
      return () => assets.forEach((asset) => this.#remove(asset));
    };
  }

  /**
   * URL of a file: `app.css` → `/assets/app.0123456789ab.css`, `greylist/style.css` → `/assets/greylist/style.….css`.
   */
  readonly url = (name: string): string => {
    const asset = this.#byName.get(name);
    if (asset === undefined) throw new Error(`there is no asset ${name}`);
    return asset.url;
  };

  /** Answers `/assets/…`; passes everything else on. */
  readonly serve: Middleware = (ctx, next: Next) => {
    if (!ctx.path.startsWith('/assets/')) return next(ctx);
    ctx.compress = false;
    const asset = this.#byUrl.get(ctx.path);
    if (asset === undefined) throw problem('not-found', 'There is no such asset.');
    if (ctx.method !== 'GET' && ctx.method !== 'HEAD') {
      throw problem('method-not-allowed', { headers: { Allow: 'GET, HEAD' } });
    }
    send(ctx, asset);
    return Promise.resolve();
  };

  /** Compresses text in the background; until it is ready, assets go out as they are. Never rejects. */
  async compress(log: Pick<Log, 'error'>): Promise<void> {
    try {
      for (const asset of this.#byUrl.values()) await encode(asset);
    } catch (error) {
      log.error({ err: error }, 'assets are not compressed');
    }
  }

  #put(asset: Asset): void {
    this.#byUrl.set(asset.url, asset);
    this.#byName.set(asset.name, asset);
  }

  #remove(asset: Asset): void {
    if (this.#byUrl.get(asset.url) === asset) this.#byUrl.delete(asset.url);
    if (this.#byName.get(asset.name) === asset) this.#byName.delete(asset.name);
  }
}

async function encode({ type, bytes, encoded }: Asset): Promise<void> {
  if (!/^text\/|svg/.test(type) || bytes.length < 1024 || encoded.size > 0) return;
  const options = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } };
  encoded.set('br', await promisify(brotliCompress)(bytes, options));
  encoded.set('gzip', await promisify(gzip)(bytes, { level: 9 }));
}

function makeAsset(prefix: string, file: AssetFile): Asset {
  const name = `${prefix}${file.name}`;
  const extension = extname(name);
  const tag = createHash('sha256').update(file.bytes).digest('hex').slice(0, 12);
  const stem = name.slice(0, name.length - extension.length);
  const path = `${stem}.${tag}${extension}`.split('/').map(encodeURIComponent).join('/');
  const type = types[extension] ?? 'application/octet-stream';
  return { name, url: `/assets/${path}`, owned: prefix !== '', type, tag, bytes: file.bytes, encoded: new Map() };
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

interface AssetFile {
  /** Relative path with `/`: `icons/logo.svg`. */
  readonly name: string;
  readonly bytes: Buffer;
}

/** Maximum content of one folder. */
const maxEntries = 1000;
const maxFileBytes = 4 * 1024 * 1024;
const maxBytes = 32 * 1024 * 1024;

/**
 * Reads every file below the folder. No link is followed, and what begins with a dot is left out: nothing outside of
 * the folder can be reached by it.
 *
 * @param owner whose folder it is, as in `Plugin greylist`
 * @throws start error when it is no absolute folder, or holds more than assets are
 */
function readAssetFolder(folder: string, owner: string): readonly AssetFile[] {
  const refuse = (sentence: string, cause?: unknown) => startError(`${owner}, assets: ${sentence}`, cause);
  if (!isAbsolute(folder)) throw refuse(`${folder} is not an absolute path; join(import.meta.dirname, 'assets') is.`);
  const files: AssetFile[] = [];
  let entries = 0;
  let bytes = 0;

  function read(below: string): void {
    for (const entry of readdirSync(join(root, below), { withFileTypes: true })) {
      entries += 1;
      if (entries > maxEntries) throw refuse(`${folder} holds more than ${maxEntries} files.`);
      const name = below === '' ? entry.name : `${below}/${entry.name}`;
      if (entry.name.startsWith('.')) continue;
      if (entry.isDirectory()) read(name);
      else if (entry.isFile()) take(name);
    }
  }

  function take(name: string): void {
    const content = readRegularFile(join(root, name));
    if (content === undefined) return;
    if (content === 'large') throw refuse(`${name} is larger than ${maxFileBytes / 1024 ** 2} MiB.`);
    bytes += content.length;
    if (bytes > maxBytes) throw refuse(`${folder} holds more than ${maxBytes / 1024 ** 2} MiB.`);
    files.push({ name, bytes: content });
  }

  const root = realFolder(folder, refuse);
  read('');
  return files;
}

function realFolder(folder: string, refuse: (sentence: string, cause: unknown) => Error): string {
  try {
    const real = realpathSync(folder);
    readdirSync(real);
    return real;
  } catch (cause) {
    throw refuse(unreadableFolder(folder, cause), cause);
  }
}

/** Undefined when it was replaced by a link or something else since it was listed. */
function readRegularFile(path: string): Buffer | 'large' | undefined {
  let descriptor;
  try {
    descriptor = openSync(path, openFlags.O_RDONLY | openFlags.O_NOFOLLOW | openFlags.O_NONBLOCK);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (['ELOOP', 'EMLINK', 'ENOENT', 'ENXIO'].includes(code)) return undefined;
    throw error;
  }
  try {
    const stat = fstatSync(descriptor);
    if (!stat.isFile()) return undefined;
    return stat.size > maxFileBytes ? 'large' : readFileSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
