import type { Entry, EntryState, EntrySummary, RecordedReply } from './queue-entry.js';
import { service } from './service.js';

export const entrySorts = [
  'queuedAt',
  'nextAttempt',
  'lastAttempt',
  'expiresAt',
  'size',
  'attempts',
  'sender',
] as const;
export type EntrySort = (typeof entrySorts)[number];

/** All given criteria must match. Texts are compared case-insensitively. */
export interface EntryFilter {
  /** Absent: the open states. */
  readonly state?: readonly EntryState[];
  /** Substring of uid, sender, a recipient, subject, Message-ID or last reply. */
  readonly q?: string;
  /** Exact address, or a domain with a leading `@`; `<>` for the null reverse-path. */
  readonly sender?: string;
  /** Criteria of recipients (this one and the next three) must all match the same recipient. */
  readonly recipient?: string;
  /** The domain of an open recipient. */
  readonly domain?: string;
  /** Exact next hop of an open recipient. */
  readonly destination?: string;
  /** Normalised last reply, as in the statistics. */
  readonly reason?: string;
  /** Queued at least this many seconds ago, or at that time (ISO 8601) or before. */
  readonly olderThan?: number | string;
  /** Queued less than this many seconds ago, or after that time. */
  readonly youngerThan?: number | string;
  /** Queued at most this many seconds ago, or at that time or after. */
  readonly since?: number | string;
  readonly minAttempts?: number;
}

export interface EntryPage {
  readonly items: readonly EntrySummary[];
  /** Entries that match; or that there are more than `least`, where counting them all takes too long. */
  readonly total: number | { readonly least: number };
  readonly nextCursor: string | null;
  readonly prevCursor: string | null;
}

export interface ListOptions {
  readonly filter: EntryFilter;
  readonly limit: number;
  /** Opaque; overrides `page`. */
  readonly cursor?: string;
  /** From 1. */
  readonly page?: number;
  readonly sort?: EntrySort;
  readonly order?: 'asc' | 'desc';
}

/** Of the whole queue, or of the entries and recipients that a filter matches. */
export interface QueueStatistics {
  /** When it was counted. */
  readonly at: number;
  /** Entries. */
  readonly byState: Readonly<Record<EntryState, number>>;
  /**
   * Open recipients by destination, the largest first, with the ages of their entries as in `qshape`. A store may leave
   * out the smallest of very many, here and of senders and reasons, and the replies of small destinations.
   */
  readonly byDestination: readonly {
    readonly destination: string;
    readonly total: number;
    /** Counts by `ageLimits`: younger than the first, than the second …, and older than the last. */
    readonly ages: readonly number[];
    readonly oldest: number;
    readonly active: number;
    readonly lastReply: RecordedReply | null;
  }[];
  /** Destinations with open recipients, where not all are listed. */
  readonly destinationCount?: number;
  /** Minutes. */
  readonly ageLimits: readonly number[];
  /** Open recipients and their entries by sender, in lower case, the most recipients first. */
  readonly bySender: readonly {
    /** Null for the null reverse-path. */
    readonly sender: string | null;
    readonly count: number;
    readonly messages: number;
  }[];
  /** Senders of open recipients, where not all are listed. */
  readonly senderCount?: number;
  /** Open recipients by normalised last reply, the most frequent first. */
  readonly byReason: readonly { readonly reason: string; readonly count: number; readonly example: RecordedReply }[];
  readonly open: number;
  readonly bytes: number;
  /** When the oldest open entry was queued. */
  readonly oldest: number | null;
  readonly quarantined: number;
  /** Entries that are held because of damage. */
  readonly damaged?: number;
}

export type EntrySelector =
  /**
   * With `isExpected`: only while each of them exists and has such a version. With `within`: only the recipients that
   * match its criteria of recipients; its other criteria are ignored.
   */
  | {
      readonly uids: readonly string[];
      readonly isExpected?: ((version: string) => boolean) | undefined;
      readonly within?: EntryFilter | undefined;
    }
  /**
   * Criteria of recipients leave the other recipients alone. With `expect`: only while the filter matches that many
   * entries.
   */
  | { readonly filter: EntryFilter; readonly expect?: number | undefined };

export type Selector = EntrySelector | { readonly recipients: RecipientIndexes };

/** Indexes of recipients by the uid of their entry. */
export type RecipientIndexes = Readonly<Record<string, readonly number[]>>;

export type Mutation =
  | { readonly operation: 'retry'; readonly at?: number }
  | { readonly operation: 'delete' }
  | { readonly operation: 'bounce'; readonly reason?: string; readonly status?: string }
  | { readonly operation: 'hold'; readonly reason?: string; readonly until?: number }
  | { readonly operation: 'release' };

/** Effect of a mutation. */
export interface MutationReach {
  readonly recipients: number;
  /** Entries with at least one such recipient. */
  readonly messages: number;
  /** Open recipients of the same entries that stay unchanged. */
  readonly otherRecipients: number;
}

export interface MutationPreview extends MutationReach {
  /** Some of the entries that would change, and the recipients concerned. */
  readonly sample: readonly { readonly entry: EntrySummary; readonly addresses: readonly string[] }[];
}

/** How far a mutation is, after each batch that is durable. */
export interface MutationProgress extends MutationReach {
  readonly total: number;
  /** Entries that were looked at, changed or not. */
  readonly done: number;
}

/** Follows a mutation of many entries. */
export interface MutationRun {
  /** Ends the mutation before its next batch. */
  readonly signal: AbortSignal;
  readonly progress: (progress: MutationProgress) => void;
}

export interface MutationResult extends MutationReach {
  readonly requested: number;
  readonly changed: number;
  /** Of a hold: the recipients that were not held before. */
  readonly newlyHeld?: RecipientIndexes;
  readonly results: readonly {
    readonly uid: string;
    /** `active`: an attempt is in progress; the detail says what happens after it. */
    readonly outcome: 'done' | 'notFound' | 'active';
    readonly detail: string | null;
  }[];
}

/** The queue of mail for other servers, as plugins other than its owner see it. */
export interface QueuedMail {
  find(uid: string): Promise<Entry | undefined>;
  list(options: ListOptions): Promise<EntryPage>;
  count(filter: EntryFilter): Promise<number>;
  /** With a filter: of the entries that match, and of their recipients that match its criteria of recipients. */
  statistics(now: number, filter?: EntryFilter): Promise<QueueStatistics>;
  /** Open entries. May lag behind. */
  readonly size: number;
}
export const relayQueue = service<QueuedMail>('postern.relay-queue');
