import { createReadStream, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { koaBody } from 'koa-body';
import { problem } from '../problem.js';
import type { UploadedFile } from './endpoint.js';
import type { Context, Stage } from './exchange.js';
import type { Fields } from './request-target.js';

/** The part of a received file that we rely on. */
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

/** Multipart bodies, in a folder of our own that is emptied at start. */
export class Uploads {
  readonly #folder: string;
  readonly #files = new WeakMap<object, Set<string>>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** What a killed process left behind goes. */
  sweep(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    for (const name of readdirSync(this.#folder)) rmSync(join(this.#folder, name), { force: true });
  }

  async receive(ctx: Context, { limit, maxFiles, maxFieldBytes }: UploadBounds): Promise<Upload> {
    const paths = new Set<string>();
    this.#files.set(ctx, paths);
    const read = koaBody({
      multipart: true,
      json: false,
      urlencoded: false,
      text: false,
      formidable: {
        uploadDir: this.#folder,
        maxFileSize: limit,
        maxTotalFileSize: limit,
        maxFiles,
        maxFields: 100,
        maxFieldsSize: maxFieldBytes,
        allowEmptyFiles: true,
        minFileSize: 0,
        // formidable leaves a file behind when there are too many: every path is noted before a byte is written.
        onFileBegin: (_name, file) => paths.add(file.filepath),
      },
    });
    await read(ctx, () => Promise.resolve());
    const { files: received, body } = ctx.request as {
      readonly files?: Readonly<Record<string, TemporaryFile | readonly TemporaryFile[]>>;
      readonly body?: Fields;
    };
    const files = Object.entries(received ?? {}).flatMap(([field, value]) =>
      [value].flat().map((file) => uploadedFile(field, file)),
    );
    if (files.length === 0) throw problem('bad-request', 'There is no file in the form.');
    return { files, fields: body ?? {} };
  }

  /** The files of a request are gone when it is answered, whatever the answer was. */
  readonly releaseAfter: Stage = async (ctx, next) => {
    try {
      await next();
    } finally {
      for (const path of this.#files.get(ctx) ?? []) await unlink(path).catch(() => undefined);
    }
  };
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
