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
  /** False when no earlier attempt can have delivered any of it unseen; absent when that is not known. */
  readonly interrupted?: boolean;
}

export interface ClaimOptions {
  readonly now: number;
  readonly limit: number;
  /** Recipients of one lease at most; the others of the entry are given out in further ones. No bound when absent. */
  readonly maxRecipients?: number;
  /** How many more leases that destination may have now; asked again for each claim. */
  readonly room: (destination: string) => number;
  /** Destinations with the same servers, which share room and take turns; each is one of its own when absent. */
  readonly sites?: ClaimSites;
  /** After that many milliseconds the lease may be given to another. */
  readonly leaseMs: number;
}

export interface ClaimSites {
  /** The site of a destination; while it is undefined the destination gets nothing. */
  of(destination: string): string | undefined;
  /** How many more leases that site may have now; asked again for each claim. */
  room(site: string): number;
}

export interface RecipientResult {
  readonly index: number;
  readonly state: 'delivered' | 'deferred' | 'bounced' | 'expired' | 'held';
  readonly reply: RecordedReply | null;
  /** Of `deferred`. */
  readonly nextAttempt?: number;
  /** Of `held`: why, and when it is discarded if nobody sees to it. */
  readonly hold?: string;
  readonly discardAt?: number;
}

export interface Settlement {
  /** Absent when nothing was tried: the lease is given back and no attempt is counted. */
  readonly attempt?: Attempt;
  /** One for each recipient of the lease; those left out are given back as they were. */
  readonly results: readonly RecipientResult[];
  readonly notices?: readonly Omit<Notice, 'id'>[];
}
