import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { TimeSlice } from '../../../core/concurrency.js';
import {
  type Entry,
  type EntryState,
  type EntrySummary,
  openStates,
  type QueuedRecipient,
  type RecordedReply,
} from '../../../core/contracts/queue-entry.js';
import type {
  EntryFilter,
  EntryPage,
  EntrySort,
  ListOptions,
  QueueStatistics,
} from '../../../core/contracts/relay-queue.js';
import { problem } from '../../../core/problem.js';
import { headerTexts, StoredAttempt } from './envelope.js';
import type { Ledger } from './ledger.js';
import { isOpen, isWaiting, type QueuedEntry, type RecipientTest, versionOf } from './queued-entry.js';
import { attemptsOf, type Snapshots } from './snapshots.js';
import { Tally } from './statistics.js';

/** A cursor: the entry at which a page ends or begins, and on which side of it the page lies. */
const Cursor = z.tuple([
  z.string(),
  z.string(),
  z.union([z.number(), z.string()]),
  z.string(),
  z.enum(['next', 'prev']),
]);

/** Entries without such a time sort last. */
export const never = Number.MAX_SAFE_INTEGER;

const keys: Readonly<Record<EntrySort, (entry: QueuedEntry) => Key>> = {
  queuedAt: ({ queuedAt }) => queuedAt,
  nextAttempt: ({ nextAttempt }) => nextAttempt ?? never,
  lastAttempt: ({ lastAttempt }) => lastAttempt ?? never,
  expiresAt: ({ expiresAt }) => expiresAt,
  size: ({ size }) => size,
  attempts: ({ attempts }) => attempts,
  sender: ({ sender }) => sender?.toLowerCase() ?? '',
};

export interface DecodedCursor {
  readonly key: Key;
  readonly uid: string;
  readonly side: 'next' | 'prev';
}

/** Rows are collected up to this multiple of the page, then the surplus is dropped. */
const surplus = 4;
const fewest = 2000;

/** One page of the matching entries, which arrive in any order: only what is shown is sorted. */
export class PageSelection {
  readonly #options: Required<Pick<ListOptions, 'sort' | 'order' | 'limit'>>;
  readonly #cursor: DecodedCursor | undefined;
  readonly #skipped: number;
  readonly #descends: boolean;
  readonly #compare: Compare;
  readonly #keyOf: (entry: QueuedEntry) => Key;
  #rows: Rows;
  /** No row after it is on the page. */
  #last: Row | undefined;
  #total = 0;
  /** Rows on the page's side of the cursor. */
  #beside = 0;

