import type { Readable } from 'node:stream';
import type { Clock } from '../clock.js';
import type { LinkTarget, SpooledMessage } from '../spool/spool.js';
import type { Attempt, Entry, EntryState, NewEntry, Notice, RecordedReply } from './queue-entry.js';
import type { Mutation, MutationPreview, MutationResult, MutationRun, QueuedMail, Selector } from './relay-queue.js';
import { service } from './service.js';

/**
 * Where the queue of mail for other servers is kept. Without a plugin that provides it, `client-queue` keeps it in
 * files. The plugin that provides it brings log, metrics, health and folder.
 */
export interface RelayQueueStore {
  /**
   * Called once, before mail is accepted. Must not wait for what may be away for long: a queue that cannot be read yet
   * refuses or waits in `prepare`, gives nothing out, and says so in `complaint`.
   */
  open(context: RelayQueueContext): Promise<OpenedRelayQueue>;
  /**
   * The time that due times, ages and outcomes are of, where several servers share the queue; that of this server when
   * absent. `monotonic` is of this server in any case. Read after `open`.
   */
  readonly clock?: Clock;
}

export const relayQueueStore = service<RelayQueueStore>('postern.relay-queue-store');

/** What the owner of the queue tells its store. */
export interface RelayQueueContext {
  readonly bounds: QueueBounds;
  /** Delivery target whose finder is `locate`: the owner of what a store links from the spool. */
  readonly owner: string;
  /**
   * Resolves when the commit log of the spool has restored every message; a message that was linked from the spool may
   * reappear until then.
   */
  readonly ready: Promise<void>;
}

/** Limits that may change while the queue is open. */
export interface QueueBounds {
  /** Milliseconds that finished entries are kept. */
  readonly keepFinishedMs: number;
  /** Maximum number of open entries; further ones are refused. */
  readonly maxEntries: number;
  /** Milliseconds that mail without a sender to return it to is held after it expired; for ever when 0 or absent. */
  readonly keepDeadLetterMs?: number;
  /** Maximum age in milliseconds and maximum bytes of the quarantine, if there is one. Unlimited when absent. */
  readonly quarantineMs?: number;
  readonly quarantineBytes?: number;
  /** Maximum pause between two attempts: a later time was written by a wrong clock. */
  readonly maxPauseMs?: number;
}

/** A damaged or unknown file that was found in the queue and quarantined. */
export interface Quarantined {
  readonly name: string;
  /** Uid of its entry, as far as its name tells. */
  readonly uid?: string;
  readonly reason: string;
  readonly size: number;
  readonly at: number;
}

export interface RecoverOptions {
  /** Default: everything in quarantine. */
  readonly names?: readonly string[] | undefined;
  /** Only reports what would be done. */
  readonly dryRun?: boolean | undefined;
}

export interface Recovered {
  readonly recovered: number;
  readonly uids: readonly string[];
  /** What stays in quarantine, and why. */
  readonly left: readonly { readonly name: string; readonly reason: string }[];
}

/** Damaged and unknown files, of a queue that is kept in files. */
export interface QueueQuarantine {
  list(): Promise<readonly Quarantined[]>;
  /** The bytes of one of them. @throws Problem `not-found`, `conflict` for what is no regular file */
  read(name: string): Promise<Readable>;
  /** Removes one of them permanently. @throws Problem `not-found`, `conflict` for what is no regular file */
  discard(name: string): Promise<void>;
  /** Recreates entries from messages whose envelope is known. Removes nothing. */
  recover(options: RecoverOptions): Promise<Recovered>;
}

export interface PreparedEntry {
  /** Makes the entry visible and durable: the acknowledgement may be sent. Rejects with nothing left. */
  commit(): Promise<void>;
  /**
   * After `commit`: its recipients may be claimed. Until then `abort` rolls everything back. A restart releases it,
   * too.
   */
  release(): void;
  /** Before or after `commit`; never throws. */
  abort(): Promise<void>;
}

/**
 * The queue of mail for other servers. The embedded implementation keeps it in files; others may keep it in a database
 * that several servers share. Times are milliseconds since the epoch, of the store's clock.
 */
