import type { EntryState, NewEntry, RecordedReply } from './queue-entry.js';

/** What has become of one recipient of an entry, durably. Times are milliseconds since the epoch. */
export interface QueueOutcome {
  readonly uid: string;
  /** Null for the null reverse-path. */
  readonly sender: string | null;
  readonly address: string;
  readonly destination: string;
  readonly state: Exclude<EntryState, 'queued' | 'active'>;
  /** What was said; null where nobody has said anything. */
  readonly reply: RecordedReply | null;
  /** Of `held`: why. */
  readonly hold: string | null;
  readonly attempts: number;
  /** Of `deferred`; null else. */
  readonly nextAttempt: number | null;
  readonly at: number;
  /** All else that was accepted; read only when somebody asks. */
  readonly accepted: () => NewEntry;
}
