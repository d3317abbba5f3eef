import type { MessageEntry } from '../maildir/message-entry.js';
import { readMessageName } from '../maildir/message-name.js';

/** Free space for further names in a pool that had to grow. */
const spareBytes = 64 * 1024;

/**
 * File names in UTF-8, one after the other. Names are only added and never changed: rows with offsets can share the
 * pool, and new names do not cost a copy of all.
 */
export class NamePool {
  readonly bytes: Buffer;
  #used: number;

  /** @param used number of bytes that contain names */
  constructor(bytes: Buffer, used = bytes.length) {
    this.bytes = bytes;
    this.#used = used;
  }

  get used(): number {
    return this.#used;
  }

  /** The used bytes. */
  get names(): Buffer {
    return this.bytes.subarray(0, this.#used);
  }

  /** The pool with these names after its own: another one when there was no room. */
  with(names: Buffer): NamePool {
    const start = this.#used;
    const end = start + names.length;
    const pool = end > this.bytes.length ? this.#grown(end) : this;
    names.copy(pool.bytes, start);
    pool.#used = end;
    return pool;
  }

  #grown(bytes: number): NamePool {
    const larger = Buffer.allocUnsafeSlow(Math.ceil(bytes * 1.1) + spareBytes);
    this.bytes.copy(larger, 0, 0, this.#used);
    return new NamePool(larger, this.#used);
  }
}

/**
 * The messages of a folder in columns, newest first: by received time, then by unique name. A folder of 100,000
 * messages takes some ten megabytes that the garbage collector does not scan, and is stored on disk in the same form.
 *
 * Immutable except `summary`, which is set when a message has been read.
 */
export interface FolderRows {
  readonly count: number;
  /** Milliseconds since 1970, with fractions. */
  readonly receivedAt: Float64Array;
  /** Bytes. */
  readonly size: Float64Array;
  /** Offset of the file name in `pool`. */
  readonly start: Uint32Array;
  /** Bytes of the file name. */
  readonly length: Uint16Array;
  /** Bytes of the unique name, a prefix of the file name. */
  readonly idLength: Uint16Array;
  /** See `rowBits`. */
  readonly bits: Uint8Array;
  /** Offset of its record in the summary log; 0 for none. */
  readonly summary: Uint32Array;
  /** File names, in any order; some may be of removed messages. */
  readonly pool: NamePool;
}

export const rowBits = {
  /** In `cur`; else in `new`. */
  current: 1,
  seen: 2,
  flagged: 4,
  /** Its name lacks its time or its size, so the file was asked. True for all names of other programs. */
  silent: 8,
  /** In both directories: another program is moving it, or was stopped while moving it. */
  doubled: 16,
} as const;

export const bytesOfRow = 29;

/** Buffers of a reading or a merge are kept for the next one unless they are larger. */
export const maxSpareBytes = 8 * 1024 * 1024;

export function emptyRows(count: number, pool: NamePool): FolderRows {
  return {
    count,
    receivedAt: new Float64Array(count),
    size: new Float64Array(count),
    start: new Uint32Array(count),
    length: new Uint16Array(count),
    idLength: new Uint16Array(count),
    bits: new Uint8Array(count),
    summary: new Uint32Array(count),
    pool,
  };
}

export function bytesOfRows({ count, pool }: FolderRows): number {
  return count * bytesOfRow + pool.bytes.length;
}

export function hasBit(rows: FolderRows, row: number, bit: number): boolean {
  return ((rows.bits[row] ?? 0) & bit) !== 0;
}

export function nameAt(rows: FolderRows, row: number): string {
  const start = rows.start[row] ?? 0;
  return rows.pool.bytes.toString('utf8', start, start + (rows.length[row] ?? 0));
}

export function idAt(rows: FolderRows, row: number): string {
  const start = rows.start[row] ?? 0;
  return rows.pool.bytes.toString('utf8', start, start + (rows.idLength[row] ?? 0));
}

export function entryAt(rows: FolderRows, row: number): MessageEntry {
  const name = nameAt(rows, row);
  const { id, flags } = readMessageName(name);
  return {
    id,
    flags,
    file: `${hasBit(rows, row, rowBits.current) ? 'cur' : 'new'}/${name}`,
    size: rows.size[row] ?? 0,
    receivedAt: rows.receivedAt[row] ?? 0,
  };
}

/** Negative when row `i` of `a` precedes row `j` of `b`; 0 when they are the same message. */
export function compareRows(a: FolderRows, i: number, b: FolderRows, j: number): number {
  const difference = (b.receivedAt[j] ?? 0) - (a.receivedAt[i] ?? 0);
  if (difference !== 0) return difference;
  const [one, other] = [a.start[i] ?? 0, b.start[j] ?? 0];
  return b.pool.bytes.compare(a.pool.bytes, one, one + (a.idLength[i] ?? 0), other, other + (b.idLength[j] ?? 0));
}

/** Sort key of a message in a list; `id` in UTF-8. */
interface RowKey {
  readonly receivedAt: number;
  readonly id: Buffer;
}

/** Like `compareRows`. */
function compareRowTo(rows: FolderRows, row: number, { receivedAt, id }: RowKey): number {
  const difference = receivedAt - (rows.receivedAt[row] ?? 0);
  if (difference !== 0) return difference;
  const start = rows.start[row] ?? 0;
  return id.compare(rows.pool.bytes, start, start + (rows.idLength[row] ?? 0));
}

/** Rows of the messages with those unique names, in their order; -1 for a missing one. */
export function rowsOf(rows: FolderRows, ids: readonly string[]): readonly number[] {
  return ids.map((id) => rowOf(rows, id));
}

function rowOf(rows: FolderRows, id: string): number {
  const { receivedAt } = readMessageName(id);
  if (receivedAt === undefined) return silentRow(rows, id);
  const key = { receivedAt, id: Buffer.from(id, 'utf8') };
  const row = firstRow(rows.count, (row) => compareRowTo(rows, row, key) >= 0);
  return row < rows.count && compareRowTo(rows, row, key) === 0 ? row : -1;
}

/** Hash index of rows with silent names by id: open addressing, -1 for an empty slot. */
const silentRows = new WeakMap<FolderRows, Int32Array>();

/** The row of a silent name, which is sorted by the time of its file; -1 for none. */
export function silentRow(rows: FolderRows, id: string): number {
  const table = silentRows.get(rows) ?? hashed(rows);
  silentRows.set(rows, table);
  const bytes = Buffer.from(id, 'utf8');
  for (let slot = hashOf(bytes, 0, bytes.length); ; slot++) {
    const row = table[slot & (table.length - 1)] ?? -1;
    if (row < 0) return -1;
    const start = rows.start[row] ?? 0;
    if (bytes.compare(rows.pool.bytes, start, start + (rows.idLength[row] ?? 0)) === 0) return row;
  }
}

function hashed(rows: FolderRows): Int32Array {
  let count = 0;
  for (let row = 0; row < rows.count; row++) if (hasBit(rows, row, rowBits.silent)) count++;
  const table = new Int32Array(2 ** Math.ceil(Math.log2(2 * count + 2))).fill(-1);
  for (let row = 0; row < rows.count; row++) {
    if (!hasBit(rows, row, rowBits.silent)) continue;
    const start = rows.start[row] ?? 0;
    let slot = hashOf(rows.pool.bytes, start, start + (rows.idLength[row] ?? 0));
    while ((table[slot & (table.length - 1)] ?? -1) >= 0) slot++;
    table[slot & (table.length - 1)] = row;
  }
  return table;
}

/** FNV-1a, with the high bits mixed into the low ones. */
function hashOf(bytes: Buffer, start: number, end: number): number {
  let hash = 0x811c9dc5;
  for (let at = start; at < end; at++) hash = Math.imul(hash ^ (bytes[at] ?? 0), 0x01000193);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/** The first row for which `isBehind` is true, by bisection; `count` when there is none. */
export function firstRow(count: number, isBehind: (row: number) => boolean): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isBehind(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function copyRow(from: FolderRows, row: number, to: FolderRows, at: number): void {
  to.receivedAt[at] = from.receivedAt[row] ?? 0;
  to.size[at] = from.size[row] ?? 0;
  to.start[at] = from.start[row] ?? 0;
  to.length[at] = from.length[row] ?? 0;
  to.idLength[at] = from.idLength[row] ?? 0;
  to.bits[at] = from.bits[row] ?? 0;
  to.summary[at] = from.summary[row] ?? 0;
}

/** Copies rows `start` to `end`, end exclusive. */
export function copyRows(from: FolderRows, start: number, end: number, to: FolderRows, at: number): void {
  to.receivedAt.set(from.receivedAt.subarray(start, end), at);
  to.size.set(from.size.subarray(start, end), at);
  to.start.set(from.start.subarray(start, end), at);
  to.length.set(from.length.subarray(start, end), at);
  to.idLength.set(from.idLength.subarray(start, end), at);
  to.bits.set(from.bits.subarray(start, end), at);
  to.summary.set(from.summary.subarray(start, end), at);
}
