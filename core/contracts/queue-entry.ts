import type { Notify } from '../smtp/protocol/parameters.js';

/** Entries of the relay queue. Times are milliseconds since the epoch. */

export const entryStates = [
  'queued',
  'active',
  'deferred',
  'held',
  'delivered',
  'bounced',
  'expired',
  'deleted',
] as const;
export type EntryState = (typeof entryStates)[number];
/** States in which an entry is not finished. */
export const openStates = ['queued', 'active', 'deferred', 'held'] as const satisfies readonly EntryState[];

export interface NewRecipient {
  /** Canonical spelling, as in the envelope. */
  readonly address: string;
  /**
   * Recipients of one destination may share a delivery: a lower case domain, `[literal]`, `route:NAME`, or
   * `target:NAME` for a delivery target of this server.
   */
  readonly destination: string;
  /** Of `target:NAME`: where in that target the recipient goes; `data` is plain JSON. */
  readonly hop?: { readonly target: string; readonly destination: string; readonly data?: unknown };
  readonly notify?: readonly Notify[];
  /** ORCPT as received (RFC 3461 §4.2). */
  readonly originalRecipient?: string;
  /** The reply of its server, for a recipient that was first tried elsewhere. */
  readonly lastReply?: RecordedReply;
}

/** An accepted envelope; immutable. */
export interface NewEntry {
  /** Unique for the life of the data folder. */
  readonly uid: string;
  /** Null for the null reverse-path. */
  readonly sender: string | null;
  readonly recipients: readonly NewRecipient[];
  readonly protocol: 'smtp' | 'lmtp';
  /** Name of the configured route, if requested. */
  readonly route: string | null;
  /** RFC 3461 §4.3 and §4.4. */
  readonly ret?: 'full' | 'hdrs';
  readonly envelopeId?: string;
  /** The message has octets above 127. */
  readonly eightBit: boolean;
  readonly smtputf8: boolean;
  /** Size of trace header fields and message. */
  readonly size: number;
  readonly subject: string;
  readonly internetMessageId: string | null;
  readonly queuedAt: number;
  readonly expiresAt: number;
  /** When the sender is notified of a delay; null for never. */
  readonly warnAt: number | null;
  /** The first attempt; `queuedAt` for now. */
  readonly nextAttempt: number;
  /** Held from the beginning, for this reason. */
  readonly hold?: string;
  /** Of `hold`: discarded then, without notifying anyone. */
  readonly discardAt?: number;
  /** Origin, for display and search. */
  readonly source: { readonly listener: string; readonly user: string | null; readonly remoteAddress: string };
  /** Nothing entitles its client to the sender: it came to an MX without signing in. */
  readonly stranger?: true;
  /** Of a DSN: the uid of the entry that it is about. */
  readonly noticeOf?: string;
}

export interface RecordedReply {
  readonly code: number;
  /** Enhanced status code, RFC 3463: the server's, or ours without one. */
  readonly status: string;
  readonly text: string;
  /** Host that replied; null for our own findings. */
  readonly host: string | null;
  readonly at: number;
}

export interface QueuedRecipient extends Omit<NewRecipient, 'lastReply'> {
  readonly state: EntryState;
  readonly attempts: number;
  readonly lastReply: RecordedReply | null;
  readonly nextAttempt: number | null;
}

/** One attempt with one server, as the entry page shows it. The queue keeps the newest ones. */
export interface Attempt {
  readonly at: number;
  readonly ms: number;
  readonly destination: string;
  /** `name[address]:port`; null when none was dialled. */
  readonly host: string | null;
  /** `TLSv1.3`, or null for none. */
  readonly tls: string | null;
  readonly recipients: readonly string[];
  readonly outcome: 'delivered' | 'partial' | 'deferred' | 'failed' | 'lost';
  readonly reply: RecordedReply | null;
  /** The connection was lost after the final dot: the server may have the message. */
  readonly possibleDuplicate?: boolean;
  /** Demanded by an operator: not counted as an attempt of the schedule. */
  readonly manual?: boolean;
}

export type NoticeKind = 'failed' | 'delayed' | 'relayed' | 'delivered';

/** A pending notification of the sender. It stays until `noticed`. */
export interface Notice {
  /** Unique in its entry; keeps the uid of the DSN stable when it is composed again: `<uid>-<id>`. */
  readonly id: string;
  readonly kind: NoticeKind;
  readonly recipients: readonly string[];
  /** Reason given by an operator. */
  readonly reason?: string;
  readonly at: number;
}

/** What lists show. */
export interface EntrySummary {
  readonly uid: string;
  readonly state: EntryState;
  readonly sender: string | null;
  readonly recipients: readonly QueuedRecipient[];
  readonly route: string | null;
  readonly protocol: 'smtp' | 'lmtp';
  readonly size: number;
  readonly subject: string;
  readonly internetMessageId: string | null;
  readonly queuedAt: number;
  readonly lastAttempt: number | null;
  readonly nextAttempt: number | null;
  readonly expiresAt: number;
  readonly attempts: number;
  readonly lastReply: RecordedReply | null;
  /** Why it is held; else null. */
  readonly hold: string | null;
}

export interface Entry extends EntrySummary {
  readonly accepted: NewEntry;
  /** Oldest first; only the newest ones. */
  readonly history: readonly Attempt[];
  readonly notices: readonly Notice[];
  /** Deletion or bounce by an operator that waits for the end of the current attempt. */
  readonly pendingOperation: string | null;
  /** When a held entry is discarded; null for never. */
  readonly discardAt: number | null;
  /** Changes with every change of the entry. */
  readonly version: string;
  /** False for a finished entry whose message was removed. */
  readonly hasMessage: boolean;
}
