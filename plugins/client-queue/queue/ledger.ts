import type { Clock } from '../../../core/clock.js';
import { TimeSlice } from '../../../core/concurrency.js';
import type { EntryState, RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { QueueOutcome, RecipientSettlement, Settlement } from '../../../core/contracts/relay-queue-store.js';
import { asStorageProblem, faultCode } from '../../../core/disk/fault.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import { AppendFailed, LogFull } from '../../../core/spool/commit-log.js';
import { Backlog } from './statistics.js';
import { isDamageHold } from './hold-reasons.js';
import {
  addNotices,
  applyChange,
  type EntryChange,
  type ChangeDeps,
  draftOf,
  finish,
  type RecipientChange,
} from './change.js';
import type { Journal } from './journal.js';
import { performPending } from './mutation.js';
import { type EntryLease, isWaiting, type QueuedEntry, type RecipientRecord, waitingState } from './queued-entry.js';
import { Schedule } from './schedule.js';
import type { Snapshots } from './snapshots.js';
import { acceptEntry, type StoredAcceptInput } from './stored-entry.js';

interface LedgerInput {
  readonly journal: Journal;
  readonly snapshots: Snapshots;
  readonly deps: ChangeDeps;
  readonly clock: Clock;
  readonly log: Log;
  /** Called when a recipient was scheduled for that time. */
  readonly scheduled: (due: number) => void;
  /** Receive outcomes once they are durable. */
  readonly outcomes: OutcomeListeners;
  /** Called for an entry that is complete, so that its message can be removed. */
  readonly done: (entry: QueuedEntry) => void;
}

/**
 * All entries, in memory and in the journal. A change is visible at once and resolves when it is durable. A change that
 * the disk refuses stays in memory and is written as soon as possible; until then no work that depends on it begins.
 */
export class Ledger {
  readonly open = new Map<string, QueuedEntry>();
  /** In the order of completion. */
  readonly finished = new Map<string, QueuedEntry>();
  readonly schedule = new Schedule();
  /** Entries with unsent notices. */
  readonly #noticing = new Set<QueuedEntry>();
  /** Accepted while other targets of the same message may still fail. */
  readonly #unreleased = new Set<QueuedEntry>();
  /** Entries held because of damage or crashes. */
  readonly #damaged = new Set<QueuedEntry>();
  readonly #input: LedgerInput;
  readonly #backlog: Backlog;

  constructor(input: LedgerInput) {
    this.#input = input;
    const { journal, log } = input;
    this.#backlog = new Backlog({ journal, log, makeRoom: () => this.snapshot() });
  }

  /** Fills the ledger with the entries read at the start. */
  async fill(entries: Iterable<QueuedEntry>): Promise<void> {
    const now = this.#input.clock.now();
    const slice = new TimeSlice();
    for (const entry of entries) {
      this.#file(entry);
      this.schedule.add(entry.recipients, now);
      await slice.yieldIfDue();
    }
    // What is read comes in the order of acceptance.
    const finished = [...this.finished.values()].toSorted((a, b) => (a.finishedAt ?? 0) - (b.finishedAt ?? 0));
    this.finished.clear();
    for (const entry of finished) this.finished.set(entry.uid, entry);
  }

  /** Number of entries that are held because their message is damaged or processes died while sending it. */
  get damagedCount(): number {
    return this.#damaged.size;
  }

  find(uid: string): QueuedEntry | undefined {
    return this.open.get(uid) ?? this.finished.get(uid);
  }

  /** True while the disk has refused a write. */
  get stalled(): boolean {
    return this.#backlog.size > 0;
  }

  /** @throws Problem `storage-full` while an earlier write is refused */
  refuseWhileStalled(): void {
    if (this.stalled) throw problem('storage-full', 'The queue cannot be written now; try again later.');
  }

  /** The entry exists when this resolves, and never did when it rejects. It cannot be claimed before it is released. */
  async accept(accepted: StoredAcceptInput): Promise<QueuedEntry> {
    this.refuseWhileStalled();
    const { envelope } = accepted;
    try {
      await this.#makingRoom(() => this.#input.journal.accept(accepted));
    } catch (error) {
      // It may be on the disk nevertheless, and must not reappear: the caller keeps the message.
      if (error instanceof AppendFailed) this.#backlog.drop(envelope.uid);
      throw storageProblem(error);
    }
    const entry = acceptEntry(accepted, this.#input.deps);
    this.#unreleased.add(entry);
    this.#file(entry);
    this.#tidy();
    return entry;
  }

  /** Allows claims of its recipients. */
  release(entry: QueuedEntry): void {
    if (this.#unreleased.delete(entry) && this.find(entry.uid) === entry) this.#place(entry, entry.recipients);
  }

  /** Takes over an entry of another queue as it is. */
  async adopt(entry: QueuedEntry): Promise<void> {
    this.refuseWhileStalled();
    try {
      await this.#makingRoom(() => this.#input.journal.put([entry]));
    } catch (error) {
      if (error instanceof AppendFailed) this.#backlog.drop(entry.uid);
      throw storageProblem(error);
    }
    this.#place(entry, entry.recipients);
    this.#tidy();
  }

  /** Revokes an accepted entry: removed from memory at once. */
  async forget(entry: QueuedEntry): Promise<void> {
    this.schedule.remove(entry.recipients);
    this.open.delete(entry.uid);
    this.finished.delete(entry.uid);
    this.#noticing.delete(entry);
    this.#unreleased.delete(entry);
    this.#damaged.delete(entry);
    try {
      await this.#input.journal.drop([entry.uid]);
    } catch {
      this.#backlog.drop(entry.uid);
    }
  }

  /**
   * Visible at once, durable when it resolves. The iterable is read one change at a time, each after the one before is
   * applied. When it rejects, the changes stay in memory and are written later. @throws Problem
   */
  async commit(changes: Iterable<EntryChange>): Promise<void> {
    const entries = await this.#write(changes);
    this.#release(entries);
    this.#tidy();
  }

  /**
   * The same for changes that must not be lost: waits until the disk accepts it. Rejects only when the queue closes.
   */
  async commitEventually(draft: () => EntryChange): Promise<void> {
    const change = draft();
    try {
      await this.commit([change]);
    } catch {
      await this.#backlog.settled();
      const entry = this.find(change.uid);
      if (entry !== undefined) this.#release([entry]);
    }
  }

  async #write(changes: Iterable<EntryChange>): Promise<readonly QueuedEntry[]> {
    const { journal, outcomes, clock } = this.#input;
    const entries: QueuedEntry[] = [];
    const written: EntryChange[] = [];
    const told: QueueOutcome[] = [];
    for (const change of changes) {
      const entry = this.find(change.uid);
      if (entry === undefined) continue;
      if (outcomes.some) told.push(...recipientOutcomes(entry, change, clock.now()));
      this.#apply(entry, change);
      entries.push(entry);
      written.push(change);
    }
    try {
      await journal.changes(written);
    } catch (error) {
      // When the journal has no room for the change, a snapshot stores it.
      if (!isFull(error) || !(await this.snapshot())) {
        this.#backlog.keep(entries);
        void this.#emitLater(told);
        throw storageProblem(error);
      }
    }
    outcomes.emit(told);
    return entries;
  }

  /** Emits outcomes when the disk has accepted the refused writes; never, when the queue closes first. */
  async #emitLater(outcomes: readonly QueueOutcome[]): Promise<void> {
    try {
      await this.#backlog.settled();
    } catch {
      return;
    }
    this.#input.outcomes.emit(outcomes);
  }

  /** Makes room in a full journal and tries again. */
  async #makingRoom(append: () => Promise<void>): Promise<void> {
    try {
      await append();
    } catch (error) {
      if (!isFull(error)) throw error;
      await this.snapshot();
      await append();
    }
  }

  #release(entries: readonly QueuedEntry[]): void {
    for (const entry of entries) if (entry.isDone) this.#input.done(entry);
  }

  #apply(entry: QueuedEntry, change: EntryChange): void {
    const affected = (change.recipients ?? []).flatMap(({ index }) => entry.recipients[index] ?? []);
    this.schedule.remove(affected);
    applyChange(entry, change, this.#input.deps);
    this.#place(entry, affected);
  }

  #place(entry: QueuedEntry, recipients: readonly RecipientRecord[]): void {
    this.#file(entry);
    if (this.#unreleased.has(entry)) return;
    this.schedule.add(recipients, this.#input.clock.now());
    for (const recipient of recipients) {
      if (!isWaiting(recipient)) continue;
      this.#input.scheduled(recipient.due);
      return;
    }
  }

  #file(entry: QueuedEntry): void {
    const [to, from] = entry.finishedAt === null ? [this.open, this.finished] : [this.finished, this.open];
    if (!to.has(entry.uid)) {
      from.delete(entry.uid);
      to.set(entry.uid, entry);
    }
    if (entry.details.notices.length > 0) this.#noticing.add(entry);
    else this.#noticing.delete(entry);
    if (entry.finishedAt === null && isDamageHold(entry.hold)) this.#damaged.add(entry);
    else this.#damaged.delete(entry);
  }

  /**
   * Entries with up to `most` notices in total. They move to the end of the line, so that one that fails does not block
   * the others.
   */
  nextNoticing(most: number): readonly QueuedEntry[] {
    const given: QueuedEntry[] = [];
    let count = 0;
    for (const entry of this.#noticing) {
      if (count >= most) break;
      count += entry.details.notices.length;
      given.push(entry);
    }
    for (const entry of given) {
      this.#noticing.delete(entry);
      this.#noticing.add(entry);
    }
    return given;
  }

  /** Forgets finished entries that are too old or too many; not journaled. */
  async forgetFinished(before: number, most: number): Promise<void> {
    const slice = new TimeSlice();
    let tooMany = this.finished.size - most;
    for (const [uid, entry] of this.finished) {
      tooMany -= 1;
      const pause = slice.yieldIfDue();
      if (pause !== undefined) await pause;
      if (!entry.isDone || this.#announces(entry)) continue;
      if (tooMany < 0 && (entry.finishedAt ?? 0) >= before) return;
      this.finished.delete(uid);
    }
  }

  /** True while the entry of the notice exists, so that it would be sent again. */
  #announces({ accepted: { noticeOf } }: QueuedEntry): boolean {
    return noticeOf !== undefined && (this.find(noticeOf)?.details.notices.length ?? 0) > 0;
  }

  /** Writes everything to a snapshot and returns whether it succeeded. Never rejects. */
  snapshot(): Promise<boolean> {
    return this.#input.snapshots.writeNow(() => this.#everything());
  }

  /** Keeps the journal short. */
  #tidy(): void {
    void this.#input.snapshots.write(() => this.#everything());
  }

  *#everything(): Generator<QueuedEntry> {
    yield* this.open.values();
    yield* this.finished.values();
  }

  async close(): Promise<void> {
    await this.#input.journal.idle();
    await this.#backlog.close();
    await this.#input.snapshots.close();
    await this.#input.journal.close();
  }
}

