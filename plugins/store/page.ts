import { type Cursor, readCursor, writeCursor } from './cursor.js';
import type { OrderKey } from './folder-contents.js';

/** One page of a list, as every list of the interface shows it. */
export interface Page<T> {
  readonly items: readonly T[];
  /** After filters. */
  readonly total: number;
  readonly limit: number;
  readonly nextCursor: string | null;
  readonly prevCursor: string | null;
}

export interface PageRequest {
  readonly limit: number;
  readonly cursor?: string | undefined;
}

/**
 * Cuts a page out of a sorted list.
 * @param compare the order of `list`
 * @throws Problem `bad-request` for a cursor that is none
 */
export function pageOf<T extends OrderKey>(
  list: readonly T[],
  request: PageRequest,
  compare: (a: OrderKey, b: OrderKey) => number,
): Page<T> {
  const cursor = request.cursor === undefined ? undefined : readCursor(request.cursor);
  const place = cursor === undefined ? 0 : placeOf(list, cursor, compare);
  // What was in front of the cursor may be gone: then the first page is the answer, not an empty one.
  const backwards = cursor?.side === 'before' && place > 0;
  const start = backwards ? Math.max(0, place - request.limit) : cursor?.side === 'before' ? 0 : place;
  const end = backwards ? place : start + request.limit;
  const items = list.slice(start, end);
  const first = items[0];
  const last = items.at(-1);
  return {
    items,
    total: list.length,
    limit: request.limit,
    nextCursor: last === undefined || end >= list.length ? null : cursorAt('after', last),
    prevCursor: first === undefined || start === 0 ? null : cursorAt('before', first),
  };
}

function cursorAt(side: Cursor['side'], key: OrderKey): string {
  return writeCursor({ side, receivedAt: key.receivedAt, id: key.id });
}

/** Index of the first element behind the cursor's side of its message, by bisection. */
function placeOf(list: readonly OrderKey[], cursor: Cursor, compare: (a: OrderKey, b: OrderKey) => number): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const key = list[middle];
    const order = key === undefined ? 1 : compare(key, cursor);
    if (order < 0 || (order === 0 && cursor.side === 'after')) low = middle + 1;
    else high = middle;
  }
  return low;
}
