import { crc32 } from 'node:zlib';

/**
 * The form of a record in a segment: a header of 32 bytes, then the payload.
 *
 * | 0-7 | 8-11 | 12-15 | 16 | 17 | 18-23 | 24-29 | 30-31 |
 * |---|---|---|---|---|---|---|---|
 * | mark of the segment | CRC-32 of all that follows | payload bytes | kind | 0 | number | acknowledged | 0 |
 *
 * The mark is drawn by chance each time a segment is begun. So what an older life of the file has left is no record, and
 * neither is anything that a sender put into his message.
 */
export const recordHeaderBytes = 32;
export const markBytes = 8;
const checkedFrom = 12;
const numberBytes = 6;

export interface LogRecord {
  /** Rises by one from record to record, through all segments. */
  readonly number: number;
  /** What its owner made it: 0 to 255. */
  readonly kind: number;
  readonly payload: Buffer;
}

export interface RecordInput {
  readonly mark: Buffer;
  readonly number: number;
  readonly kind: number;
  /** The number of the newest record that was acknowledged when this one was written. */
  readonly acknowledged: number;
  readonly payload: readonly Buffer[];
}

/** The header that goes in front of the payload. */
export function recordHeader({ mark, number, kind, acknowledged, payload }: RecordInput): Buffer {
  const header = Buffer.allocUnsafe(recordHeaderBytes).fill(0);
  mark.copy(header, 0, 0, markBytes);
  header.writeUInt32LE(bytesOf(payload), 12);
  header[16] = kind;
  header.writeUIntLE(number, 18, numberBytes);
  header.writeUIntLE(acknowledged, 24, numberBytes);
  let sum = crc32(header.subarray(checkedFrom));
  for (const part of payload) sum = crc32(part, sum);
  header.writeUInt32LE(sum, 8);
  return header;
}

export function bytesOf(parts: readonly Buffer[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return bytes;
}

/** A record where it was found. */
export interface FoundRecord extends LogRecord {
  readonly acknowledged: number;
  /** Offset behind it. */
  readonly end: number;
}

/** The record that begins at `offset`; undefined when there is none, or not the whole of one. */
export function recordAt(bytes: Buffer, offset: number, mark: Buffer): FoundRecord | undefined {
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

/** Numbers of records, both ends included. */
export interface NumberRange {
  readonly from: number;
  readonly to: number;
}

export interface ScannedRecords {
  readonly records: readonly FoundRecord[];
  /** Records that cannot be read although a valid one follows. */
  readonly gaps: readonly NumberRange[];
}

/**
 * Reads the records of a segment, of which the first has the number `first`. Only its end may be torn, with nothing valid behind it: a
 * write was under way when the process or the machine died. Everywhere else reading continues at the next valid record.
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

/** The first valid record at or behind `at` whose number is not below `least`. */
function nextRecord(bytes: Buffer, at: number, mark: Buffer, least: number): FoundRecord | undefined {
  for (let found = bytes.indexOf(mark, at); found >= 0; found = bytes.indexOf(mark, found + 1)) {
    const record = recordAt(bytes, found, mark);
    if (record !== undefined && record.number >= least) return record;
  }
  return undefined;
}

/** The mark of the first valid record in a segment whose header is damaged. Records below `least` are of an earlier life of the file. */
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
