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
/** States in which somebody still has to do something. */
export const openStates = ['queued', 'active', 'deferred', 'held'] as const satisfies readonly EntryState[];

/** When the sender wants to hear of a recipient (RFC 3461 §4.1); absent: of failures and delays. */
export type Notify = 'success' | 'failure' | 'delay' | 'never';

export interface NewRecipient {
  /** As in the envelope: canonical spelling. */
  readonly address: string;
  /**
   * Recipients of one destination may share a delivery: a lower case domain, `[literal]`, `route:NAME`, or `target:NAME` for a
   * delivery target of this server.
   */
  readonly destination: string;
  /** Of `target:NAME`: where in that target the recipient goes; `data` is plain JSON. */
  readonly hop?: { readonly target: string; readonly destination: string; readonly data?: unknown };
  readonly notify?: readonly Notify[];
  /** ORCPT as it came (RFC 3461 §4.2). */
  readonly originalRecipient?: string;
  /** What its server has said already, for a recipient that comes to the queue after a first try elsewhere. */
  readonly lastReply?: RecordedReply;
}

/** An envelope as it is accepted; never changed. */
export interface NewEntry {
  /** Unique for the life of the data folder, and never used again. */
  readonly uid: string;
  /** Null for the null reverse-path. */
  readonly sender: string | null;
  readonly recipients: readonly NewRecipient[];
  readonly protocol: 'smtp' | 'lmtp';
  /** Name of the configured route, if one was asked for. */
  readonly route: string | null;
  /** RFC 3461 §4.3 and §4.4. */
  readonly ret?: 'full' | 'hdrs';
  readonly envelopeId?: string;
  /** The message has octets above 127. */
  readonly eightBit: boolean;
  readonly smtputf8: boolean;
  /** Bytes that are sent: trace header fields and message. */
  readonly size: number;
  readonly subject: string;
  readonly internetMessageId: string | null;
  readonly queuedAt: number;
  readonly expiresAt: number;
  /** When the sender is told of a delay; null for never. */
  readonly warnAt: number | null;
  /** The first attempt; `queuedAt` for at once. */
  readonly nextAttempt: number;
  /** Waits for an operator from the beginning, for this reason. */
  readonly hold?: string;
  /** Of `hold`: nobody has to see to it; it is discarded then, and nobody is told. */
  readonly discardAt?: number;
  /** Where it came from, to be shown and searched. */
  readonly source: { readonly listener: string; readonly user: string | null; readonly remoteAddress: string };
  /** A notice about another entry: that entry's uid. */
  readonly noticeOf?: string;
}

export interface RecordedReply {
  readonly code: number;
  /** Enhanced status code, RFC 3463: of the server, or ours when it gave none. */
  readonly status: string;
  readonly text: string;
  /** Host that said it; null for our own findings. */
  readonly host: string | null;
  readonly at: number;
}

export interface QueuedRecipient extends Omit<NewRecipient, 'lastReply'> {
  readonly state: EntryState;
  readonly attempts: number;
  readonly lastReply: RecordedReply | null;
  readonly nextAttempt: number | null;
}

/** One try with one server, as the entry page shows it. The queue keeps the newest of them. */
export interface Attempt {
  readonly at: number;
  readonly ms: number;
  readonly destination: string;
  /** `name[address]:port`; null when there was none to dial. */
  readonly host: string | null;
  /** `TLSv1.3`, or null for none. */
  readonly tls: string | null;
  readonly recipients: readonly string[];
  readonly outcome: 'delivered' | 'partial' | 'deferred' | 'failed' | 'lost';
  readonly reply: RecordedReply | null;
  /** The connection was lost behind the final dot: the server may have taken the message. */
  readonly possibleDuplicate?: boolean;
  /** Asked for by an operator: not counted as an attempt of the schedule. */
  readonly manual?: boolean;
}

export type NoticeKind = 'failed' | 'delayed' | 'relayed' | 'delivered';

/** Something the sender is still to be told. It stays until `noticed`. */
export interface Notice {
  /** Of its entry; makes the uid of the notice the same whenever it is composed again: `<uid>-<id>`. */
  readonly id: string;
  readonly kind: NoticeKind;
  readonly recipients: readonly string[];
  /** What an operator gave as a reason. */
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
  /** Why it is held; null when it is not. */
  readonly hold: string | null;
}

export interface Entry extends EntrySummary {
  readonly accepted: NewEntry;
  /** Oldest first; the newest of them only. */
  readonly history: readonly Attempt[];
  readonly notices: readonly Notice[];
  /** An operator's deletion or bounce that waits for the end of the attempt under way. */
  readonly pendingOperation: string | null;
  /** When what is held is discarded, if nobody has seen to it until then; null for never. */
  readonly discardAt: number | null;
  /** Changes with every change of the entry. */
  readonly version: string;
  /** False for a finished entry whose message has been removed. */
  readonly hasMessage: boolean;
}
