import { problem } from '../../../core/problem.js';
import type { EntrySummary, QueuedRecipient } from '../../../core/contracts/queue-entry.js';
import type { EntryPage, EntrySort, ListOptions } from '../../../core/contracts/queue-list.js';
import { z } from 'zod';
import { isWaiting, type QueuedEntry } from './queued-entry.js';
import { ascending, type Compare, compareKeys, descending, type Key, type Row, Rows } from './row-selection.js';

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

interface DecodedCursor {
  readonly key: Key;
  readonly uid: string;
  readonly side: 'next' | 'prev';
}

/** So many times the page are gathered before what is too much is parted off. */
const surplus = 4;
const fewest = 2000;

/** One page of the entries that match, which come in any order: only as much is sorted as is shown. */
export class PageSelection {
  readonly #options: Required<Pick<ListOptions, 'sort' | 'order' | 'limit'>>;
  readonly #cursor: DecodedCursor | undefined;
  readonly #skipped: number;
  readonly #descends: boolean;
  readonly #compare: Compare;
  readonly #keyOf: (entry: QueuedEntry) => Key;
  #rows: Rows;
  /** No row behind it is on the page. */
  #last: Row | undefined;
  #total = 0;
  /** On the side of the cursor where the page is. */
  #beside = 0;

  /** @throws Problem `bad-request` for a foreign cursor */
  constructor({ sort = 'queuedAt', order = 'desc', limit, cursor, page = 1 }: ListOptions) {
    this.#options = { sort, order, limit };
    this.#cursor = cursor === undefined ? undefined : decodeCursor(cursor, sort, order);
    this.#skipped = cursor === undefined ? (page - 1) * limit : 0;
    const backwards = this.#cursor?.side === 'prev';
    this.#descends = (order === 'desc') !== backwards;
    this.#compare = this.#descends ? descending : ascending;
    this.#keyOf = keys[sort];
    this.#rows = new Rows(this.#descends);
  }

  add(entry: QueuedEntry): void {
    this.#total += 1;
    const key = this.#keyOf(entry);
    if (this.#cursor !== undefined && !this.#isBeside(entry, key, this.#cursor)) return;
    this.#beside += 1;
    if (this.#last !== undefined && this.#isBehind(entry, key, this.#last)) return;
    this.#rows.add(entry, key);
    const wanted = this.#skipped + this.#options.limit;
    if (this.#rows.size < fewest || this.#rows.size < surplus * wanted) return;
    const kept = this.#rows.between(0, wanted);
    this.#rows = new Rows(this.#descends);
    for (const row of kept) this.#rows.add(row.entry, row.key);
    this.#last = kept.reduce((last, other) => (this.#compare(other, last) > 0 ? other : last));
  }

  #isBeside(entry: QueuedEntry, key: Key, cursor: DecodedCursor): boolean {
    const compared = compareKeys(key, cursor.key) || compareKeys(entry.uid, cursor.uid);
    return (this.#options.order === 'asc' ? compared : -compared) * (cursor.side === 'next' ? 1 : -1) > 0;
  }

  #isBehind({ uid }: QueuedEntry, key: Key, { entry: last, key: lastKey }: Row): boolean {
    const compared = compareKeys(key, lastKey) || compareKeys(uid, last.uid);
    return this.#descends ? compared < 0 : compared > 0;
  }

  result(): EntryPage {
    const { sort, order, limit } = this.#options;
    const side = this.#cursor?.side ?? 'next';
    const shown = this.#rows.between(this.#skipped, this.#skipped + limit).sort(this.#compare);
    const further = this.#beside > this.#skipped + limit;
    const before = this.#cursor === undefined ? this.#skipped > 0 : this.#total > this.#beside;
    if (side === 'prev') shown.reverse();
    const cursorAt = (row: Row | undefined, to: 'next' | 'prev', exists: boolean): string | null =>
      row === undefined || !exists ? null : encodeCursor([sort, order, row.key, row.entry.uid, to]);
    return {
      items: shown.map(({ entry }) => summaryOf(entry)),
      total: this.#total,
      nextCursor: cursorAt(shown.at(-1), 'next', side === 'next' ? further : before),
      prevCursor: cursorAt(shown[0], 'prev', side === 'next' ? before : further),
    };
  }
}

function encodeCursor(cursor: z.output<typeof Cursor>): string {
  return Buffer.from(JSON.stringify(cursor)).toString('base64url');
}

function decodeCursor(text: string, sort: EntrySort, order: string): DecodedCursor {
  try {
    const [ofSort, ofOrder, key, uid, side] = Cursor.parse(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
    const fits = ofSort === sort && ofOrder === order && typeof key === (sort === 'sender' ? 'string' : 'number');
    if (fits) return { key, uid, side };
  } catch {
    // Falls through: whatever is wrong with it, it is none of ours.
  }
  throw problem('bad-request', 'The cursor does not belong to this list.');
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
