import type { Attempt, NewEntry, Notice, RecordedReply } from '../../../core/contracts/queue-entry.js';

/** The right to try some recipients of an entry that share a destination. */
export interface Lease {
  readonly uid: string;
  /** Recipients by their index in the entry. */
  readonly recipients: readonly { readonly index: number; readonly address: string; readonly attempts: number }[];
  readonly destination: string;
  readonly entry: NewEntry;
  /** Fencing token: an outcome with an older one is refused. */
  readonly token: number;
  readonly manual: boolean;
  /** False when no earlier attempt can have delivered any of it unnoticed; absent when unknown. */
  readonly interrupted?: boolean;
}

export interface ClaimOptions {
  readonly now: number;
  readonly limit: number;
  /** Maximum recipients of one lease; the entry's others get further leases. Unbounded when absent. */
  readonly maxRecipients?: number;
  /** Remaining leases of that destination; called for each claim. */
  readonly room: (destination: string) => number;
  /** Destinations with the same servers, which share room and turns; each is its own site when absent. */
  readonly sites?: ClaimSites;
  /** Milliseconds after which the lease expires. */
  readonly leaseMs: number;
}

export interface ClaimSites {
  /** The site of a destination; while undefined, the destination gets nothing. */
  of(destination: string): string | undefined;
  /** Remaining leases of that site; called for each claim. */
  room(site: string): number;
}

export interface RecipientResult {
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
  readonly results: readonly RecipientResult[];
  readonly notices?: readonly Omit<Notice, 'id'>[];
}
