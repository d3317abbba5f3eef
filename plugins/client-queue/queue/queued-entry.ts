import {
  type EntryState,
  type NewEntry,
  type Notice,
  openStates,
  type RecordedReply,
} from '../../../core/contracts/queue-entry.js';
import { type Due, nowhere } from './due-heap.js';
import { decodeEnvelope } from './envelope.js';

/** What an operator asked for while an attempt was under way. */
export interface PendingOperation {
  readonly operation: 'delete' | 'bounce' | 'hold';
  readonly reason?: string;
  readonly status?: string;
  readonly until?: number;
  /** Indexes of the recipients it is for; absent: all. */
  readonly recipients?: readonly number[];
}

/** A lease as the entry keeps it. */
export interface EntryLease {
  readonly token: number;
  readonly at: number;
  readonly recipients: readonly number[];
}

/** One recipient in memory. There are as many as there is mail, so that what is shared is shared. */
export class RecipientRecord implements Due {
  readonly entry: QueuedEntry;
  readonly index: number;
  readonly address: string;
  readonly destination: string;
  state: EntryState = 'queued';
  attempts = 0;
  /** When it is to be tried; of a finished one, without meaning. */
  due: number;
  place = nowhere;
  /** Asked for by an operator: the next attempt does not count. */
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

/** What most entries have none of. */
class EntryDetails {
  notices: readonly Notice[] = [];
  noticeCount = 0;
  pending: PendingOperation | null = null;
  holdUntil: number | null = null;
  discardAt: number | null = null;
  /** How many processes have died while they held a lease of it, one after the other. */
  crashes = 0;
  /** Its time counts from then, and not from `queuedAt`: it was accepted while the clock was ahead. */
  countsFrom: number | null = null;
  leases: readonly EntryLease[] = [];
  /** Attempts since the last snapshot, as JSON, oldest first. */
  recent: readonly string[] = [];
}

const noDetails: Readonly<EntryDetails> = Object.freeze(new EntryDetails());

/** What an entry is made of. */
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
  /** As `encodeEnvelope` gives it. */
  readonly envelope: string;
}

/** An entry in memory: what lists and the schedule need. Its history lies in the snapshot. */
export class QueuedEntry {
  readonly uid: string;
  readonly sender: string | null;
  readonly size: number;
  /** Where the trace header fields begin in the message file. */
  readonly traceOffset: number;
  /** CRC-32 of what is sent; undefined in entries of older versions. */
  readonly checksum: number | undefined;
  readonly queuedAt: number;
  expiresAt: number;
  readonly recipients: readonly RecipientRecord[];
  /** All else that was accepted, as JSON. */
  readonly envelope: string;
  /** Rises by one with each change. */
  revision = 1;
  warnAt: number | null;
  lastAttempt: number | null = null;
  hold: string | null;
  finishedAt: number | null = null;
  /** Its history in the snapshot; no bytes for none. */
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

  /** Not to be changed; `edit` is for that. */
  get details(): Readonly<EntryDetails> {
    return this.#details ?? noDetails;
  }

  get edit(): EntryDetails {
    this.#details ??= new EntryDetails();
    return this.#details;
  }

  /** Gives the memory of details back that nobody needs any more. */
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

  /** The newest of all recipients. */
  get lastReply(): RecordedReply | null {
    let last: RecordedReply | null = null;
    for (const { reply } of this.recipients) if (reply !== null && (last === null || reply.at >= last.at)) last = reply;
    return last;
  }

  /** True when nothing of it is needed but its memory. */
  get isDone(): boolean {
    return !this.isOpen && this.details.notices.length === 0;
  }
}

/** Another one after each change: the entity tag. */
export const versionOf = ({ revision }: QueuedEntry): string => String(revision);

const open: ReadonlySet<EntryState> = new Set(openStates);

export function isOpen({ state }: { readonly state: EntryState }): boolean {
  return open.has(state);
}

/** Somebody will try it when its time has come. */
export function isWaiting({ state }: { readonly state: EntryState }): boolean {
  return state === 'queued' || state === 'deferred';
}

/** The state in which a recipient waits. */
export function waitingState({ attempts, reply }: Pick<RecipientRecord, 'attempts' | 'reply'>): EntryState {
  return attempts > 0 || reply !== null ? 'deferred' : 'queued';
}

/** Of several states the one that says most: what goes on, what waits, and then what went wrong. */
const byWeight: readonly EntryState[] = [
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
  return byWeight.find((state) => states.has(state)) ?? 'delivered';
}

const longest = 160;

/** What differs from mail to mail, and what stands for it. In this order; all of them run in linear time. */
const differences: readonly (readonly [pattern: RegExp, placeholder: string])[] = [
  [/\bhttps?:\/\/[^\s<>()"']+/gi, 'URL'],
  [/[^\s<>()[\]"',;:=]+@[^\s<>()[\]"',;:]+/g, 'ADDRESS'],
  [/\[?\b(?:\d{1,3}\.){3}\d{1,3}\b\]?/g, 'IP'],
  [/\[?(?:IPv6:)?(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])\]?/gi, 'IP'],
  [/\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi, 'ID'],
  // Letters and digits mixed, or punctuated by a single mark, are an id of somebody; words and dates are not.
  [/(?<![\w.-])(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])[\w-]{6,}(?:\.[\w-]+)*(?![\w-])/g, 'ID'],
  [/\b0x[0-9a-f]+\b/gi, 'N'],
  [/\d+(?:[.,:]\d+)*/g, 'N'],
];

/**
 * A reply without what differs from mail to mail: addresses, networks, ids, numbers. So that mail which waits for the same
 * reason is counted together. Code and enhanced status code stay.
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

/** A copy of its own: a piece of a larger text keeps all of that in memory, and one that was joined all of its pieces. */
export function flat(text: string): string {
  return Buffer.from(text).toString();
}

/** Keeps one copy of texts that come again and again: hosts, domains, replies. Bounded; an old copy does no harm. */
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
