import {
  bytesOfRow,
  compareRows,
  copyRow,
  copyRows,
  emptyRows,
  firstRow,
  type FolderRows,
  hasBit,
  maxSpareBytes,
  NamePool,
  rowBits,
} from './folder-rows.js';

export const noRows: FolderRows = emptyRows(0, new NamePool(Buffer.alloc(0)));

/** Names of removed messages are dropped when they take more space than the others. */
const wasteAllowed = 64 * 1024;
/** With fewer changes than one in this many rows, unchanged ranges are copied in one piece. */
const fewIn = 8;

/** The directories that were read again. */
export interface Reread {
  readonly new: boolean;
  readonly cur: boolean;
}

/** For a message that was in both directories, both must be read to know where it is. */
export function widened(known: FolderRows, reread: Reread): Reread {
  if (reread.new === reread.cur) return reread;
  for (let row = 0; row < known.count; row++) {
    if (hasBit(known, row, rowBits.doubled)) return { new: true, cur: true };
  }
  return reread;
}

/**
 * The new rows of a folder, from its old rows and what was read. A message that is found under another file name (a
 * flag, or from `new` to `cur`) keeps its summary; one that is missing from a directory that was read is removed.
 */
export function mergeRows(known: FolderRows, fresh: FolderRows, reread: Reread): FolderRows {
  const merging = new Merging(known, fresh, reread);
  const dropped = merging.dropped();
  const isSparse = (dropped.length + fresh.count) * fewIn < known.count;
  return tidied(isSparse ? merging.sparse(dropped) : merging.dense());
}

/** Rows and names of one merge, which the next one overwrites: a busy folder is merged many times a second. */
let scratch = { rows: noRows, names: Buffer.alloc(0) };

function scratchFor(rows: number, nameBytes: number): typeof scratch {
  const { rows: columns, names } = scratch;
  const next = {
    rows: columns.count < rows ? emptyRows(withHeadroom(rows), noRows.pool) : columns,
    names: names.length < nameBytes ? Buffer.allocUnsafeSlow(withHeadroom(nameBytes)) : names,
  };
  if (next.rows.count * bytesOfRow + next.names.length <= maxSpareBytes) scratch = next;
  return next;
}

/** Usually, the next merge needs a little more. */
const withHeadroom = (needed: number): number => Math.ceil(needed * 1.25);

class Merging {
  readonly #known: FolderRows;
  readonly #fresh: FolderRows;
  readonly #reread: Reread;
  readonly #merged: FolderRows;
  #count = 0;
  /** File names that are not in the pool yet. */
  readonly #names: Buffer;
  #used = 0;

  constructor(known: FolderRows, fresh: FolderRows, reread: Reread) {
    this.#known = known;
    this.#fresh = fresh;
    this.#reread = reread;
    const { rows, names } = scratchFor(known.count + fresh.count, fresh.pool.used);
    this.#merged = rows;
    this.#names = names;
  }

