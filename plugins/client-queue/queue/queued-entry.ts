import {
  type EntryState,
  type NewEntry,
  type Notice,
  openStates,
  type RecordedReply,
} from '../../../core/contracts/queue-entry.js';
import { type Due, nowhere } from './due-heap.js';
import { decodeEnvelope } from './envelope.js';

/** An operator's request that was made while an attempt was running. */
export interface PendingOperation {
  readonly operation: 'delete' | 'bounce' | 'hold';
  readonly reason?: string;
  readonly status?: string;
  readonly until?: number;
  /** Indexes of the recipients; absent: all. */
  readonly recipients?: readonly number[];
}

/** A lease as stored in the entry. */
export interface EntryLease {
  readonly token: number;
  readonly at: number;
  readonly recipients: readonly number[];
}

/** One recipient in memory. There may be very many, so repeated values are shared. */
export class RecipientRecord implements Due {
  readonly entry: QueuedEntry;
  readonly index: number;
  readonly address: string;
  readonly destination: string;
  state: EntryState = 'queued';
  attempts = 0;
  /** Time of the next attempt; meaningless for a finished recipient. */
  due: number;
  place = nowhere;
  /** Requested by an operator: the next attempt does not count. */
  manual = false;
  reply: RecordedReply | null = null;
  /** Normalised reply; empty for none. */
  reason = '';

  constructor(entry: QueuedEntry, index: number, address: string, destination: string, due: number) {
    this.entry = entry;
    this.index = index;
    this.address = address;
    this.destination = destination;
    this.due = due;
  }
}

/** Fields that most entries do not have. */
class EntryDetails {
  notices: readonly Notice[] = [];
  noticeCount = 0;
  pending: PendingOperation | null = null;
  holdUntil: number | null = null;
  discardAt: number | null = null;
  /** Processes that died in a row while they held a lease of the entry. */
  crashes = 0;
  /** Start of its lifetime if it is not `queuedAt`: it was accepted while the clock was ahead. */
  countsFrom: number | null = null;
  leases: readonly EntryLease[] = [];
  /** Attempts since the last snapshot, as JSON, oldest first. */
  recent: readonly string[] = [];
}

const noDetails: Readonly<EntryDetails> = Object.freeze(new EntryDetails());

/** Constructor arguments of an entry. */
interface EntryForm {
  readonly uid: string;
  readonly sender: string | null;
  readonly size: number;
  readonly traceOffset: number;
  readonly checksum?: number;
  readonly queuedAt: number;
  readonly expiresAt: number;
  readonly warnAt: number | null;
  readonly hold?: string | null;
  readonly recipients: readonly { readonly address: string; readonly destination: string; readonly due: number }[];
  /** As `encodeEnvelope` returns it. */
  readonly envelope: string;
}

/** An entry in memory: what lists and the schedule need. Its history is in the snapshot. */
export class QueuedEntry {
  readonly uid: string;
  readonly sender: string | null;
  readonly size: number;
  /** Where the trace header fields begin in the message file. */
  readonly traceOffset: number;
  /** CRC-32 of the content to send; undefined in entries of older versions. */
  readonly checksum: number | undefined;
  readonly queuedAt: number;
  expiresAt: number;
  readonly recipients: readonly RecipientRecord[];
  /** The other accepted fields, as JSON. */
  readonly envelope: string;
  /** Rises by one with each change. */
  revision = 1;
  warnAt: number | null;
  lastAttempt: number | null = null;
  hold: string | null;
  finishedAt: number | null = null;
  /** Its history in the snapshot; length 0 for none. */
  historyAt = 0;
  historyBytes = 0;
  #details: EntryDetails | undefined;

  constructor(given: EntryForm) {
    this.uid = given.uid;
    this.sender = given.sender;
    this.size = given.size;
    this.traceOffset = given.traceOffset;
    this.checksum = given.checksum;
    this.queuedAt = given.queuedAt;
    this.expiresAt = given.expiresAt;
    this.warnAt = given.warnAt;
    this.hold = given.hold ?? null;
    this.envelope = given.envelope;
    this.recipients = given.recipients.map(
      ({ address, destination, due }, index) => new RecipientRecord(this, index, address, destination, due),
    );
  }

  /** Read-only; `edit` returns a writable one. */
  get details(): Readonly<EntryDetails> {
    return this.#details ?? noDetails;
  }

  get edit(): EntryDetails {
    this.#details ??= new EntryDetails();
    return this.#details;
  }

  /** Frees the details when they are no longer needed. */
  tidy(): void {
    const { notices, noticeCount, crashes, leases, recent } = this.details;
    const { pending, holdUntil, discardAt, countsFrom } = this.details;
    const used = notices.length + noticeCount + crashes + leases.length + recent.length;
    const unset = [pending, holdUntil, discardAt, countsFrom].every((one) => one === null);
    if (used === 0 && unset) this.#details = undefined;
  }

