import { crc32 } from 'node:zlib';
import type { DisplayAddress } from '../../../core/mime/address-list.js';
import type { Summary } from '../mime/summary.js';

/**
 * The summary of one message as a record of the summary log. Numbers are little-endian.
 *
 * | 0-3
 * 4-7
 * 8-9
 * 10-11
 * 12-15
 * then
 * | |---|---|---|---|---|---|
 * | bytes of all
 * CRC-32 of all that follows
 * bytes of the unique name
 * 0
 * bytes of the text
 * unique name, text, JSON
 * |
 * A search reads the text: normalised, in lower case, each field on a line of its own.
 */
const recordHeadBytes = 16;
const checkedFrom = 8;
/** Maximum bytes of a record; a longer one is not stored. */
export const maxRecordBytes = 256 * 1024;

export interface SummaryRecord {
  readonly summary: Summary;
  /** Bytes of the file. */
  readonly size: number;
}

/** Undefined when the record would be too long. */
export function writeRecord(id: string, { summary, size }: SummaryRecord): Buffer | undefined {
  const name = Buffer.from(id, 'utf8');
  const text = Buffer.from(searchText(summary), 'utf8');
  const shown = Buffer.from(JSON.stringify({ ...summary, size }), 'utf8');
  const bytes = recordHeadBytes + name.length + text.length + shown.length;
  if (bytes > maxRecordBytes) return undefined;
  const record = Buffer.concat([Buffer.alloc(recordHeadBytes), name, text, shown], bytes);
  record.writeUInt32LE(bytes, 0);
  record.writeUInt16LE(name.length, 8);
  record.writeUInt32LE(text.length, 12);
  record.writeUInt32LE(crc32(record.subarray(checkedFrom)), 4);
  return record;
}

/** Bytes of the record at that offset; undefined when there is no valid record head. */
export function recordLength(bytes: Buffer, at: number): number | undefined {
  if (at + recordHeadBytes > bytes.length) return undefined;
  const length = bytes.readUInt32LE(at);
  const inner = recordHeadBytes + bytes.readUInt16LE(at + 8) + bytes.readUInt32LE(at + 12);
  return length < inner || length > maxRecordBytes ? undefined : length;
}

/** Verifies the checksum. @param record exactly its bytes */
export function isIntact(record: Buffer): boolean {
  return recordLength(record, 0) === record.length && crc32(record.subarray(checkedFrom)) === record.readUInt32LE(4);
}

export function idOfRecord(record: Buffer): string {
  return record.toString('utf8', recordHeadBytes, recordHeadBytes + record.readUInt16LE(8));
}

/** Start and end of the text, relative to `bytes`. */
export function textOfRecord(bytes: Buffer, at: number): readonly [start: number, end: number] {
  const start = at + recordHeadBytes + bytes.readUInt16LE(at + 8);
  return [start, start + bytes.readUInt32LE(at + 12)];
}

/** Undefined when the record is of another message. @param record intact */
export function readRecord(record: Buffer, id: string): SummaryRecord | undefined {
  if (idOfRecord(record) !== id) return undefined;
  const [, end] = textOfRecord(record, 0);
  const { size, ...summary } = JSON.parse(record.toString('utf8', end)) as Summary & { readonly size: number };
  return { summary, size };
}

/** The text that a search reads. */
export function searchText({ subject, from, to, internetMessageId, snippet }: Summary): string {
  const people = [...(from === null ? [] : [from]), ...to].map(personText);
  return [subject, ...people, internetMessageId ?? '', snippet].map(folded).join('\n');
}

/** Normalises text for comparison in a search. */
export function folded(text: string): string {
  return text.normalize('NFC').toLowerCase().replaceAll('\n', ' ');
}

function personText({ name, address }: DisplayAddress): string {
  return `${name} ${address}`;
}
