import { NameScan } from '../maildir/message-name.js';
import {
  bytesOfRows,
  compareRows,
  copyRow,
  emptyRows,
  type FolderRows,
  maxSpareBytes,
  rowBits,
} from './folder-rows.js';
import { NamePool } from './name-pool.js';
import { newestFirst } from './row-order.js';

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