/** The journal is full although the disk is fine. */
function isFull(error: unknown): boolean {
  return error instanceof LogFull && faultCode(error.cause) === undefined;
}

function storageProblem(error: unknown): Error {
  if (error instanceof AppendFailed) return asStorageProblem(error.cause);
  if (!(error instanceof LogFull)) return asStorageProblem(error);
  if (faultCode(error.cause) !== undefined) return asStorageProblem(error.cause);
  return problem('storage-full', { detail: 'The queue cannot be written now; try again later.', cause: error });
}

/** Outcomes of a change for its recipients; compute them before the change is applied. */
export function recipientOutcomes(entry: QueuedEntry, change: EntryChange, now: number): readonly QueueOutcome[] {
  return (change.recipients ?? []).flatMap((given): readonly QueueOutcome[] => {
    const recipient = entry.recipients[given.index];
    const state = recipient && fateOf(recipient.state, given);
    if (recipient === undefined || state === undefined) return [];
    const { uid, sender } = entry;
    const { address, destination } = recipient;
    return [
      {
        uid,
        sender,
        address,
        destination,
        state,
        reply: given.reply ?? (state === 'expired' ? recipient.reply : null),
        hold: state === 'held' ? (change.hold ?? entry.hold) : null,
        attempts: given.attempts ?? recipient.attempts,
        nextAttempt: state === 'deferred' ? (given.due ?? recipient.due) : null,
        at: now,
        accepted: () => entry.accepted,
      },
    ];
  });
}

