import { TimeSlice } from '../../../core/concurrency.js';
import { type EntryState, entryStates, type RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { QueueStatistics } from '../../../core/contracts/relay-queue.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { Journal } from './journal.js';
import { isOpen, type QueuedEntry, type RecipientRecord, type RecipientTest } from './queued-entry.js';

/** The age limits of `qshape`. Minutes. */
export const ageLimits: readonly number[] = [5, 10, 20, 40, 80, 160, 320, 640, 1280];

interface DestinationCount {
  total: number;
  readonly ages: number[];
  oldest: number;
  active: number;
  lastReply: RecordedReply | null;
}

interface SenderCount {
  count: number;
  messages: number;
}

interface ReasonCount {
  count: number;
  example: RecordedReply;
}

/** Counts entries. */
export class Tally {
  readonly #now: number;
  readonly #byState = new Map<EntryState, number>();
  readonly #byDestination = new Map<string, DestinationCount>();
  readonly #byReason = new Map<string, ReasonCount>();
  /** The null reverse-path is the empty text. */
  readonly #bySender = new Map<string, SenderCount>();
  #open = 0;
  #bytes = 0;
  #oldest = Infinity;

  constructor(now: number) {
    this.#now = now;
  }

  /** @param chooses the recipients that count; all when undefined */
  add(entry: QueuedEntry, chooses?: RecipientTest): void {
    const { state } = entry;
    this.#byState.set(state, (this.#byState.get(state) ?? 0) + 1);
    if (entry.finishedAt !== null) return;
    this.#open += 1;
    this.#bytes += entry.size;
    this.#oldest = Math.min(this.#oldest, entry.queuedAt);
    let count = 0;
    for (const recipient of entry.recipients) {
      if (!isOpen(recipient) || chooses?.(recipient) === false) continue;
      count += 1;
      this.#addToDestination(recipient);
      if (recipient.reply !== null) this.#addToReason(recipient.reason, recipient.reply);
    }
    if (count > 0) this.#addToSender(entry.sender?.toLowerCase() ?? '', count);
  }

  #addToSender(sender: string, count: number): void {
    const known = this.#bySender.get(sender);
    if (known === undefined) this.#bySender.set(sender, { count, messages: 1 });
    else {
      known.count += count;
      known.messages += 1;
    }
  }

  #addToDestination({ destination, state, reply, entry: { queuedAt } }: RecipientRecord): void {
    let count = this.#byDestination.get(destination);
    if (count === undefined) {
      count = {
        total: 0,
        ages: Array.from({ length: ageLimits.length + 1 }, () => 0),
        oldest: queuedAt,
        active: 0,
        lastReply: null,
      };
      this.#byDestination.set(destination, count);
    }
    const bucket = this.#bucketOf(queuedAt);
    count.total += 1;
    count.ages[bucket] = (count.ages[bucket] ?? 0) + 1;
    if (queuedAt < count.oldest) count.oldest = queuedAt;
    if (state === 'active') count.active += 1;
    if (reply !== null && reply.at >= (count.lastReply?.at ?? -Infinity)) count.lastReply = reply;
  }

  #bucketOf(queuedAt: number): number {
    const minutes = (this.#now - queuedAt) / 60_000;
    let bucket = 0;
    while (bucket < ageLimits.length && minutes >= (ageLimits[bucket] ?? 0)) bucket += 1;
    return bucket;
  }

  #addToReason(reason: string, example: RecordedReply): void {
    const count = this.#byReason.get(reason);
    if (count === undefined) {
      this.#byReason.set(reason, { count: 1, example });
      return;
    }
    count.count += 1;
    if (example.at > count.example.at) count.example = example;
  }

  async result(quarantined: number): Promise<QueueStatistics> {
    const byState = Object.fromEntries(entryStates.map((state) => [state, this.#byState.get(state) ?? 0]));
    return {
      at: this.#now,
      byState: byState as Record<EntryState, number>,
      byDestination: await listOf(
        this.#byDestination,
        (destination, count) => ({ destination, ...count }),
        (one, other) => other.total - one.total || (one.destination < other.destination ? -1 : 1),
      ),
      ageLimits,
      bySender: await listOf(
        this.#bySender,
        (sender, count) => ({ sender: sender === '' ? null : sender, ...count }),
        (one, other) => other.count - one.count || ((one.sender ?? '') < (other.sender ?? '') ? -1 : 1),
      ),
      byReason: await listOf(
        this.#byReason,
        (reason, count) => ({ reason, ...count }),
        (one, other) => other.count - one.count || (one.reason < other.reason ? -1 : 1),
      ),
      open: this.#open,
      bytes: this.#bytes,
      oldest: this.#oldest === Infinity ? null : this.#oldest,
      quarantined,
    };
  }
}

/** Rows that are sorted without yielding. */
const runLength = 1024;

/** The counts as sorted rows. There may be as many as entries, so it yields to other work. */
async function listOf<V, R>(
  counts: ReadonlyMap<string, V>,
  rowOf: (name: string, count: V) => R,
  compare: (one: R, other: R) => number,
): Promise<R[]> {
  const slice = new TimeSlice();
  let runs: R[][] = [];
  let rows: R[] = [];
  for (const [name, count] of counts) {
    rows.push(rowOf(name, count));
    if (rows.length < runLength) continue;
    runs.push(rows.sort(compare));
    rows = [];
    await slice.yieldIfDue();
  }
  runs.push(rows.sort(compare));
  while (runs.length > 1) {
    const merged: R[][] = [];
    for (let at = 0; at < runs.length; at += 2) {
      merged.push(await mergedOf(runs[at] ?? [], runs[at + 1] ?? [], compare, slice));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function mergedOf<R>(
  left: readonly R[],
  right: readonly R[],
  compare: (one: R, other: R) => number,
  slice: TimeSlice,
): Promise<R[]> {
  const rows: R[] = [];
  for (let l = 0, r = 0; l + r < left.length + right.length;) {
    const [one, other] = [left[l], right[r]];
    const takesLeft = other === undefined || (one !== undefined && compare(one, other) <= 0);
    const row = takesLeft ? one : other;
    if (takesLeft) l += 1;
    else r += 1;
    if (row !== undefined) rows.push(row);
    const pause = slice.yieldIfDue();
    if (pause !== undefined) await pause;
  }
  return rows;
}

const firstPauseMs = 50;
const maxPauseMs = 15_000;
const entriesInRecord = 50;

interface BacklogInput {
  readonly journal: Journal;
  readonly log: Log;
  /** Writes everything to a snapshot, which frees space in the journal; returns whether it succeeded. Never rejects. */
  readonly makeRoom: () => Promise<boolean>;
}

/** Changes that the disk refused: written again with growing pauses until they succeed. */
export class Backlog {
  readonly #input: BacklogInput;
  readonly #entries = new Set<QueuedEntry>();
  readonly #drops = new Set<string>();
  #waiting: { readonly resolve: () => void; readonly reject: (error: Error) => void }[] = [];
  #timer: NodeJS.Timeout | undefined;
  #pauseMs = firstPauseMs;
  #closed = false;

  constructor(input: BacklogInput) {
    this.#input = input;
  }

  get size(): number {
    return this.#entries.size + this.#drops.size;
  }

  /** Writes these entries with their state at that time. */
  keep(entries: readonly QueuedEntry[]): void {
    for (const entry of entries) this.#entries.add(entry);
    this.#schedule();
  }

  /** An entry that must not reappear. */
  drop(uid: string): void {
    this.#drops.add(uid);
    this.#schedule();
  }

  /** Resolves when everything is on disk. Rejects when the queue closes first. */
  settled(): Promise<void> {
    if (this.size === 0) return Promise.resolve();
    if (this.#closed) return Promise.reject(closing());
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Tries once more. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    if (this.size > 0) await this.#try();
    for (const { reject } of this.#waiting) reject(closing());
    this.#waiting = [];
  }

  #schedule(): void {
    if (this.#closed) return;
    this.#timer ??= setTimeout(() => void this.#try(), this.#pauseMs);
  }

  async #try(): Promise<void> {
    const { log } = this.#input;
    try {
      await this.#write();
      this.#pauseMs = firstPauseMs;
    } catch (error) {
      log.error({ err: error, entries: this.size }, 'the queue cannot be written; it is tried again');
      this.#pauseMs = Math.min(2 * this.#pauseMs, maxPauseMs);
      await this.#bypass();
    }
    this.#timer = undefined;
    if (this.size > 0) this.#schedule();
    else this.#release();
  }

  /** Entries in a snapshot need not be in the journal. */
  async #bypass(): Promise<void> {
    const entries = revisionsOf(this.#entries);
    if (await this.#input.makeRoom()) this.#forget(entries);
  }

  #forget(written: ReturnType<typeof revisionsOf>): void {
    for (const { entry, revision } of written) if (entry.revision === revision) this.#entries.delete(entry);
  }

  async #write(): Promise<void> {
    const { journal } = this.#input;
    while (this.#drops.size > 0) {
      const uids = [...this.#drops].slice(0, entriesInRecord);
      await journal.drop(uids);
      for (const uid of uids) this.#drops.delete(uid);
    }
    while (this.#entries.size > 0) {
      const entries = [...this.#entries].slice(0, entriesInRecord);
      const written = revisionsOf(entries);
      await journal.put(entries);
      this.#forget(written);
    }
  }

  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { resolve } of waiting) resolve();
  }
}

const revisionsOf = (entries: Iterable<QueuedEntry>) =>
  Array.from(entries, (entry) => ({ entry, revision: entry.revision }));

const closing = (): Error => problem('unavailable', 'The queue is closing.');
