import type { QueuedEntry } from './queued-entry.js';

export type Key = number | string;

/** An entry and what it is sorted by, worked out once. */
export interface Row {
  readonly entry: QueuedEntry;
  readonly key: Key;
}

export type Compare = (one: Row, other: Row) => number;

/** Entries of which some ranks are wanted: never are all of them sorted, and only those that may be wanted are more than a number. */
export class Rows {
  readonly #entries: QueuedEntry[] = [];
  readonly #keys: Key[] = [];
  readonly #descends: boolean;

  constructor(descends: boolean) {
    this.#descends = descends;
  }

  get size(): number {
    return this.#entries.length;
  }

  add(entry: QueuedEntry, key: Key): void {
    this.#entries.push(entry);
    this.#keys.push(key);
  }

  /** The rows from rank `from` to below rank `to`, in no order. */
  between(from: number, to: number): Row[] {
    const end = Math.min(to, this.size);
    if (from >= end) return [];
    const { rows, before } = this.#candidates(from, end);
    const compare = this.#descends ? descending : ascending;
    part(rows, from - before, compare);
    const rest = rows.slice(from - before);
    part(rest, end - from, compare);
    return rest.slice(0, end - from);
  }

  /** Rows among which those ranks are, and how many are in front of all of them. */
  #candidates(from: number, end: number): { readonly rows: Row[]; readonly before: number } {
    const numbers = this.#numbers();
    if (numbers === undefined) return { rows: this.#entries.map((entry, at) => this.#row(entry, at)), before: 0 };
    const ranked = numbers.slice();
    const low = keyOfRank(ranked, from, 0);
    const high = keyOfRank(ranked, end - 1, from);
    const rows: Row[] = [];
    let before = 0;
    for (let at = 0; at < numbers.length; at += 1) {
      const key = numbers[at] ?? 0;
      const entry = this.#entries[at];
      if (key < low) before += 1;
      else if (key <= high && entry !== undefined) rows.push(this.#row(entry, at));
    }
    return { rows, before };
  }

  #row(entry: QueuedEntry, at: number): Row {
    return { entry, key: this.#keys[at] ?? 0 };
  }

  /** The keys, so that the first one wanted is the least; undefined when they are texts. */
  #numbers(): Float64Array | undefined {
    const numbers = new Float64Array(this.size);
    for (let at = 0; at < numbers.length; at += 1) {
      const key = this.#keys[at];
      if (typeof key !== 'number') return undefined;
      numbers[at] = this.#descends ? -key : key;
    }
    return numbers;
  }
}

/** The number of that rank: quickselect. Those below it are in front of it afterwards; `from` says from where on that holds already. */
function keyOfRank(numbers: Float64Array, rank: number, from: number): number {
  let low = from;
  let high = numbers.length - 1;
  while (low < high) {
    const pivot = numbers[(low + high) >> 1] ?? 0;
    let left = low;
    let right = high;
    while (left <= right) {
      while ((numbers[left] ?? 0) < pivot) left += 1;
      while ((numbers[right] ?? 0) > pivot) right -= 1;
      if (left > right) break;
      const other = numbers[left] ?? 0;
      numbers[left] = numbers[right] ?? 0;
      numbers[right] = other;
      left += 1;
      right -= 1;
    }
    if (rank <= right) high = right;
    else if (rank >= left) low = left;
    else break;
  }
  return numbers[rank] ?? 0;
}

/** Brings the `count` first rows to the front, in no order: quickselect. */
function part(rows: Row[], count: number, compare: Compare): void {
  let from = 0;
  let to = rows.length - 1;
  while (from < to && count > from && count <= to) {
    const pivot = rows[(from + to) >> 1];
    if (pivot === undefined) return;
    let left = from;
    let right = to;
    while (left <= right) {
      while (compareAt(rows, left, pivot, compare) < 0) left += 1;
      while (compareAt(rows, right, pivot, compare) > 0) right -= 1;
      if (left > right) break;
      swap(rows, left, right);
      left += 1;
      right -= 1;
    }
    if (count <= right) to = right;
    else if (count > left) from = left;
    else return;
  }
}

function compareAt(rows: readonly Row[], at: number, pivot: Row, compare: Compare): number {
  const row = rows[at];
  return row === undefined ? 0 : compare(row, pivot);
}

function swap(rows: Row[], one: number, other: number): void {
  const [a, b] = [rows[one], rows[other]];
  if (a === undefined || b === undefined) return;
  rows[one] = b;
  rows[other] = a;
}

export const ascending: Compare = (one, other) =>
  compareKeys(one.key, other.key) || compareKeys(one.entry.uid, other.entry.uid);
export const descending: Compare = (one, other) => ascending(other, one);

export function compareKeys(one: Key, other: Key): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
