import { endianness } from 'node:os';
import { NameScan } from '../maildir/message-name.js';
import {
  bytesOfRows,
  compareRows,
  copyRow,
  emptyRows,
  type FolderRows,
  maxSpareBytes,
  NamePool,
  rowBits,
} from './folder-rows.js';

const digits = 0x10000;
/** Fewer rows are sorted by comparison. */
const worthIt = 4000;
const [low, high] = endianness() === 'LE' ? [0, 1] : [1, 0];

/**
 * The sort order, newest first; of rows of one message the later one comes first. Radix sort by received times:
 * positive numbers are ordered like their bits.
 */
function newestFirst(rows: FolderRows, count: number): Uint32Array {
  const order = new Uint32Array(count);
  for (let at = 0; at < count; at++) order[at] = count - 1 - at;
  if (count < worthIt) return order.sort((i, j) => compareRows(rows, i, rows, j) || j - i);
  const words = new Uint32Array(rows.receivedAt.buffer, rows.receivedAt.byteOffset, count * 2);
  let sorted: Uint32Array = order;
  let spare: Uint32Array = new Uint32Array(count);
  for (const [word, shift] of [
    [low, 0],
    [low, 16],
    [high, 0],
    [high, 16],
  ] as const) {
    const next = sortedByDigit(words, word, shift, sorted, spare);
    if (next !== sorted) [sorted, spare] = [next, sorted];
  }
  return tiesSorted(rows, sorted);
}

const places = new Uint32Array(digits + 1);

function sortedByDigit(
  words: Uint32Array,
  word: number,
  shift: number,
  order: Uint32Array,
  into: Uint32Array,
): Uint32Array {
  places.fill(0);
  const digitOf = (row: number): number => digits - 1 - (((words[2 * row + word] ?? 0) >>> shift) & (digits - 1));
  // An index loop: for-of is ten times slower.
  for (let at = 0; at < order.length; at++) {
    const digit = digitOf(order[at] ?? 0);
    places[digit + 1] = (places[digit + 1] ?? 0) + 1;
  }
  // Skips digits that all rows share, as times close to each other do.
  if (places[digitOf(order[0] ?? 0) + 1] === order.length) return order;
  for (let digit = 1; digit <= digits; digit++) places[digit] = (places[digit] ?? 0) + (places[digit - 1] ?? 0);
  for (let at = 0; at < order.length; at++) {
    const row = order[at] ?? 0;
    const digit = digitOf(row);
    const place = places[digit] ?? 0;
    into[place] = row;
    places[digit] = place + 1;
  }
  return into;
}

/** Sorts messages with the same time by name. */
function tiesSorted(rows: FolderRows, order: Uint32Array): Uint32Array {
  const { receivedAt } = rows;
  for (let start = 0; start < order.length;) {
    let end = start + 1;
    while (end < order.length && receivedAt[order[end] ?? 0] === receivedAt[order[start] ?? 0]) end++;
    if (end - start > 1) order.subarray(start, end).sort((i, j) => compareRows(rows, i, rows, j) || j - i);
    start = end;
  }
  return order;
}

/** Time and size of a file whose name is silent. */
export interface FileFacts {
  /** Milliseconds since 1970. */
  readonly receivedAt: number;
  /** Bytes. */
  readonly size: number;
}

const fewest = 1000;
const most = 200_000;
const averageNameBytes = 96;
const capitalF = 70;
const capitalS = 83;

/** Buffers of builders that were released. */
const spares: FolderRows[] = [];
const maxSpares = 2;

/** Collects the names of a folder and sorts them. */
export class RowBuilder {
  readonly #ask: (name: string) => FileFacts | undefined;
  readonly #scan = new NameScan();
  #rows: FolderRows;
  #count = 0;
  #used = 0;

  /**
   * @param ask returns the facts of a file; undefined when it is gone
   * @param expected number of messages to reserve space for
   */
  constructor(ask: (name: string) => FileFacts | undefined, expected = 0) {
    this.#ask = ask;
    const count = Math.max(fewest, Math.min(expected, most));
    this.#rows = spares.pop() ?? emptyRows(count, roomFor(count * averageNameBytes));
  }

