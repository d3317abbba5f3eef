import { createReadStream, createWriteStream, mkdirSync, readdirSync, rmSync, type WriteStream } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, type Readable, Transform, type TransformCallback } from 'node:stream';
import type { z } from 'zod';
import { uniqueId, uniqueIdPattern } from '../disk/id.js';
import { problem } from '../problem.js';
import { clientPath, turns } from '../turns.js';
import type { BodyDeclaration, UploadedFile } from './endpoint.js';
import type { Context, Middleware, Next, ReadBody } from './exchange.js';
import { parseFields } from './request-checks.js';
import type { Fields } from './validation.js';

const deepest = 64;
/** Bytes; what is longer is looked at in a turn of its client. */
const shortBody = 4096;
const parsedMethods = ['POST', 'PUT', 'PATCH', 'DELETE'] as const;

interface BodyLimits {
  readonly jsonBytes: number;
  readonly uploadFiles: number;
  /** Limit of raw bodies whose endpoint names none. */
  readonly uploadBytes: number;
}

/** Media type of the body, lower case, without parameters. */
export function bodyType(ctx: Context): string {
  return (ctx.get('Content-Type').split(';')[0] ?? '').trim().toLowerCase();
}

export const isForm = (type: string): boolean =>
  type === 'application/x-www-form-urlencoded' || type === 'multipart/form-data';

export const hasBody = (ctx: Context): boolean =>
  ctx.req.headers['transfer-encoding'] !== undefined || Number(ctx.req.headers['content-length'] ?? 0) > 0;

/**
 * Reads the body that an endpoint declares, within its limit. A body that is too large or of a wrong type is not read
 * at all.
 */
export async function readBody(
  ctx: Context,
  declared: BodyDeclaration<z.ZodType> | undefined,
  limits: BodyLimits,
  uploads: Uploads,
): Promise<ReadBody> {
  const type = bodyType(ctx);
  if (!hasBody(ctx)) {
    if (declared?.kind === 'raw') return rawBody(ctx, declared.limit ?? limits.uploadBytes);
    // Without a body there are no fields; but another content type shows that one was meant.
    if (declared?.kind === 'either' && type !== '' && !isFields(type))
      throw problem('invalid', `The body is empty. Send the content as ${type}, or fields as application/json.`);
    return { kind: 'none' };
  }
  refuseEncoding(ctx);
  if (declared === undefined) return readUndeclared(ctx, type, limits);
  if (declared.kind !== 'raw' && isFields(type)) {
    const read = readFields(ctx, type, fieldsLimit(declared, limits.jsonBytes));
    if (declared.kind === 'fields' || !declared.types.includes('application/json5')) return read;
    return read.catch((error: unknown) => {
      if (!(error instanceof SyntaxError)) throw error;
      throw problem('bad-request', 'The body is no JSON. Send JSON5, with comments, as application/json5.');
    });
  }
  if (declared.kind === 'fields') throw unsupported('Send application/json or a form.');
  const limit = (declared.kind === 'raw' ? declared.limit : declared.rawLimit) ?? limits.uploadBytes;
  if (!declared.types.some((range) => inRange(type || 'application/octet-stream', range))) {
    const taken = declared.kind === 'either' ? [...fieldTypes, ...declared.types] : declared.types;
    throw unsupported(`Accepted here: ${taken.join(', ')}.`);
  }
  refuseLength(ctx, limit);
  if (type !== 'multipart/form-data') return rawBody(ctx, limit, type === '' && declared.kind === 'either');
  const bounds = { limit, maxFiles: limits.uploadFiles, maxFieldBytes: limits.jsonBytes };
  return { kind: 'raw', stream: undefined, ...(await uploads.receive(ctx, bounds)) };
}

const fieldTypes: readonly string[] = ['application/json', 'application/x-www-form-urlencoded'];
const isFields = (type: string): boolean => fieldTypes.includes(type);

