import { problem } from '../../../core/problem.js';
import type { OrderKey } from './message-entry.js';

/** One page of a list. */
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
 * @throws Problem `bad-request` for an invalid cursor
 */
export function pageOf<T extends OrderKey>(
  list: readonly T[],
  request: PageRequest,
  compare: (a: OrderKey, b: OrderKey) => number,
): Page<T> {
  const keyAt = (index: number): OrderKey => list[index] ?? nothing;
  const { start, end, ...page } = cutOut({ length: list.length, keyAt, compare }, request);
  return { ...page, items: list.slice(start, end), total: list.length, limit: request.limit };
}

const nothing: OrderKey = { receivedAt: 0, id: '' };

/** A sorted list that is not in memory. */
interface SortedList {
  readonly length: number;
  readonly keyAt: (index: number) => OrderKey;
  readonly compare: (a: OrderKey, b: OrderKey) => number;
}

interface Cut extends Pick<Page<unknown>, 'nextCursor' | 'prevCursor'> {
  readonly start: number;
  readonly end: number;
}

/** Start and end of a page. @throws Problem `bad-request` for an invalid cursor */
export function cutOut(list: SortedList, request: PageRequest): Cut {
  const cursor = request.cursor === undefined ? undefined : readCursor(request.cursor);
  const place = cursor === undefined ? 0 : placeOf(list, cursor);
  // When everything before the cursor is gone, the result is the first page, not an empty one.
  const backwards = cursor?.side === 'before' && place > 0;
  const start = backwards ? Math.max(0, place - request.limit) : cursor?.side === 'before' ? 0 : place;
  const end = Math.min(list.length, backwards ? place : start + request.limit);
  return {
    start,
    end,
    nextCursor: end <= start || end >= list.length ? null : cursorAt('after', list.keyAt(end - 1)),
    prevCursor: end <= start || start === 0 ? null : cursorAt('before', list.keyAt(start)),
  };
}

export function cursorAt(side: Cursor['side'], key: OrderKey): string {
  return writeCursor({ side, receivedAt: key.receivedAt, id: key.id });
}

/** Index of the first element after the cursor, by bisection. */
function placeOf({ length, keyAt, compare }: SortedList, cursor: Cursor): number {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const order = compare(keyAt(middle), cursor);
    if (order < 0 || (order === 0 && cursor.side === 'after')) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A position between two messages of a list: after or before the message of that key. */
interface Cursor extends OrderKey {
  readonly side: 'after' | 'before';
}

/** It names a message, not an index: arrivals and removals do not shift it. The message itself may be gone. */
function writeCursor(cursor: Cursor): string {
  const text = `${cursor.side === 'after' ? 'a' : 'b'}${cursor.receivedAt}/${cursor.id}`;
  return Buffer.from(text, 'utf8').toString('base64url');
}

const written = /^([ab])(\d{1,14}(?:\.\d{1,12})?)\/(.{1,255})$/s;

/** @throws Problem `bad-request` */
export function readCursor(text: string): Cursor {
  const match = text.length > 500 ? null : written.exec(Buffer.from(text, 'base64url').toString('utf8'));
  if (match === null) throw problem('bad-request', { detail: 'That is no cursor of this list.' });
  const [, side, receivedAt, id = ''] = match;
  return { side: side === 'a' ? 'after' : 'before', receivedAt: Number(receivedAt), id };
}