  /** Known rows of directories that were read: kept only if they were found again. */
  dropped(): Uint32Array {
    const [known, reread] = [this.#known, this.#reread];
    const rows = new Uint32Array(known.count);
    let count = 0;
    for (let row = 0; row < rows.length; row++) {
      if (hasBit(known, row, rowBits.current) ? reread.cur : reread.new) rows[count++] = row;
    }
    return rows.subarray(0, count);
  }

  dense(): FolderRows {
    const [known, fresh] = [this.#known, this.#fresh];
    let [i, j] = [0, 0];
    while (i < known.count || j < fresh.count) {
      const order = j >= fresh.count ? -1 : i >= known.count ? 1 : compareRows(known, i, fresh, j);
      if (order > 0) this.#takeFresh(j++, -1);
      else if (order === 0) this.#takeFresh(j++, i++);
      else if (this.#isKept(i)) copyRow(known, i++, this.#merged, this.#count++);
      else i++;
    }
    return this.#finish();
  }

  /** @param dropped sorted */
  sparse(dropped: Uint32Array): FolderRows {
    const [known, fresh] = [this.#known, this.#fresh];
    let [row, drop] = [0, 0];
    const copyTo = (end: number): void => {
      for (let next = dropped[drop] ?? end; row < end; next = dropped[++drop] ?? end) {
        const stop = Math.min(next, end);
        copyRows(known, row, stop, this.#merged, this.#count);
        this.#count += stop - row;
        row = stop;
        if (next >= end) return;
        row++;
      }
    };
    for (let j = 0; j < fresh.count; j++) {
      const place = firstRow(known.count, (row) => compareRows(known, row, fresh, j) >= 0);
      copyTo(place);
      const isKnown = place < known.count && compareRows(known, place, fresh, j) === 0;
      this.#takeFresh(j, isKnown ? place : -1);
      if (isKnown) row = place + 1;
      if (dropped[drop] === place && isKnown) drop++;
    }
    copyTo(known.count);
    return this.#finish();
  }

  /** @param before its known row; -1 for none */
  #takeFresh(row: number, before: number): void {
    const [known, fresh, merged, at] = [this.#known, this.#fresh, this.#merged, this.#count++];
    const isDoubled = before >= 0 && this.#isKept(before);
    if (isDoubled && hasBit(known, before, rowBits.current)) copyRow(known, before, merged, at);
    else {
      copyRow(fresh, row, merged, at);
      const isKnownName = before >= 0 && haveSameName(known, before, fresh, row);
      merged.start[at] = isKnownName ? (known.start[before] ?? 0) : this.#addName(row);
    }
    merged.summary[at] = before >= 0 ? (known.summary[before] ?? 0) : 0;
    if (isDoubled) merged.bits[at] = (merged.bits[at] ?? 0) | rowBits.doubled;
  }

  /** Returns the offset of the name in the pool of the merged rows. */
  #addName(row: number): number {
    const { pool, start, length } = this.#fresh;
    const from = start[row] ?? 0;
    const at = this.#known.pool.used + this.#used;
    this.#used += pool.bytes.copy(this.#names, this.#used, from, from + (length[row] ?? 0));
    return at;
  }

  #finish(): FolderRows {
    const { receivedAt, size, start, length, idLength, bits, summary } = this.#merged;
    const count = this.#count;
    return {
      count,
      receivedAt: receivedAt.slice(0, count),
      size: size.slice(0, count),
      start: start.slice(0, count),
      length: length.slice(0, count),
      idLength: idLength.slice(0, count),
      bits: bits.slice(0, count),
      summary: summary.slice(0, count),
      pool: this.#known.pool.with(this.#names.subarray(0, this.#used)),
    };
  }

  #isKept(row: number): boolean {
    return hasBit(this.#known, row, rowBits.current) ? !this.#reread.cur : !this.#reread.new;
  }
}

/** Compares two rows of one message, whose names differ at most in the flags. */
function haveSameName(a: FolderRows, i: number, b: FolderRows, j: number): boolean {
  const [length, idLength] = [a.length[i] ?? 0, a.idLength[i] ?? 0];
  if (length !== b.length[j]) return false;
  const [one, other] = [a.start[i] ?? 0, b.start[j] ?? 0];
  return b.pool.bytes.compare(a.pool.bytes, one + idLength, one + length, other + idLength, other + length) === 0;
}

/** Drops the names of removed messages when there are many. */
function tidied(rows: FolderRows): FolderRows {
  let used = 0;
  for (let row = 0; row < rows.count; row++) used += rows.length[row] ?? 0;
  if (rows.pool.used <= 2 * used + wasteAllowed) return rows;
  const names = Buffer.allocUnsafeSlow(used);
  const start = new Uint32Array(rows.count);
  let end = 0;
  for (let row = 0; row < rows.count; row++) {
    const from = rows.start[row] ?? 0;
    start[row] = end;
    end += rows.pool.bytes.copy(names, end, from, from + (rows.length[row] ?? 0));
  }
  return { ...rows, start, pool: new NamePool(names) };
}

/** True when both reads found the same file names in the same order. */
export function isSame(a: FolderRows, b: FolderRows): boolean {
  const alike = (one: Uint8Array | Uint32Array | Uint16Array, other: typeof one): boolean =>
    bytesOf(one).equals(bytesOf(other));
  return a.count === b.count && a.pool.names.equals(b.pool.names) && alike(a.start, b.start) && alike(a.bits, b.bits);
}

function bytesOf({ buffer, byteOffset, byteLength }: Uint8Array | Uint32Array | Uint16Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}