const looksLikeJson = (text: string): boolean => /^\s*[{[]/.test(text);
const mislabelled = 'The body looks like JSON. Send it with Content-Type: application/json.';

/** Bytes of JSON or a form where an endpoint has no fields: every form has some, such as `_method`. */
const undeclaredBytes = 16 * 1024;
const maxFields = 100;
/** Codes of formidable: more fields, and more files, than its options allow. */
const tooMany = new Set<unknown>([1007, 1015]);

export function fieldsLimit(declared: BodyDeclaration<z.ZodType> | undefined, jsonBytes: number): number {
  if (declared === undefined || declared.kind === 'raw') return Math.min(undeclaredBytes, jsonBytes);
  return declared.limit ?? jsonBytes;
}

/** `curl -d` declares a form, whatever it contains. */
export function refuseJsonAsForm(fields: Fields): void {
  if (looksLikeJson(Object.keys(fields)[0] ?? '')) throw unsupported(mislabelled);
}

/** An endpoint without a body may still be called by a form (its `_method`) or with an empty object. */
async function readUndeclared(ctx: Context, type: string, limits: BodyLimits): Promise<ReadBody> {
  if (!isFields(type)) throw unsupported('This endpoint takes no body.');
  const body = await readFields(ctx, type, fieldsLimit(undefined, limits.jsonBytes));
  const empty = body.kind === 'form' || (body.kind === 'json' && Object.keys(Object(body.value)).length === 0);
  if (!empty) throw problem('bad-request', 'This endpoint takes no body.');
  return body.kind === 'form' ? body : { kind: 'none' };
}

/** JSON or an urlencoded form, read by koa-body; depth and number of fields are checked here. */
export async function readFields(ctx: Context, type: string, limit: number): Promise<ReadBody> {
  refuseEncoding(ctx);
  refuseLength(ctx, limit);
  refuseCharset(ctx);
  // Loaded on first use: it is large, and most requests have no body.
  const { koaBody } = await import('koa-body');
  let received = 0;
  ctx.req.on('data', (chunk: Buffer) => (received += chunk.length));
  const read = koaBody({
    json: type === 'application/json',
    urlencoded: type !== 'application/json',
    text: false,
    multipart: false,
    jsonLimit: limit,
    formLimit: limit,
    jsonStrict: true,
    includeUnparsed: true,
    // Only its text is used, so nothing of it is decoded here.
    queryString: { parameterLimit: 1, decoder: () => '' },
    parsedMethods: [...parsedMethods] as never,
  });
  await read(ctx, () => Promise.resolve());
  const { body: value, rawBody: text = '' } = ctx.request as { body?: unknown; rawBody?: string };
  // A byte order mark, and bytes that are no UTF-8, are lost in decoding.
  if (Buffer.byteLength(text) !== received) throw problem('bad-request', 'Send UTF-8 without a byte order mark.');
  if (received > shortBody) await turns.wait(clientPath(ctx.state.exchange.remoteAddress));
  if (type !== 'application/json') return { kind: 'form', fields: parseFields(text, 'form') };
  const { depth, members } = shapeOf(text);
  if (depth > deepest) throw problem('bad-request', 'The body is nested too deeply.');
  if (members !== membersOf(value)) throw problem('bad-request', 'An object of the body names a member twice.');
  return { kind: 'json', value };
}

/** Nesting depth of a JSON text, and number of members of its objects; strings are skipped. */
export function shapeOf(text: string): { readonly depth: number; readonly members: number } {
  let depth = 0;
  let most = 0;
  let members = 0;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === 0x22) index = endOfString(text, index);
    else if (code === 0x5b || code === 0x7b) most = Math.max(most, (depth += 1));
    else if (code === 0x5d || code === 0x7d) depth -= 1;
    else if (code === 0x3a) members += 1;
  }
  return { depth: most, members };
}

/** Index of the quotation mark that ends the string which begins there. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let first = end;
    while (text.charCodeAt(first - 1) === 0x5c) first -= 1;
    if ((end - first) % 2 === 0) return end;
  }
  return text.length;
}

/** Number of members of the parsed objects: duplicates of a name are lost in parsing. */
function membersOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const inner: readonly unknown[] = Object.values(value);
  return inner.reduce<number>((sum, one) => sum + membersOf(one), Array.isArray(value) ? 0 : inner.length);
}

/** @param refuseJson for a body whose type is not named, where JSON would mean something else */
function rawBody(ctx: Context, limit: number, refuseJson = false): ReadBody {
  const bounded = new Bounded(limit, refuseJson);
  ctx.req.once('error', () => bounded.destroy(cutOff()));
  ctx.req.once('close', () => {
    if (!ctx.req.complete) bounded.destroy(cutOff());
  });
  bounded.once('error', () => ctx.req.unpipe(bounded));
  const source: Readable = hasBody(ctx) ? ctx.req : new PassThrough().end();
  source.pipe(bounded);
  return { kind: 'raw', stream: bounded, files: [], fields: {} };
}

const cutOff = () => problem('bad-request', 'The body was cut off.');

/** Fails with 413 as soon as the limit is exceeded, and with 415 for JSON without its content type. */
class Bounded extends Transform {
  #left: number;
  #refusesJson: boolean;

  constructor(limit: number, refusesJson: boolean) {
    super();
    this.#left = limit;
    this.#refusesJson = refusesJson;
    // A handler that gave up must not end the process.
    this.on('error', () => undefined);
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.#left -= chunk.length;
    const isFirst = this.#refusesJson;
    this.#refusesJson = false;
    if (isFirst && looksLikeJson(chunk.toString('latin1'))) done(unsupported(mislabelled));
    else if (this.#left < 0) done(problem('too-large', 'The body is larger than this endpoint takes.'));
    else done(null, chunk);
  }
}

function refuseLength(ctx: Context, limit: number): void {
  if (Number(ctx.req.headers['content-length'] ?? 0) <= limit) {
    if (ctx.req.headers.expect !== undefined) ctx.res.writeContinue();
    return;
  }
  throw problem('too-large', `The body may have ${limit} bytes at most.`);
}

function refuseEncoding(ctx: Context): void {
  const encoding = ctx.get('Content-Encoding');
  if (encoding !== '' && encoding !== 'identity') throw unsupported('Send the body without Content-Encoding.');
}

function refuseCharset(ctx: Context): void {
  const charset = /;\s*charset="?([^";\s]+)/i.exec(ctx.get('Content-Type'))?.[1];
  if (charset !== undefined && !/^utf-?8$/i.test(charset)) throw unsupported('Send UTF-8.');
}

