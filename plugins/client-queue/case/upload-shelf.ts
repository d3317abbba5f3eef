import { randomUUID } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { asStorageProblem } from '../../../core/disk/fault.js';
import { isProblem, problem } from '../../../core/problem.js';

/** A message that was handed in, readable as often as it is needed. */
export interface KeptUpload {
  readonly size: number;
  /** Its first bytes, for the header. */
  readonly head: Buffer;
  open(): AsyncIterable<Buffer>;
  release(): Promise<void>;
}

const headBytes = 256 * 1024;

/** Keeps uploads while they are worked on, in files that have no name: whatever happens, none is left behind. */
export class UploadShelf {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** @throws Problem `invalid` for an empty message, `storage-full`, and what the stream fails with */
  async keep(stream: Readable): Promise<KeptUpload> {
    const handle = await this.#nameless();
    try {
      const size = await this.#fill(handle, stream);
      if (size === 0) throw problem('invalid', 'The message is empty.');
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

  async #fill(handle: FileHandle, stream: Readable): Promise<number> {
    let size = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      await handle.write(chunk, 0, chunk.length, size).catch((error: unknown) => {
        throw isProblem(error) ? error : asStorageProblem(error);
      });
      size += chunk.length;
    }
    return size;
  }
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