  /** @throws Problem `bad-request` for a cursor that this server did not create */
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

export function encodeCursor(cursor: z.output<typeof Cursor>): string {
  return Buffer.from(JSON.stringify(cursor)).toString('base64url');
}

export function decodeCursor(text: string, sort: EntrySort, order: string): DecodedCursor {
  try {
    const [ofSort, ofOrder, key, uid, side] = Cursor.parse(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
    const fits = ofSort === sort && ofOrder === order && typeof key === (sort === 'sender' ? 'string' : 'number');
    if (fits) return { key, uid, side };
  } catch {
    // Falls through: an invalid cursor of any kind is refused below.
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

const History = z.array(StoredAttempt);

/** Answers questions about entries from memory; only histories are read from disk. */
export class EntryReader {
  readonly #ledger: Ledger;
  readonly #snapshots: Snapshots;
  readonly #clock: Clock;

  constructor(ledger: Ledger, snapshots: Snapshots, clock: Clock) {
    this.#ledger = ledger;
    this.#snapshots = snapshots;
    this.#clock = clock;
  }

  async entry(entry: QueuedEntry): Promise<Entry> {
    const { notices, pending, discardAt } = entry.details;
    const history = History.safeParse(attemptsOf(await this.#snapshots.history(entry)));
    return {
      ...summaryOf(entry),
      accepted: entry.accepted,
      history: history.data ?? [],
      notices,
      pendingOperation: pending?.operation ?? null,
      discardAt,
      version: versionOf(entry),
      hasMessage: !entry.isDone,
    };
  }

  async list(options: ListOptions): Promise<EntryPage> {
    const selection = new PageSelection(options);
    await this.#each(options.filter, (entry) => selection.add(entry));
    return selection.result();
  }

  async count(filter: EntryFilter): Promise<number> {
    let count = 0;
    await this.#each(filter, () => {
      count += 1;
    });
    return count;
  }

  async matching(filter: EntryFilter): Promise<readonly string[]> {
    const found: string[] = [];
    await this.#each(filter, ({ uid }) => found.push(uid));
    return found;
  }

  /** Visits all matching entries and yields to other work in between. */
  async #each(filter: EntryFilter, visit: (entry: QueuedEntry) => void): Promise<void> {
    const test = testOf(filter, this.#clock.now());
    const slice = new TimeSlice();
    for (const entries of this.#mapsOf(filter)) {
      for (const entry of entries.values()) {
        if (test(entry)) visit(entry);
        const pause = slice.yieldIfDue();
        if (pause !== undefined) await pause;
      }
    }
  }

  #mapsOf(filter: EntryFilter): readonly ReadonlyMap<string, QueuedEntry>[] {
    const states = [...statesOf(filter)].map((state) => isOpen({ state }));
    const { open, finished } = this.#ledger;
    return [...(states.includes(true) ? [open] : []), ...(states.includes(false) ? [finished] : [])];
  }

  async statistics(now: number, quarantined: number, filter?: EntryFilter): Promise<QueueStatistics> {
    const tally = new Tally(now);
    if (filter === undefined) await this.#tallyAll(tally);
    else {
      const chooses = recipientTestOf(filter);
      await this.#each(filter, (entry) => tally.add(entry, chooses));
    }
    return { ...(await tally.result(quarantined)), damaged: this.#ledger.damagedCount };
  }

  async #tallyAll(tally: Tally): Promise<void> {
    const slice = new TimeSlice();
    for (const entries of [this.#ledger.open, this.#ledger.finished]) {
      for (const entry of entries.values()) {
        tally.add(entry);
        const pause = slice.yieldIfDue();
        if (pause !== undefined) await pause;
      }
    }
  }
}

type Test = (entry: QueuedEntry) => boolean;

/** The states that a filter allows. */
export function statesOf({ state }: EntryFilter): ReadonlySet<EntryState> {
  return new Set(state === undefined || state.length === 0 ? openStates : state);
}

/** Test of an entry against the filter: cheap criteria first, since it runs on every entry. */
function testOf(filter: EntryFilter, now: number): Test {
  const states = statesOf(filter);
  const tests: Test[] = [];
  // When all open states and no others are wanted, visiting the open entries is enough.
  if (!openStates.every((state) => states.has(state)) || states.size > openStates.length) {
    tests.push((entry) => states.has(entry.state));
  }
  const { olderThan, youngerThan, since, minAttempts, sender, q } = filter;
  const momentOf = (age: number | string): number => (typeof age === 'number' ? now - age * 1000 : Date.parse(age));
  if (olderThan !== undefined) {
    const latest = momentOf(olderThan);
    tests.push(({ queuedAt }) => queuedAt <= latest);
  }
  if (youngerThan !== undefined) {
    const earliest = momentOf(youngerThan);
    tests.push(({ queuedAt }) => queuedAt > earliest);
  }
  if (since !== undefined) {
    const earliest = momentOf(since);
    tests.push(({ queuedAt }) => queuedAt >= earliest);
  }
  if (minAttempts !== undefined) tests.push((entry) => entry.attempts >= minAttempts);
  if (sender !== undefined) tests.push(hasSender(sender.toLowerCase()));
  const chooses = recipientTestOf(filter);
  if (chooses !== undefined) tests.push(({ recipients }) => recipients.some(chooses));
  if (q !== undefined && q !== '') tests.push(mentions(q));
  const [only, ...others] = tests;
  if (only === undefined) return () => true;
  return others.length === 0 ? only : (entry) => tests.every((test) => test(entry));
}

/**
 * Test of a recipient against the filter; undefined when the filter has no criterion for recipients, and so selects
 * all.
 */
export function recipientTestOf({ domain, destination, reason, recipient }: EntryFilter): RecipientTest | undefined {
  const tests: RecipientTest[] = [];
  if (destination !== undefined) {
    const wanted = destination.toLowerCase();
    tests.push((one) => one.destination === wanted);
  }
  if (domain !== undefined) {
    const matches = addressTest(`@${domain.toLowerCase()}`);
    tests.push(({ address }) => matches(address));
  }
  if (reason !== undefined) {
    const wanted = reason.toLowerCase();
    tests.push((one) => one.reason.toLowerCase() === wanted);
  }
  // An address matches in any state; the other criteria match open recipients only, except in finished entries, which
  // have none.
  if (tests.length > 0) tests.push((one) => one.entry.finishedAt !== null || isOpen(one));
  if (recipient !== undefined) {
    const matches = addressTest(recipient.toLowerCase());
    tests.push(({ address }) => matches(address));
  }
  return tests.length === 0 ? undefined : (one) => tests.every((test) => test(one));
}

function hasSender(wanted: string): Test {
  if (wanted === '<>') return ({ sender }) => sender === null;
  const matches = addressTest(wanted);
  return ({ sender }) => sender !== null && matches(sender);
}

/** An address, or a domain with `@` in front. */
function addressTest(wanted: string): (address: string) => boolean {
  if (wanted.startsWith('@')) return (address) => address.toLowerCase().endsWith(wanted);
  return (address) => address.length === wanted.length && address.toLowerCase() === wanted;
}

type Key = number | string;

/** An entry with its sort key, computed once. */
interface Row {
  readonly entry: QueuedEntry;
  readonly key: Key;
}

type Compare = (one: Row, other: Row) => number;

/**
 * Entries of which a range of ranks is wanted: never sorts all of them, and creates rows only for those in the range.
 */
class Rows {
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

  /** The rows from rank `from` to below rank `to`, unordered. */
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

  /** Rows that contain those ranks, and how many rows precede them. */
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

  /** The keys, inverted where needed so that the smallest comes first; undefined when they are texts. */
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

/** The key of that rank: quickselect. Keys below it precede it afterwards; ranks below `from` are in place already. */
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

/** Moves the first `count` rows to the front, unordered: quickselect. */
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

const ascending: Compare = (one, other) =>
  compareKeys(one.key, other.key) || compareKeys(one.entry.uid, other.entry.uid);
const descending: Compare = (one, other) => ascending(other, one);

function compareKeys(one: Key, other: Key): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}

type Holds = (text: string) => boolean;

/** Results are cached for up to this many repeated texts. */
const maxRemembered = 5000;

/** True when a text occurs in an entry, ignoring case. Runs on every entry, so most are decided by few comparisons. */
export function mentions(q: string): (entry: QueuedEntry) => boolean {
  const inText = holding(q);
  const inHeader = holding(JSON.stringify(q).slice(1, -1));
  const inShared = remembering(inText);
  const mayBeUid = /^[0-9a-z_-]+$/i.test(q);
  // Codes are only compared when the query begins with a digit: building the line for every entry is slow.
  const inReply = /^\d/.test(q) ? anywhereInReply(inText) : ({ text }: RecordedReply) => inShared(text);
  return (entry) => {
    if (mayBeUid && inText(entry.uid)) return true;
    if (entry.sender !== null && inShared(entry.sender)) return true;
    for (const { address, reply } of entry.recipients) {
      if (inText(address) || (reply !== null && inReply(reply))) return true;
    }
    return inHeader(entry.envelope) && headerTexts(entry).some(inHeader);
  };
}

/** A literal pattern: it folds case without copying the text, in linear time. */
function holding(wanted: string): Holds {
  const pattern = new RegExp(wanted.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`), 'i');
  return (text) => pattern.test(text);
}

function remembering(test: Holds): Holds {
  const known = new Map<string, boolean>();
  return (text) => {
    const before = known.get(text);
    if (before !== undefined) return before;
    const answer = test(text);
    if (known.size < maxRemembered) known.set(text, answer);
    return answer;
  };
}

function anywhereInReply(has: Holds): (reply: RecordedReply) => boolean {
  return ({ code, status, text }) => has(`${code} ${status} ${text}`);
}
