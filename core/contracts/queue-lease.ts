import type { Attempt, NewEntry, Notice, RecordedReply } from './queue-entry.js';

/** The right to try some recipients of an entry that share a destination. */
export interface Lease {
  readonly uid: string;
  /** Recipients by their place in the entry. */
  readonly recipients: readonly { readonly index: number; readonly address: string; readonly attempts: number }[];
  readonly destination: string;
  readonly entry: NewEntry;
  /** Fencing token: an outcome with an older one is refused. */
  readonly token: number;
  readonly manual: boolean;
}

export interface ClaimOptions {
  readonly now: number;
  readonly limit: number;
  /** How many more leases that destination may have now; asked again for each claim. */
  readonly room: (destination: string) => number;
  /** After that many milliseconds the lease may be given to another. */
  readonly leaseMs: number;
}

export interface RecipientResult {
  readonly index: number;
  readonly state: 'delivered' | 'deferred' | 'bounced' | 'expired' | 'held';
  readonly reply: RecordedReply | null;
  /** Of `deferred`. */
  readonly nextAttempt?: number;
  /** Of `held`. */
  readonly hold?: string;
}

export interface Settlement {
  /** Absent when nothing was tried: the lease is given back and no attempt is counted. */
  readonly attempt?: Attempt;
  /** One for each recipient of the lease; those left out are given back as they were. */
  readonly results: readonly RecipientResult[];
  readonly notices?: readonly Omit<Notice, 'id'>[];
}