  /** Returns its buffers to the next builder: rows that it has finished must no longer be used. */
  release(): void {
    if (spares.length < maxSpares && bytesOfRows(this.#rows) <= maxSpareBytes) spares.push(this.#rows);
  }

  /** @param current in `cur`, else in `new` */
  add(names: readonly string[], current: boolean): void {
    const text = names.join('');
    const bytes = Buffer.byteLength(text);
    this.#makeRoom(names.length, bytes);
    this.#rows.pool.bytes.write(text, this.#used);
    // True for nearly all names: one byte per character.
    const isPlain = bytes === text.length;
    const place = current ? rowBits.current : 0;
    const [rows, scan] = [this.#rows, this.#scan];
    let row = this.#count;
    for (const name of names) {
      const length = isPlain ? name.length : Buffer.byteLength(name);
      const start = this.#used;
      this.#used += length;
      scan.read(name);
      const bits = place | flagBits(name, scan.flagsAt);
      if (!this.#note(rows, row, name, bits)) continue;
      rows.start[row] = start;
      rows.length[row] = length;
      rows.idLength[row] = isPlain ? scan.idLength : Buffer.byteLength(name.slice(0, scan.idLength));
      row++;
    }
    this.#count = row;
  }

  /** Sets time, size and bits of the scanned name; false when its file was asked and is gone. */
  #note(rows: FolderRows, row: number, name: string, bits: number): boolean {
    const { receivedAt, size } = this.#scan;
    const isSilent = Number.isNaN(size) || Number.isNaN(receivedAt);
    const facts = isSilent ? this.#ask(name) : undefined;
    if (isSilent && facts === undefined) return false;
    rows.receivedAt[row] = Number.isNaN(receivedAt) ? (facts?.receivedAt ?? 0) : receivedAt;
    rows.size[row] = Number.isNaN(size) ? (facts?.size ?? 0) : size;
    rows.bits[row] = isSilent ? bits | rowBits.silent : bits;
    return true;
  }

  /** Sorted. Of messages that were added twice the last one counts. */
  finish(): FolderRows {
    const gathered = this.#rows;
    const order = newestFirst(gathered, this.#count);
    const kept = order.filter((row, at) => at === 0 || compareRows(gathered, order[at - 1] ?? 0, gathered, row) !== 0);
    const sorted = emptyRows(kept.length, new NamePool(gathered.pool.bytes, this.#used));
    for (let at = 0; at < kept.length; at++) copyRow(gathered, kept[at] ?? 0, sorted, at);
    return kept.length === order.length ? sorted : withDoubles(sorted, gathered, order);
  }

  #makeRoom(count: number, bytes: number): void {
    const room = this.#rows.pool.bytes;
    if (this.#used + bytes > room.length) {
      const pool = roomFor(Math.max(this.#used + bytes, room.length * 2));
      room.copy(pool.bytes, 0, 0, this.#used);
      this.#rows = { ...this.#rows, pool };
    }
    if (this.#count + count > this.#rows.count) this.#rows = doubled(this.#rows, this.#count + count);
  }
}

/** Marks those that were added twice. */
function withDoubles(sorted: FolderRows, gathered: FolderRows, order: Uint32Array): FolderRows {
  let at = -1;
  for (const [index, row] of order.entries()) {
    const isNext = index === 0 || compareRows(gathered, order[index - 1] ?? 0, gathered, row) !== 0;
    if (isNext) at++;
    else sorted.bits[at] = (sorted.bits[at] ?? 0) | rowBits.doubled;
  }
  return sorted;
}

function roomFor(bytes: number): NamePool {
  return new NamePool(Buffer.allocUnsafeSlow(bytes));
}

function flagBits(name: string, flagsAt: number): number {
  let bits = 0;
  for (let at = flagsAt; at >= 0 && at < name.length; at++) {
    const letter = name.charCodeAt(at);
    if (letter === capitalS) bits |= rowBits.seen;
    else if (letter === capitalF) bits |= rowBits.flagged;
  }
  return bits;
}

function doubled(rows: FolderRows, needed: number): FolderRows {
  const larger = emptyRows(Math.max(rows.count * 2, needed), rows.pool);
  larger.receivedAt.set(rows.receivedAt);
  larger.size.set(rows.size);
  larger.start.set(rows.start);
  larger.length.set(rows.length);
  larger.idLength.set(rows.idLength);
  larger.bits.set(rows.bits);
  return larger;
}
