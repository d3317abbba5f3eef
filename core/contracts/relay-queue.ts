import type { Readable } from 'node:stream';
import type { SpooledMessage } from '../spool/spool.js';
import { service } from '../host/service.js';
import type { Entry, NewEntry, Notice } from './queue-entry.js';
import type { ClaimOptions, Lease, Settlement } from './queue-lease.js';
import type { QueueOutcome } from './queue-outcome.js';
import type {
  EntryFilter,
  EntryPage,
  ListOptions,
  Mutation,
  MutationPreview,
  MutationResult,
  QueueStatistics,
  Selector,
} from './queue-list.js';

/** A corrupt or foreign thing that was found in the queue and set aside. */
export interface Quarantined {
  readonly name: string;
  /** Of the entry that it was, as far as its name says it. */
  readonly uid?: string;
  readonly reason: string;
  readonly size: number;
  readonly at: number;
}

export interface RecoverOptions {
  /** All that are in quarantine when absent. */
  readonly names?: readonly string[] | undefined;
  /** Says what would be done. */
  readonly dryRun?: boolean | undefined;
}

export interface Recovered {
  readonly recovered: number;
  readonly uids: readonly string[];
  /** What stays in quarantine, and why. */
  readonly left: readonly { readonly name: string; readonly reason: string }[];
}

export interface PreparedEntry {
  /** Makes the entry visible and durable: the promise to deliver is given. Rejects with nothing left. */
  commit(): Promise<void>;
  /** After `commit`: its recipients may be claimed. Until then `abort` takes everything back. A restart releases it, too. */
  release(): void;
  /** Before or after `commit`; never throws. */
  abort(): Promise<void>;
}

/**
 * The queue of mail that waits for other servers, behind one contract: the embedded one keeps it in files, others may keep it
 * in a database that several servers share. Times are milliseconds since the epoch.
 */
export interface RelayQueue {
  /**
   * The message is durable in the queue when this resolves, and nobody sees it. Linked from the spool, stored once.
   * @throws Problem `conflict` when there is or was an entry of that uid; `unavailable` when the queue is full, or when that uid is being
   * handed in or a dead process has left something of it, so that it may be tried again later
   */
  prepare(entry: NewEntry, message: SpooledMessage): Promise<PreparedEntry>;
  /** Due recipients, the longest due first, new mail and retries in turn, senders in turn. Durable before it resolves. */
  claim(options: ClaimOptions): Promise<readonly Lease[]>;
  /** Durable when it resolves. @throws Problem `conflict` for a lease that has run out or was settled */
  settle(lease: Lease, settlement: Settlement): Promise<void>;
  /** When the next recipient is due; null for none. */
  nextDue(): number | null;
  /** Called when something may be due earlier than `nextDue` last said. Returns the undo. */
  onDue(listener: () => void): () => void;
  /**
   * Called once for each recipient behind each attempt, and when somebody or its age has ended or held it, when that is durable.
   * Not for what an earlier process has left. A listener must not throw. Returns the undo.
   */
  onOutcome(listener: (outcome: QueueOutcome) => void): () => void;
  /** Opens the message that is sent, from its first trace header field. @throws Problem `not-found` */
  open(uid: string): Promise<Readable>;
  /** The same in one piece, where it is small; undefined where it is not. @throws Problem `not-found` */
  bytes?(uid: string): Promise<Buffer | undefined>;
  find(uid: string): Promise<Entry | undefined>;
  list(options: ListOptions): Promise<EntryPage>;
  count(filter: EntryFilter): Promise<number>;
  statistics(now: number): Promise<QueueStatistics>;
  /**
   * Every entry has its old state or its new one, whatever happens; a repetition is harmless.
   * @throws Problem `conflict` when the selector chooses another number than it expects, `precondition-failed` when an entry has
   * another version
   */
  mutate(selector: Selector, mutation: Mutation, now: number): Promise<MutationResult>;
  /** What `mutate` would change. */
  preview(selector: Selector, mutation: Mutation, now: number): Promise<MutationPreview>;
  /** So many notices that nobody has sent yet, and all others of the same entries. What was given and stays comes behind the rest. */
  notices(limit: number): Promise<readonly { readonly entry: Entry; readonly notice: Notice }[]>;
  /** These notices are on their way, durably, or will never be sent: all of them in one step. */
  noticed(uid: string, noticeIds: readonly string[]): Promise<void>;
  /** Ends leases that ran out, delays that are to be told, entries that are past their time, finished ones past keeping. */
  housekeep(now: number): Promise<void>;
  quarantined(): Promise<readonly Quarantined[]>;
  /** The bytes of one of them. @throws Problem `not-found`, `conflict` for what is no plain file */
  openQuarantined(name: string): Promise<Readable>;
  /** Removes one of them for good. @throws Problem `not-found`, `conflict` for what is no plain file */
  discardQuarantined(name: string): Promise<void>;
  /** Makes entries again from messages in quarantine whose envelope is known. Nothing is removed. */
  recover?(options: RecoverOptions): Promise<Recovered>;
  /** What is damaged, and what to do about it; undefined while all is well. */
  complaint?(): string | undefined;
  /** Open entries. */
  readonly size: number;
}

export const relayQueue = service<RelayQueue>('postern.relay-queue');
