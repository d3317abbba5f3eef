import { z } from 'zod';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { type ChangeDeps, setReply } from './change.js';
import { encodeEnvelope, StoredEnvelope, StoredLease, StoredNotice, StoredPending, StoredState } from './envelope.js';
import { flat, QueuedEntry, type RecipientRecord } from './queued-entry.js';

/**
 * Address, destination, state, attempts, due time, 1 if an operator requested it, and the reply: code, status, text,
 * host, time.
 */
const StoredRecipient = z.tuple([
  z.string(),
  z.string(),
  StoredState,
  z.int().min(0),
  z.number(),
  z.number(),
  z.tuple([z.number(), z.string(), z.string(), z.string().nullable(), z.number()]).nullable(),
]);

/** An entry in a snapshot, without its history and the parts of its envelope that lists seldom need. */
export const StoredEntry = z.object({
  uid: z.string().min(1),
  sender: z.string().nullable(),
  size: z.number().min(0),
  queuedAt: z.number(),
  expiresAt: z.number(),
  traceOffset: z.int().min(0),
  /** CRC-32 of the content to send; absent in entries of older versions. */
  checksum: z.exactOptional(z.number()),
  revision: z.int(),
  recipients: z.array(StoredRecipient).min(1),
  lastAttempt: z.number().nullable(),
  warnAt: z.number().nullable(),
  hold: z.string().nullable(),
  finishedAt: z.number().nullable(),
  notices: z.exactOptional(z.array(StoredNotice)),
  noticeCount: z.exactOptional(z.int()),
  pending: z.exactOptional(StoredPending),
  holdUntil: z.exactOptional(z.number()),
  discardAt: z.exactOptional(z.number()),
  crashes: z.exactOptional(z.int()),
  countsFrom: z.exactOptional(z.number()),
  leases: z.exactOptional(z.array(StoredLease)),
});
export type StoredEntry = z.output<typeof StoredEntry>;

/** An accepted entry. */
export const StoredAccept = z.object({
  envelope: StoredEnvelope,
  traceOffset: z.int().min(0),
  checksum: z.exactOptional(z.number()),
});
export type StoredAccept = z.output<typeof StoredAccept>;

/** The same, for writing. */
export interface StoredAcceptInput {
  readonly envelope: NewEntry;
  readonly traceOffset: number;
  readonly checksum?: number;
}

/** A new entry; recipients wait for their first attempt or, when held, for an operator. */
export function acceptEntry({ envelope, traceOffset, checksum }: StoredAcceptInput, deps: ChangeDeps): QueuedEntry {
  const recipients = envelope.recipients.map(({ address, destination }) => {
    return { address: flat(address), destination: deps.intern(destination), due: envelope.nextAttempt };
  });
  const sender = envelope.sender && deps.intern(envelope.sender);
  const form = {
    ...envelope,
    uid: flat(envelope.uid),
    sender,
    traceOffset,
    recipients,
    envelope: flat(encodeEnvelope(envelope)),
  };
  const entry = new QueuedEntry({ ...form, ...(checksum !== undefined && { checksum }) });
  if (envelope.discardAt !== undefined) entry.edit.discardAt = envelope.discardAt;
  entry.recipients.forEach((recipient, index) => {
    const reply = envelope.recipients[index]?.lastReply;
    if (reply !== undefined) {
      setReply(recipient, reply, deps);
      recipient.state = 'deferred';
    }
    if (entry.hold !== null) recipient.state = 'held';
  });
  return entry;
}

/** The entry in its stored form. */
export function storeEntry(entry: QueuedEntry): object {
  const { uid, sender, size, queuedAt, expiresAt, traceOffset, checksum, revision } = entry;
  const { lastAttempt, warnAt, hold, finishedAt } = entry;
  const { notices, noticeCount, pending, holdUntil, discardAt, crashes, countsFrom, leases } = entry.details;
  const always = {
    uid,
    sender,
    size,
    queuedAt,
    expiresAt,
    traceOffset,
    revision,
    lastAttempt,
    warnAt,
    hold,
    finishedAt,
  };
  return {
    ...always,
    ...(checksum !== undefined && { checksum }),
    recipients: entry.recipients.map(storeRecipient),
    ...(notices.length > 0 && { notices }),
    ...(noticeCount > 0 && { noticeCount }),
    ...(pending !== null && { pending }),
    ...(holdUntil !== null && { holdUntil }),
    ...(discardAt !== null && { discardAt }),
    ...(crashes > 0 && { crashes }),
    ...(countsFrom !== null && { countsFrom }),
    ...(leases.length > 0 && { leases }),
  };
}

function storeRecipient({ address, destination, state, attempts, due, manual, reply }: RecipientRecord): unknown {
  const said = reply && [reply.code, reply.status, reply.text, reply.host, reply.at];
  return [address, destination, state, attempts, due, manual ? 1 : 0, said];
}

/** @param envelope as returned by `encodeEnvelope` */
export function restoreEntry(stored: StoredEntry, envelope: string, deps: ChangeDeps): QueuedEntry {
  const { intern } = deps;
  const entry = new QueuedEntry({
    ...stored,
    sender: stored.sender && intern(stored.sender),
    recipients: stored.recipients.map(([address, destination, , , due]) => {
      return { address, destination: intern(destination), due };
    }),
    envelope,
  });
  entry.recipients.forEach((recipient, index) => {
    const [, , state = 'queued', attempts = 0, , manual = 0, reply = null] = stored.recipients[index] ?? [];
    recipient.state = state;
    recipient.attempts = attempts;
    recipient.manual = manual === 1;
    if (reply === null) return;
    const [code, status, text, host, at] = reply;
    setReply(recipient, { code, status, text, host, at }, deps);
  });
  entry.revision = stored.revision;
  entry.lastAttempt = stored.lastAttempt;
  entry.finishedAt = stored.finishedAt;
  restoreDetails(entry, stored);
  return entry;
}

function restoreDetails(entry: QueuedEntry, stored: StoredEntry): void {
  const { notices, noticeCount, pending, holdUntil, discardAt, crashes, countsFrom, leases } = stored;
  if (notices !== undefined) entry.edit.notices = notices;
  if (noticeCount !== undefined) entry.edit.noticeCount = noticeCount;
  if (pending !== undefined) entry.edit.pending = pending;
  if (holdUntil !== undefined) entry.edit.holdUntil = holdUntil;
  if (discardAt !== undefined) entry.edit.discardAt = discardAt;
  if (crashes !== undefined) entry.edit.crashes = crashes;
  if (countsFrom !== undefined) entry.edit.countsFrom = countsFrom;
  if (leases !== undefined) entry.edit.leases = leases;
}
