import { createReadStream, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { uniqueId, uniqueIdPattern } from '../disk/id.js';
import { problem } from '../problem.js';
import type { UploadedFile } from './endpoint.js';
import type { Context, Next, Middleware } from './exchange.js';
import type { Fields } from './validation.js';

/** The part of a received file that the code relies on. */
interface TemporaryFile {
  readonly filepath: string;
  readonly originalFilename: string | null;
  readonly mimetype: string | null;
  readonly size: number;
}

export interface UploadBounds {
  /** Bytes of all files together. */
  readonly limit: number;
  readonly maxFiles: number;
  /** Bytes of all text fields together. */
  readonly maxFieldBytes: number;
}

export interface Upload {
  readonly files: readonly UploadedFile[];
  readonly fields: Fields;
}

/** Multipart bodies, in a private folder; leftovers of a dead process are removed at the start. */
export class Uploads {
  readonly #folder: string;
  readonly #files = new WeakMap<object, Set<string>>();

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

  async receive(ctx: Context, { limit, maxFiles, maxFieldBytes }: UploadBounds): Promise<Upload> {
    const { koaBody } = await import('koa-body');
    const paths = new Set<string>();
    this.#files.set(ctx, paths);
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
        maxFields: 100,
        maxFieldsSize: maxFieldBytes,
        allowEmptyFiles: true,
        minFileSize: 0,
        // formidable leaves a file behind when there are too many: every path is recorded before a byte is written.
        onFileBegin: (_name, file) => paths.add(file.filepath),
      },
    });
    await read(ctx, () => Promise.resolve());
    const { files: received, body } = ctx.request as {
      readonly files?: Readonly<Record<string, TemporaryFile | readonly TemporaryFile[]>>;
      readonly body?: Fields;
    };
    const files = Object.entries(received ?? {}).flatMap(([field, value]) =>
      [value].flat().map((file) => ({ field, file })),
    );
    // formidable returns them in the order in which they ended; this restores the order of the form.
    const order = [...paths];
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
    ctx.method === 'GET' || ctx.method === 'HEAD' ? next() : this.#release(ctx, next);

  async #release(ctx: Context, next: Next): Promise<void> {
    try {
      await next();
    } finally {
      for (const path of this.#files.get(ctx) ?? []) await unlink(path).catch(() => undefined);
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
