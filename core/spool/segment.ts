import { crc32 } from 'node:zlib';
import { writeAll, type FileLayer } from '../disk/file-layer.js';
import { markBytes } from './log-record.js';
import { randomPiece } from './random-piece.js';

/**
 * A segment file begins with 32 bytes: `PSTNLOG1`, the mark of its records, the number of the first one (6 bytes), two
 * zeros, four zeros, CRC-32 of all that. Zeros in place of the header: nothing in it is wanted.
 */
export const segmentHeaderBytes = 32;
const magic = Buffer.from('PSTNLOG1');
const sumAt = 28;
/** So much is written without a thread. */
const littleBytes = 256 * 1024;

export interface SegmentHeader {
  readonly mark: Buffer;
  /** Number of the first record. */
  readonly first: number;
}

/** What the first bytes of a segment file say; `undefined` when they are none of ours. */
export function readSegmentHeader(bytes: Buffer): SegmentHeader | 'empty' | undefined {
  if (bytes.length < segmentHeaderBytes) return undefined;
  const header = bytes.subarray(0, segmentHeaderBytes);
  if (header.every((byte) => byte === 0)) return 'empty';
  if (!header.subarray(0, magic.length).equals(magic)) return undefined;
  if (crc32(header.subarray(0, sumAt)) !== header.readUInt32LE(sumAt)) return undefined;
  return { mark: Buffer.from(header.subarray(8, 8 + markBytes)), first: header.readUIntLE(16, 6) };
}

function segmentHeader({ mark, first }: SegmentHeader): Buffer {
  const header = Buffer.alloc(segmentHeaderBytes);
  magic.copy(header);
  mark.copy(header, 8);
  header.writeUIntLE(first, 16, 6);
  header.writeUInt32LE(crc32(header.subarray(0, sumAt)), sumAt);
  return header;
}

/** A preallocated file while records are appended to it: from its first byte on, never backwards. */
export class Segment {
  readonly path: string;
  readonly mark: Buffer = Buffer.from(randomPiece(markBytes));
  readonly #files: FileLayer;
  readonly #fd: number;
  readonly capacity: number;
  /** Number of its first record. */
  readonly first: number;
  /** Number of the newest record in it. */
  last: number;
  #header: Buffer | undefined;
  #used = segmentHeaderBytes;

  private constructor(path: string, files: FileLayer, fd: number, capacity: number, first: number) {
    this.path = path;
    this.#files = files;
    this.#fd = fd;
    this.capacity = capacity;
    this.first = first;
    this.last = first - 1;
    this.#header = segmentHeader({ mark: this.mark, first });
  }

  /** Begins a new life of a file that is empty, or holds nothing that is wanted. */
  static async begin(path: string, files: FileLayer, capacity: number, first: number): Promise<Segment> {
    return new Segment(path, files, await files.open(path, 'r+'), capacity, first);
  }

  get room(): number {
    return this.capacity - this.#used;
  }

  /** Resolves when all of it is on the disk. After a failure nothing more may be written: the system would lie about it. */
  async write(parts: readonly Buffer[], bytes: number): Promise<void> {
    const all = this.#header === undefined ? parts : [this.#header, ...parts];
    this.#header = undefined;
    this.#used += bytes;
    // No block map changes, so that a little is in the memory of the system before a thread would have begun.
    if (bytes <= littleBytes) await this.#files.writeNow(this.#fd, all);
    else await writeAll(this.#files, this.#fd, all);
    await this.#files.fdatasync(this.#fd);
  }

  close(): Promise<void> {
    return this.#files.close(this.#fd);
  }
}

const pieceBytes = 1024 * 1024;

/** Fills a new file with zeros and makes them durable, so that later writes change no block map. Its folder is not synced. */
export async function preallocate(path: string, files: FileLayer, capacity: number): Promise<void> {
  const zeros = Buffer.alloc(Math.min(pieceBytes, capacity));
  const fd = await files.open(path, 'wx', 0o600);
  try {
    for (let left = capacity; left > 0; left -= zeros.length) {
      await writeAll(files, fd, [zeros.subarray(0, Math.min(left, zeros.length))]);
    }
    await files.fsync(fd);
  } finally {
    await files.close(fd);
  }
}

/** Says that nothing in the file is wanted any more. */
export async function clearSegment(path: string, files: FileLayer): Promise<void> {
  const fd = await files.open(path, 'r+');
  try {
    await writeAll(files, fd, [Buffer.alloc(segmentHeaderBytes)]);
    await files.fdatasync(fd);
  } finally {
    await files.close(fd);
  }
}