function inRange(type: string, range: string): boolean {
  return range === '*/*' || range === type || (range.endsWith('/*') && type.startsWith(range.slice(0, -1)));
}

const unsupported = (detail: string) => problem('unsupported-media-type', detail);

/** The part of a received file that the code relies on. */
interface TemporaryFile {
  readonly filepath: string;
  readonly originalFilename: string | null;
  readonly mimetype: string | null;
  readonly size: number;
}

interface Upload {
  readonly files: readonly UploadedFile[];
  readonly fields: Fields;
}

/** Multipart bodies, in a private folder; leftovers of a dead process are removed at the start. */
export class Uploads {
  readonly #folder: string;
  /** By request: what is written, by path, in the order of the form. */
  readonly #files = new WeakMap<object, ReadonlyMap<string, WriteStream>>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Removes leftovers of a killed process; unknown files stay. */
  sweep(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    for (const entry of readdirSync(this.#folder, { withFileTypes: true })) {
      if (entry.isFile() && uniqueIdPattern.test(entry.name)) rmSync(join(this.#folder, entry.name), { force: true });
    }
  }

  async receive(
    ctx: Context,
    {
      limit,
      maxFiles,
      maxFieldBytes,
    }: {
      /** Bytes of all files together. */
      readonly limit: number;
      readonly maxFiles: number;
      /** Bytes of all text fields together. */
      readonly maxFieldBytes: number;
    },
  ): Promise<Upload> {
    const { koaBody } = await import('koa-body');
    const streams = new Map<string, WriteStream>();
    this.#files.set(ctx, streams);
    const read = koaBody({
      multipart: true,
      json: false,
      urlencoded: false,
      text: false,
      formidable: {
        uploadDir: this.#folder,
        filename: () => uniqueId(),
        maxFileSize: limit,
        maxTotalFileSize: limit,
        maxFiles,
        maxFields,
        maxFieldsSize: maxFieldBytes,
        allowEmptyFiles: true,
        minFileSize: 0,
        // formidable leaves a file behind when there are too many, or when it is being opened while the form fails.
        fileWriteStreamHandler: (file) => {
          const { filepath } = file as unknown as TemporaryFile;
          const stream = createWriteStream(filepath);
          streams.set(filepath, stream);
          return stream;
        },
      },
    });
    try {
      await read(ctx, () => Promise.resolve());
    } catch (error) {
      if (!tooMany.has((error as { readonly code?: unknown }).code)) throw error;
      throw problem('too-large', `A form may have ${maxFiles} files and ${maxFields} other fields at most.`);
    }
    const { files: received, body } = ctx.request as {
      readonly files?: Readonly<Record<string, TemporaryFile | readonly TemporaryFile[]>>;
      readonly body?: Fields;
    };
    const files = Object.entries(received ?? {}).flatMap(([field, value]) =>
      [value].flat().map((file) => ({ field, file })),
    );
    // formidable returns them in the order in which they ended; this restores the order of the form.
    const order = [...streams.keys()];
    files.sort((a, b) => order.indexOf(a.file.filepath) - order.indexOf(b.file.filepath));
    const fields = body ?? {};
    // Endpoints that need a file check for it; a form may have text instead of one.
    if (files.length === 0 && Object.keys(fields).length === 0)
      throw problem('bad-request', 'There is no file in the form.');
    return { files: files.map(({ field, file }) => uploadedFile(field, file)), fields };
  }

  /** Removes the files of a request when it is answered, whatever the response. */
  readonly releaseAfter: Middleware = (ctx, next) =>
    // Only methods with a body have files to remove.
    ctx.method === 'GET' || ctx.method === 'HEAD' ? next(ctx) : this.#release(ctx, next);

  async #release(ctx: Context, next: Next): Promise<void> {
    try {
      await next(ctx);
    } finally {
      for (const [path, stream] of this.#files.get(ctx) ?? []) {
        // A file that is still being opened would come after its removal.
        if (!stream.closed) await new Promise<void>((resolve) => stream.once('close', resolve).destroy());
        await unlink(path).catch(() => undefined);
      }
    }
  }
}

function uploadedFile(field: string, { filepath, originalFilename, mimetype, size }: TemporaryFile): UploadedFile {
  return {
    field,
    filename: originalFilename ?? '',
    contentType: mimetype ?? 'application/octet-stream',
    size,
    open: () => createReadStream(filepath),
  };
}
