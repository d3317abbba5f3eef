import type { EntryState, NewEntry, RecordedReply } from '../../../core/contracts/queue-entry.js';

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