/** Waiting is an outcome only after an attempt; an unchanged state is none. */
function fateOf(before: EntryState, { state, attempts }: RecipientChange): QueueOutcome['state'] | undefined {
  if (state === 'queued' || state === 'active') return undefined;
  if (state === 'deferred') return attempts === undefined ? undefined : state;
  return state === before ? undefined : state;
}

type Listener = (outcome: QueueOutcome) => void;

/** Listeners of recipient outcomes. */
export class OutcomeListeners {
  readonly #listeners = new Set<Listener>();

  get some(): boolean {
    return this.#listeners.size > 0;
  }

  add(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  emit(outcomes: readonly QueueOutcome[]): void {
    for (const outcome of outcomes) for (const listener of this.#listeners) listener(outcome);
  }
}

/** Longer replies are truncated. Characters. */
const maxReply = 1000;

/** The change at the end of a lease. Results for recipients outside of the lease are ignored. */
export function settleLease(entry: QueuedEntry, lease: EntryLease, settlement: Settlement, now: number): EntryChange {
  const { attempt, results, notices = [] } = settlement;
  const draft = draftOf(entry);
  const byIndex = new Map(results.map((result) => [result.index, result]));
  const counted = attempt !== undefined && attempt.manual !== true;
  draft.ended = lease.token;
  draft.recipients = lease.recipients.flatMap((index) => {
    const recipient = entry.recipients[index];
    return recipient === undefined ? [] : [recipientChange(recipient, byIndex.get(index), { counted, now })];
  });
  if (attempt !== undefined) {
    draft.attempt = {
      ...attempt,
      reply: attempt.reply && shortened(attempt.reply),
      recipients: [...attempt.recipients],
    };
    draft.lastAttempt = attempt.at;
  }
  const { hold, discardAt } = results.find(({ state }) => state === 'held') ?? {};
  if (hold !== undefined) draft.hold = hold;
  if (discardAt !== undefined) draft.discardAt = discardAt;
  if (entry.details.crashes > 0) draft.crashes = 0;
  addNotices(entry, draft, notices);
  performPending(entry, draft, now);
  finish(entry, draft, now);
  return draft;
}

function recipientChange(
  recipient: RecipientRecord,
  result: RecipientSettlement | undefined,
  { counted, now }: { readonly counted: boolean; readonly now: number },
): RecipientChange {
  const { index } = recipient;
  if (result === undefined) return { index, state: waitingState(recipient) };
  const attempts = recipient.attempts + (counted ? 1 : 0);
  const reply = result.reply && shortened(result.reply);
  return {
    index,
    state: result.state,
    attempts,
    manual: false,
    ...(reply !== null && { reply }),
    ...(result.state === 'deferred' && { due: result.nextAttempt ?? now }),
  };
}

function shortened(reply: RecordedReply): RecordedReply {
  return reply.text.length <= maxReply ? reply : { ...reply, text: `${reply.text.slice(0, maxReply)}…` };
}
