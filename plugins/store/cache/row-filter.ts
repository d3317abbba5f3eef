import { type FolderRows, rowBits } from './folder-rows.js';

/** Criteria that file names can answer. */
export interface RowFilter {
  readonly unread?: boolean | undefined;
  readonly flagged?: boolean | undefined;
  /** Received at or after / before, in milliseconds since 1970. */
  readonly since?: number | undefined;
  readonly before?: number | undefined;
}

/** Matching rows, newest first. */
export function filterRows(rows: FolderRows, filter: RowFilter): Uint32Array {
  const { unread, flagged, since = -Infinity, before = Infinity } = filter;
  const seen = wanted(unread === undefined ? undefined : !unread, rowBits.seen);
  const marked = wanted(flagged, rowBits.flagged);
  const [mask, bits] = [seen.mask | marked.mask, seen.bits | marked.bits];
  const fitting = new Uint32Array(rows.count);
  if (mask === 0 && since === -Infinity && before === Infinity) return allRows(fitting);
  let count = 0;
  for (let row = 0; row < rows.count; row++) {
    const time = rows.receivedAt[row] ?? 0;
    if (((rows.bits[row] ?? 0) & mask) === bits && time >= since && time < before) fitting[count++] = row;
  }
  return fitting.subarray(0, count);
}

function allRows(rows: Uint32Array): Uint32Array {
  for (let row = 0; row < rows.length; row++) rows[row] = row;
  return rows;
}

function wanted(value: boolean | undefined, bit: number): { readonly mask: number; readonly bits: number } {
  return { mask: value === undefined ? 0 : bit, bits: value === true ? bit : 0 };
}

/** The words of a search, all of which must match. */
export function searchWords(q: string | undefined): readonly string[] {
  const words = (q ?? '').normalize('NFC').toLowerCase().split(/\s+/);
  return [...new Set(words.filter((word) => word !== ''))];
}
