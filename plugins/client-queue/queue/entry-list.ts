import { problem } from '../../../core/problem.js';
import type { EntrySummary, QueuedRecipient } from '../../../core/contracts/queue-entry.js';
import type { EntryPage, EntrySort, ListOptions } from '../../../core/contracts/queue-list.js';
import { z } from 'zod';
import { isWaiting, type QueuedEntry } from './queued-entry.js';

type Key = number | string;

/** A cursor: the entry that a page ends or begins with, and on which side of it the page is. */
const Cursor = z.tuple([
  z.string(),
  z.string(),
  z.union([z.number(), z.string()]),
  z.string(),
  z.enum(['next', 'prev']),
]);

/** What has no such time stands at the end. */
const never = Number.MAX_SAFE_INTEGER;

const keys: Readonly<Record<EntrySort, (entry: QueuedEntry) => Key>> = {
  queuedAt: ({ queuedAt }) => queuedAt,
  nextAttempt: ({ nextAttempt }) => nextAttempt ?? never,
  lastAttempt: ({ lastAttempt }) => lastAttempt ?? never,
  expiresAt: ({ expiresAt }) => expiresAt,
  size: ({ size }) => size,
  attempts: ({ attempts }) => attempts,
  sender: ({ sender }) => sender?.toLowerCase() ?? '',
};

interface Place {
  readonly key: Key;
  readonly uid: string;
}

interface Row extends Place {
  readonly entry: QueuedEntry;
}

type Compare = (one: Place, other: Place) => number;

/** One page of the entries that match: only as much is sorted as is shown. @throws Problem `invalid` for a foreign cursor */
export function pageOf(matching: readonly QueuedEntry[], options: ListOptions): EntryPage {
  const { sort = 'queuedAt', order = 'desc', limit, cursor, page = 1 } = options;
  const compare = order === 'asc' ? ascending : descending;
  const keyOf = keys[sort];
  const rows = matching.map((entry): Row => ({ entry, key: keyOf(entry), uid: entry.uid }));
  const shown =
    cursor === undefined
      ? between(rows, (page - 1) * limit, limit, compare)
      : beside(rows, decodeCursor(cursor, sort, order), limit, compare);
  const [first, last] = [shown[0], shown.at(-1)];
  const sideOf = (place: Place, side: 'next' | 'prev'): string | null => {
    const there = rows.some((row) => (side === 'next' ? compare(row, place) > 0 : compare(row, place) < 0));
    return there ? encodeCursor(sort, order, place, side) : null;
  };
  return {
    items: shown.map(({ entry }) => summaryOf(entry)),
    total: rows.length,
    nextCursor: last === undefined ? null : sideOf(last, 'next'),
    prevCursor: first === undefined ? null : sideOf(first, 'prev'),
  };
}

function beside(
  rows: readonly Row[],
  cursor: Place & { readonly side: 'next' | 'prev' },
  limit: number,
  compare: Compare,
) {
  if (cursor.side === 'next') {
    return between(
      rows.filter((row) => compare(row, cursor) > 0),
      0,
      limit,
      compare,
    );
  }
  const before = rows.filter((row) => compare(row, cursor) < 0);
  return between(before, 0, limit, (one, other) => compare(other, one)).toReversed();
}

/** The rows from `start` on in order. What lies outside of them is parted off, not sorted. */
function between(rows: readonly Row[], start: number, limit: number, compare: Compare): Row[] {
  const parted = [...rows];
  part(parted, start, compare);
  const rest = parted.slice(start);
  part(rest, limit, compare);
  return rest.slice(0, limit).sort(compare);
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

const ascending: Compare = (one, other) => compareKeys(one.key, other.key) || compareKeys(one.uid, other.uid);
const descending: Compare = (one, other) => ascending(other, one);

function compareKeys(one: Key, other: Key): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}

function encodeCursor(sort: EntrySort, order: string, { key, uid }: Place, side: 'next' | 'prev'): string {
  return Buffer.from(JSON.stringify([sort, order, key, uid, side])).toString('base64url');
}

function decodeCursor(text: string, sort: EntrySort, order: string): Place & { readonly side: 'next' | 'prev' } {
  try {
    const [ofSort, ofOrder, key, uid, side] = Cursor.parse(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
    const fits = ofSort === sort && ofOrder === order && typeof key === (sort === 'sender' ? 'string' : 'number');
    if (fits) return { key, uid, side };
  } catch {
    // Falls through: whatever is wrong with it, it is none of ours.
  }
  throw problem('invalid', 'The cursor does not belong to this list.');
}

/** An entry as lists show it. */
export function summaryOf(entry: QueuedEntry): EntrySummary {
  const { accepted } = entry;
  return {
    uid: entry.uid,
    state: entry.state,
    sender: entry.sender,
    recipients: accepted.recipients.flatMap((accept, index): QueuedRecipient[] => {
      const { lastReply: _lastReply, ...given } = accept;
      const recipient = entry.recipients[index];
      if (recipient === undefined) return [];
      const { state, attempts, reply, due } = recipient;
      return [{ ...given, state, attempts, lastReply: reply, nextAttempt: isWaiting(recipient) ? due : null }];
    }),
    route: accepted.route,
    protocol: accepted.protocol,
    size: entry.size,
    subject: accepted.subject,
    internetMessageId: accepted.internetMessageId,
    queuedAt: entry.queuedAt,
    lastAttempt: entry.lastAttempt,
    nextAttempt: entry.nextAttempt,
    expiresAt: entry.expiresAt,
    attempts: entry.attempts,
    lastReply: entry.lastReply,
    hold: entry.hold,
  };
}
