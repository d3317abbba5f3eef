import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { z } from 'zod';
import { writeFileAtomic } from '../disk/atomic.js';
import { type FileLayer, openRegularFile, writeAll } from '../disk/file-layer.js';
import { randomBytes } from '../disk/id.js';

/**
 * A segment file begins with 32 bytes: `PSTNLOG1`, the mark of its records, the number of the first one (6 bytes), two
 * zeros, four zeros, CRC-32 of all that. Zeros in place of the header: all its records are released.
 */
export const segmentHeaderBytes = 32;
const magic = Buffer.from('PSTNLOG1');
const sumAt = 28;
/** Larger writes run on a thread. */
const maxBlockingBytes = 256 * 1024;

interface SegmentHeader {
  readonly mark: Buffer;
  readonly first: number;
}

/** The header in the first bytes of a segment file; undefined for other files. */
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

/** A preallocated file to which records are appended. */
export class Segment {
  readonly path: string;
  readonly mark: Buffer = Buffer.from(randomBytes(markBytes));
  readonly #files: FileLayer;
  readonly #fd: number;
  readonly capacity: number;
  readonly first: number;
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

  /** Begins a new segment in a file that is empty or holds only released records. */
  static async begin(path: string, files: FileLayer, capacity: number, first: number): Promise<Segment> {
    return new Segment(path, files, await files.open(path, 'r+'), capacity, first);
  }

  get room(): number {
    return this.capacity - this.#used;
  }

