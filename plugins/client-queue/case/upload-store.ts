import { randomUUID } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { asStorageProblem } from '../../../core/disk/fault.js';
import { filesNamed, type OwnEntry } from '../../../core/host/unknown-entries.js';
import { isProblem, problem } from '../../../core/problem.js';

/** An uploaded message that can be read repeatedly. */
export interface KeptUpload {
  readonly size: number;
  /** First bytes, for the header. */
  readonly head: Buffer;
  open(): AsyncIterable<Buffer>;
  release(): Promise<void>;
}

/** Leftover of a killed process: its name is a UUID. Such a file can be deleted. */
export const isOwnUpload: OwnEntry = filesNamed(/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);

const headBytes = 256 * 1024;

/** Smaller uploads stay in memory: a file for each would cost more than the rest of the request. */
const smallBytes = 64 * 1024;

/**
 * Stores uploads while they are in use: small ones in memory, others in unlinked files, so that none is left behind.
 */
export class UploadStore {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** @throws Problem `invalid` for an empty message, `storage-full`, and errors of the stream */
  async keep(stream: Readable): Promise<KeptUpload> {
    const chunks = (stream as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
    try {
      const { first, more } = await firstOf(chunks);
      if (first.length === 0) throw problem('invalid', 'The message is empty.');
      return more ? await this.#keepInFile(first, chunks) : inMemory(first);
    } catch (error) {
      await chunks.return?.();
      throw error;
    }
  }

  async #keepInFile(first: Buffer, rest: AsyncIterator<Buffer>): Promise<KeptUpload> {
    const handle = await this.#nameless();
    try {
      const size = await this.#fill(handle, first, rest);
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(size, headBytes)), 0, undefined, 0);
      return {
        size,
        head: buffer.subarray(0, bytesRead),
        open: () => pieces(handle, size),
        release: () => handle.close(),
      };
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  async #nameless(): Promise<FileHandle> {
    const path = join(this.#folder, randomUUID());
    try {
      const handle = await open(path, 'wx+', 0o600);
      await unlink(path);
      return handle;
    } catch (error) {
      throw asStorageProblem(error);
    }
  }

  async #fill(handle: FileHandle, first: Buffer, rest: AsyncIterator<Buffer>): Promise<number> {
    let size = 0;
    for (let chunk: Buffer | undefined = first; chunk !== undefined; chunk = await nextOf(rest)) {
      await handle.write(chunk, 0, chunk.length, size).catch((error: unknown) => {
        throw isProblem(error) ? error : asStorageProblem(error);
      });
      size += chunk.length;
    }
    return size;
  }
}

async function nextOf(chunks: AsyncIterator<Buffer>): Promise<Buffer | undefined> {
  const next = await chunks.next();
  return next.done === true ? undefined : next.value;
}

/** The whole stream, or its beginning when it does not fit into memory. */
async function firstOf(chunks: AsyncIterator<Buffer>): Promise<{ readonly first: Buffer; readonly more: boolean }> {
  const read: Buffer[] = [];
  let size = 0;
  for (let chunk = await nextOf(chunks); chunk !== undefined; chunk = await nextOf(chunks)) {
    read.push(chunk);
    size += chunk.length;
    if (size > smallBytes) return { first: Buffer.concat(read), more: true };
  }
  return { first: Buffer.concat(read), more: false };
}

function inMemory(bytes: Buffer): KeptUpload {
  return {
    size: bytes.length,
    head: bytes.subarray(0, headBytes),
    open: () => Readable.from([bytes]),
    release: () => Promise.resolve(),
  };
}

const pieceBytes = 64 * 1024;

async function* pieces(handle: FileHandle, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < size;) {
    const { buffer, bytesRead } = await handle.read(
      Buffer.allocUnsafe(Math.min(pieceBytes, size - at)),
      0,
      undefined,
      at,
    );
    if (bytesRead === 0) return;
    at += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}
