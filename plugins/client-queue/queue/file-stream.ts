import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { readAt } from './whole-file.js';

const pieceBytes = 64 * 1024;

export interface FilePart {
  /** Open for reading; the stream closes it, whether anybody has read from it or not. */
  readonly fd: number;
  readonly from: number;
  /** Where it ends, exclusive. */
  readonly to: number;
  /** What it fails with when the file is shorter, or its bytes have another checksum; it just ends when absent. */
  readonly damaged?: () => Error;
  /** CRC-32 of the part; not looked at when undefined. */
  readonly checksum?: number | undefined;
}

/** The bytes of a part of a file. */
export class FileStream extends Readable {
  readonly #files: FileLayer;
  readonly #part: FilePart;
  #at: number;
  #checksum = 0;
  #reading: Promise<void> | undefined;

  constructor(files: FileLayer, part: FilePart) {
    super({ highWaterMark: pieceBytes });
    this.#files = files;
    this.#part = part;
    this.#at = part.from;
  }

  override _read(): void {
    this.#reading = this.#next().catch((error: unknown) => {
      this.destroy(error instanceof Error ? error : new Error('a file cannot be read', { cause: error }));
    });
  }

  async #next(): Promise<void> {
    const { fd, to, damaged, checksum } = this.#part;
    const wanted = Math.min(pieceBytes, to - this.#at);
    const piece = wanted > 0 ? await readAt(this.#files, fd, this.#at, wanted) : Buffer.alloc(0);
    if (this.destroyed) return;
    if (piece.length < wanted && damaged !== undefined) throw damaged();
    this.#at += piece.length;
    if (checksum !== undefined) {
      this.#checksum = crc32(piece, this.#checksum);
      // Before the last piece is given, so that nobody takes it for the end of a message.
      if (this.#at >= to && this.#checksum !== checksum && damaged !== undefined) throw damaged();
    }
    this.push(piece.length === 0 ? null : piece);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    void this.#close(error, done);
  }

  /** Closed under a read that is under way, its number might be that of another file by then. */
  async #close(error: Error | null, done: (error?: Error | null) => void): Promise<void> {
    let failure = error;
    try {
      await this.#reading;
      await this.#files.close(this.#part.fd);
    } catch (failed) {
      failure ??= failed instanceof Error ? failed : new Error('a file cannot be closed', { cause: failed });
    }
    done(failure);
  }
}