  /**
   * Resolves when all bytes are durable. After a failure nothing more may be written: a later fdatasync could report
   * false success.
   */
  async write(parts: readonly Buffer[], bytes: number): Promise<void> {
    const all = this.#header === undefined ? parts : [this.#header, ...parts];
    this.#header = undefined;
    this.#used += bytes;
    // The file is preallocated, so a small write is faster than the start of a thread.
    if (bytes <= maxBlockingBytes) await this.#files.writeNow(this.#fd, all);
    else await writeAll(this.#files, this.#fd, all);
    await this.#files.fdatasync(this.#fd);
  }

  close(): Promise<void> {
    return this.#files.close(this.#fd);
  }
}

const chunkBytes = 1024 * 1024;

/** Creates a durable file of zeros, so that later writes change no block map. Its folder is not synced. */
export async function preallocate(path: string, files: FileLayer, capacity: number): Promise<void> {
  const zeros = Buffer.alloc(Math.min(chunkBytes, capacity));
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

/** Marks all records of the file as released. */
export async function clearSegment(path: string, files: FileLayer): Promise<void> {
  const fd = await files.open(path, 'r+');
  try {
    await writeAll(files, fd, [Buffer.alloc(segmentHeaderBytes)]);
    await files.fdatasync(fd);
  } finally {
    await files.close(fd);
  }
}

/**
 * A record in a segment: a header of 32 bytes, then the payload. The header has at
 *
 * - 0 to 7: the mark of the segment;
 * - 8 to 11: CRC-32 of all that follows;
 * - 12 to 15: bytes of the payload;
 * - 16: the kind; 17: zero;
 * - 18 to 23: the number;
 * - 24 to 29: the number up to which all is acknowledged; 30 and 31: zero.
 *
 * The mark is random for each new segment: records of an earlier segment in the same file, and bytes that a sender puts
 * into a message, are never taken for records.
 */
export const recordHeaderBytes = 32;
export const markBytes = 8;
const checkedFrom = 12;
const numberBytes = 6;

export interface LogRecord {
  /** Increases by one with each record, across segments. */
  readonly number: number;
  /** 0 to 255, defined by the owner. */
  readonly kind: number;
  readonly payload: Buffer;
}

interface RecordInput {
  readonly mark: Buffer;
  readonly number: number;
  readonly kind: number;
  /** Newest record that was acknowledged when this one was written. */
  readonly acknowledged: number;
  readonly payload: readonly Buffer[];
}

export function recordHeader({ mark, number, kind, acknowledged, payload }: RecordInput): Buffer {
  const header = Buffer.allocUnsafe(recordHeaderBytes).fill(0);
  mark.copy(header, 0, 0, markBytes);
  header.writeUInt32LE(totalBytes(payload), 12);
  header[16] = kind;
  header.writeUIntLE(number, 18, numberBytes);
  header.writeUIntLE(acknowledged, 24, numberBytes);
  let sum = crc32(header.subarray(checkedFrom));
  for (const part of payload) sum = crc32(part, sum);
  header.writeUInt32LE(sum, 8);
  return header;
}

export function totalBytes(parts: readonly Buffer[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return bytes;
}

interface FoundRecord extends LogRecord {
  readonly acknowledged: number;
  /** Offset after the record. */
  readonly end: number;
}

/** The record at `offset`; undefined when there is no complete valid one. */
function recordAt(bytes: Buffer, offset: number, mark: Buffer): FoundRecord | undefined {
  const start = offset + recordHeaderBytes;
  if (start > bytes.length || !bytes.subarray(offset, offset + markBytes).equals(mark)) return undefined;
  const header = bytes.subarray(offset, start);
  const end = start + header.readUInt32LE(12);
  if (end > bytes.length) return undefined;
  if (crc32(bytes.subarray(offset + checkedFrom, end)) !== header.readUInt32LE(8)) return undefined;
  return {
    number: header.readUIntLE(18, numberBytes),
    kind: header.readUInt8(16),
    acknowledged: header.readUIntLE(24, numberBytes),
    payload: bytes.subarray(start, end),
    end,
  };
}

/** Numbers of records, both ends inclusive. */
export interface NumberRange {
  readonly from: number;
  readonly to: number;
}

interface ScannedRecords {
  readonly records: readonly FoundRecord[];
  /** Unreadable records that are followed by a valid one. */
  readonly gaps: readonly NumberRange[];
}

/**
 * Reads the records of a segment whose first record has the number `first`. Its end may be torn by a crash during a
 * write; everywhere else reading continues at the next valid record.
 */
export function scanRecords(bytes: Buffer, offset: number, mark: Buffer, first: number): ScannedRecords {
  const records: FoundRecord[] = [];
  const gaps: NumberRange[] = [];
  let next = first;
  let at = offset;
  for (;;) {
    const found = nextRecord(bytes, at, mark, next);
    if (found === undefined) return { records, gaps };
    if (found.number > next) gaps.push({ from: next, to: found.number - 1 });
    records.push(found);
    next = found.number + 1;
    at = found.end;
  }
}

/** The first valid record at or after `at` whose number is at least `least`. */
function nextRecord(bytes: Buffer, at: number, mark: Buffer, least: number): FoundRecord | undefined {
  for (let found = bytes.indexOf(mark, at); found >= 0; found = bytes.indexOf(mark, found + 1)) {
    const record = recordAt(bytes, found, mark);
    if (record !== undefined && record.number >= least) return record;
  }
  return undefined;
}

/**
 * The mark of the first valid record in a segment with a damaged header. Records below `least` are of an earlier
 * segment in the file.
 */
export function markOfDamaged(bytes: Buffer, least: number): Buffer | undefined {
  for (let at = 0; at + recordHeaderBytes <= bytes.length; at += 1) {
    const isPlausible =
      bytes[at + 17] === 0 &&
      bytes[at + 30] === 0 &&
      bytes[at + 31] === 0 &&
      bytes.readUIntLE(at + 18, numberBytes) > 0;
    if (!isPlausible) continue;
    const mark = bytes.subarray(at, at + markBytes);
    const record = recordAt(bytes, at, mark);
    if (record !== undefined && record.number >= least) return Buffer.from(mark);
  }
  return undefined;
}

/** Lists the segments in use. */
export const usedSegmentsName = 'segments.json';

const UsedSegment = z.object({
  name: z.string(),
  first: z.number(),
  /** When its first record was written, in milliseconds since the epoch. */
  at: z.number(),
});
/** A segment with unreleased records. */
export type UsedSegment = z.output<typeof UsedSegment>;

const UsedSegments = z.object({ segments: z.array(UsedSegment) });

/** Undefined when the list is missing or invalid: then a missing segment shows only as a gap in the numbers. */
export async function readUsedSegments(folder: string, files: FileLayer): Promise<readonly UsedSegment[] | undefined> {
  try {
    const path = join(folder, usedSegmentsName);
    const bytes = Buffer.alloc((await files.lstat(path)).size);
    const fd = await openRegularFile(path, files);
    try {
      await files.read(fd, bytes, 0);
    } finally {
      await files.close(fd);
    }
    return UsedSegments.parse(JSON.parse(bytes.toString('utf8'))).segments;
  } catch {
    return undefined;
  }
}

export function writeUsedSegments(folder: string, used: readonly UsedSegment[], files: FileLayer): Promise<void> {
  const list: z.input<typeof UsedSegments> = { segments: [...used] };
  return writeFileAtomic(join(folder, usedSegmentsName), `${JSON.stringify(list)}\n`, { files });
}