export interface RelayQueue extends QueuedMail {
  /**
   * The message is durable in the queue, and not visible, when this resolves. Linked from the spool, stored once.
   * @throws Problem `conflict` when there is or was an entry with this uid; `unavailable` when the queue is full, or when
   * that uid is being enqueued or a dead process left parts of it, so that it may be retried later
   */
  prepare(entry: NewEntry, message: SpooledMessage): Promise<PreparedEntry>;
  /**
   * Due recipients, the longest due first, alternating new mail and retries, and senders. Durable before it resolves.
   */
  claim(options: ClaimOptions): Promise<readonly Lease[]>;
  /**
   * Durable when it resolves. @throws Problem `conflict` for a completed lease, and for a lost one, at the latest when
   * its recipients are leased again or are finished
   */
  settle(lease: Lease, settlement: Settlement): Promise<void>;
  /** When the next recipient is due; null for none. May lag behind: then a claim gives nothing. */
  nextDue(): number | null;
  /** Called when something may be due earlier than the last `nextDue`. Returns the undo. */
  onDue(listener: () => void): () => void;
  /**
   * Called once for each recipient after each attempt, and when an operator or its age ended or held it, when that is
   * durable. Not for what an earlier process or another server did. A listener must not throw. Returns the undo.
   */
  onOutcome(listener: (outcome: QueueOutcome) => void): () => void;
  /** Opens the message as sent, from its first trace header field. @throws Problem `not-found` */
  open(uid: string): Promise<Readable>;
  /** The same as one buffer, if small; else undefined. @throws Problem `not-found` */
  bytes?(uid: string): Promise<Buffer | undefined>;
  /**
   * Every entry has its old state or its new one, whatever happens; repeating is harmless.
   * @throws Problem `conflict` when the selector matches another number than expected, `precondition-failed` when an
   * entry has another version
   */
  mutate(selector: Selector, mutation: Mutation, now: number, run?: MutationRun): Promise<MutationResult>;
  /** What `mutate` would change. */
  preview(selector: Selector, mutation: Mutation, now: number): Promise<MutationPreview>;
  /** Pending notifications up to a limit, and all others of the same entries. Those returned before come last. */
  notices(limit: number): Promise<readonly { readonly entry: Entry; readonly notice: Notice }[]>;
  /** Records, in one durable step, that these notifications are sent or will never be. */
  noticed(uid: string, noticeIds: readonly string[]): Promise<void>;
  /** Ends expired leases, emits delays, expires old entries, and drops finished ones past their keeping time. */
  housekeep(now: number): Promise<void>;
  /** Why the queue is degraded, and what to do about it; undefined while all is well. */
  complaint(): string | undefined;
  /** Absent for a queue that is not kept in files. */
  readonly quarantine?: QueueQuarantine;
}

/** The queue with the operations for its owner only. */
export interface OpenedRelayQueue extends RelayQueue {
  /**
   * For a store that links messages from the spool, the finder of the delivery target: where a message of the queue is
   * after a crash; null when it is no longer needed.
   */
  locate?(placement: LinkTarget): Promise<string | null | undefined>;
  /**
   * Why `prepare` and `commit` would refuse, so that a client need not send its message first; undefined while they may
   * succeed. Absent for a queue that always tries.
   */
  refusal?(): string | undefined;
  /** Replaces the limits. */
  bound(bounds: QueueBounds): void;
  /** Counts of files in quarantine, and of entries held because of damage or crashes. */
  figures(): Readonly<Record<'quarantined' | 'damaged', number>>;
  /** Waits for pending writes. Leases without a result are lost, and tried again. */
  close(): Promise<void>;
}

/** The right to try some recipients of an entry that share a destination. */
export interface Lease {
  readonly uid: string;
  /** Recipients by their index in the entry. */
  readonly recipients: readonly { readonly index: number; readonly address: string; readonly attempts: number }[];
  readonly destination: string;
  readonly entry: NewEntry;
  /** No other lease of the entry has it. */
  readonly token: number;
  readonly manual: boolean;
  /** False when no earlier attempt can have delivered any of it unnoticed; absent when unknown. */
  readonly interrupted?: boolean;
  /**
   * Whether this server still has the lease, asked before its message goes beyond recall. It is asked when the end of
   * the message comes near, and again, without a pause before the end is sent; so a store may answer the second time at
   * once, with what it has learnt since. Only true holds. Absent where no other server can take the lease.
   */
  holds?(): boolean | Promise<boolean>;
}

export interface ClaimOptions {
  readonly now: number;
  readonly limit: number;
  /** Maximum recipients of one lease; the entry's others get further leases. Unbounded when absent. */
  readonly maxRecipients?: number;
  /** Remaining leases of the destination; called for each claim. */
  readonly room: (destination: string) => number;
  /** Destinations with the same servers, which share room and turns; each is its own site when absent. */
  readonly sites?: ClaimSites;
  /** Milliseconds after which the lease expires. */
  readonly leaseMs: number;
}

export interface ClaimSites {
  /** The site of a destination; while undefined, the destination gets nothing. */
  of(destination: string): string | undefined;
  /** Remaining leases of the site; called for each claim. */
  room(site: string): number;
}

export interface RecipientSettlement {
  readonly index: number;
  readonly state: 'delivered' | 'deferred' | 'bounced' | 'expired' | 'held';
  readonly reply: RecordedReply | null;
  /** Of `deferred`. */
  readonly nextAttempt?: number;
  /** Of `held`: why, and when it is discarded. */
  readonly hold?: string;
  readonly discardAt?: number;
}

export interface Settlement {
  /** Absent when nothing was tried: the lease is returned and no attempt is counted. */
  readonly attempt?: Attempt;
  /** One for each recipient of the lease; missing ones are returned unchanged. */
  readonly results: readonly RecipientSettlement[];
  readonly notices?: readonly Omit<Notice, 'id'>[];
}

/** A durable outcome of one recipient of an entry. Times are milliseconds since the epoch. */
export interface QueueOutcome {
  readonly uid: string;
  /** Null for the null reverse-path. */
  readonly sender: string | null;
  readonly address: string;
  readonly destination: string;
  readonly state: Exclude<EntryState, 'queued' | 'active'>;
  /** The reply; null without one. */
  readonly reply: RecordedReply | null;
  /** Of `held`: why. */
  readonly hold: string | null;
  readonly attempts: number;
  /** Of `deferred`; else null. */
  readonly nextAttempt: number | null;
  readonly at: number;
  /** Everything else that was accepted; read only on demand. */
  readonly accepted: () => NewEntry;
}