  get accepted(): NewEntry {
    return decodeEnvelope(this);
  }

  get state(): EntryState {
    return stateOf(this.recipients);
  }

  get isOpen(): boolean {
    return this.recipients.some(isOpen);
  }

  get attempts(): number {
    return this.recipients.reduce((most, { attempts }) => Math.max(most, attempts), 0);
  }

  get nextAttempt(): number | null {
    let next: number | null = null;
    for (const recipient of this.recipients) {
      if (isWaiting(recipient) && (next === null || recipient.due < next)) next = recipient.due;
    }
    return next;
  }

  /** The newest reply of all recipients. */
  get lastReply(): RecordedReply | null {
    let last: RecordedReply | null = null;
    for (const { reply } of this.recipients) if (reply !== null && (last === null || reply.at >= last.at)) last = reply;
    return last;
  }

  /** True when the entry is complete and its message can be removed. */
  get isDone(): boolean {
    return !this.isOpen && this.details.notices.length === 0;
  }
}

/** Changes with every change of the entry: the entity tag. */
export const versionOf = ({ revision }: QueuedEntry): string => String(revision);

const open: ReadonlySet<EntryState> = new Set(openStates);

export function isOpen({ state }: { readonly state: EntryState }): boolean {
  return open.has(state);
}

/** The recipient waits for an attempt. */
export function isWaiting({ state }: { readonly state: EntryState }): boolean {
  return state === 'queued' || state === 'deferred';
}

/** The state of a waiting recipient. */
export function waitingState({ attempts, reply }: Pick<RecipientRecord, 'attempts' | 'reply'>): EntryState {
  return attempts > 0 || reply !== null ? 'deferred' : 'queued';
}

/** Precedence of states for an entry: in flight, then waiting, then failed. Their places are numbers in PostgreSQL. */
export const statesByWeight: readonly EntryState[] = [
  'active',
  'deferred',
  'queued',
  'held',
  'bounced',
  'expired',
  'deleted',
  'delivered',
];

function stateOf(recipients: readonly { readonly state: EntryState }[]): EntryState {
  const [first] = recipients;
  if (first !== undefined && recipients.length === 1) return first.state;
  const states = new Set(recipients.map(({ state }) => state));
  return statesByWeight.find((state) => states.has(state)) ?? 'delivered';
}

const longest = 160;

/** Variable parts of replies with their placeholders, in this order; all run in linear time. */
const differences: readonly (readonly [pattern: RegExp, placeholder: string])[] = [
  [/\bhttps?:\/\/[^\s<>()"']+/gi, 'URL'],
  [/[^\s<>()[\]"',;:=]+@[^\s<>()[\]"',;:]+/g, 'ADDRESS'],
  [/\[?\b(?:\d{1,3}\.){3}\d{1,3}\b\]?/g, 'IP'],
  [/\[?(?:IPv6:)?(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])\]?/gi, 'IP'],
  [/\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi, 'ID'],
  // Mixed letters and digits, or parts joined by a single mark, are an id; words and dates are not.
  [/(?<![\w.-])(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])[\w-]{6,}(?:\.[\w-]+)*(?![\w-])/g, 'ID'],
  [/\b0x[0-9a-f]+\b/gi, 'N'],
  [/\d+(?:[.,:]\d+)*/g, 'N'],
];

/**
 * A reply without variable parts: addresses, networks, ids, numbers. Mail that waits for the same reason is counted
 * together. Code and enhanced status code stay.
 */
export function normalReason({ code, status, text }: Pick<RecordedReply, 'code' | 'status' | 'text'>): string {
  const line = text
    .slice(0, 4 * longest)
    .replace(/\s+/g, ' ')
    .trim();
  const words = line.startsWith(`${status} `) ? line.slice(status.length + 1) : line;
  let normal = words;
  for (const [pattern, placeholder] of differences) normal = normal.replace(pattern, placeholder);
  return `${code} ${status} ${normal}`.trim().slice(0, longest);
}

/** A compact copy: a slice of a larger text keeps all of it in memory, and a concatenation all of its parts. */
export function flat(text: string): string {
  return Buffer.from(text).toString();
}

/** Keeps one copy of repeated texts: hosts, domains, replies. Bounded; a duplicate does no harm. */
export class Interned {
  readonly #most: number;
  #texts = new Map<string, string>();
  #before = new Map<string, string>();

  constructor(most = 20_000) {
    this.#most = most;
  }

  of(text: string): string {
    const found = this.#texts.get(text);
    if (found !== undefined) return found;
    const known = this.#before.get(text) ?? flat(text);
    if (this.#texts.size >= this.#most) {
      this.#before = this.#texts;
      this.#texts = new Map();
    }
    this.#texts.set(known, known);
    return known;
  }
}

export type RecipientTest = (recipient: RecipientRecord) => boolean;
