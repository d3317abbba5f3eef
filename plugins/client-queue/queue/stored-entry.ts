import { z } from 'zod';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { QueuedEntry } from './queued-entry.js';
import type { ChangeGround } from './change.js';
import {
  StoredEnvelope,
  StoredLease,
  StoredNotice,
  StoredPending,
  StoredReply,
  StoredState,
} from './stored-envelope.js';

const StoredRecipient = z.object({
  state: StoredState,
  attempts: z.int().min(0),
  due: z.number(),
  manual: z.exactOptional(z.literal(true)),
  reply: StoredReply.nullable(),
});

/** A whole entry but its history, as it stands in a snapshot. */
export const StoredEntry = z.object({
  envelope: StoredEnvelope,
  traceOffset: z.int().min(0),
  revision: z.int(),
  recipients: z.array(StoredRecipient),
  lastAttempt: z.number().nullable(),
  warnAt: z.number().nullable(),
  hold: z.string().nullable(),
  finishedAt: z.number().nullable(),
  notices: z.exactOptional(z.array(StoredNotice)),
  noticeCount: z.exactOptional(z.int()),
  pending: z.exactOptional(StoredPending),
  holdUntil: z.exactOptional(z.number()),
  crashes: z.exactOptional(z.int()),
  leases: z.exactOptional(z.array(StoredLease)),
});
export type StoredEntry = z.output<typeof StoredEntry>;

/** An entry as it was accepted. */
export const StoredAccept = z.object({ envelope: StoredEnvelope, traceOffset: z.int().min(0) });
export type StoredAccept = z.output<typeof StoredAccept>;

/** The same, for writing. */
export interface StoredAcceptInput {
  readonly envelope: NewEntry;
  readonly traceOffset: number;
}

/** A new entry; recipients wait for their first attempt, or for an operator. */
export function acceptEntry({ envelope, traceOffset }: StoredAcceptInput, ground: ChangeGround): QueuedEntry {
  const entry = new QueuedEntry(envelope, traceOffset, ground.intern);
  entry.recipients.forEach((recipient, index) => {
    const reply = envelope.recipients[index]?.lastReply;
    if (reply !== undefined) {
      recipient.reply = reply;
      recipient.reason = ground.intern(ground.reasonOf(reply));
      recipient.state = 'deferred';
    }
    if (entry.hold !== null) recipient.state = 'held';
  });
  return entry;
}

/** The same form, for writing. */
export function storeEntry(entry: QueuedEntry): object {
  const { notices, noticeCount, pending, holdUntil, crashes, leases } = entry.details;
  return {
    envelope: entry.accepted,
    traceOffset: entry.traceOffset,
    revision: entry.revision,
    recipients: entry.recipients.map(({ state, attempts, due, manual, reply }) => ({
      state,
      attempts,
      due,
      reply,
      ...(manual && { manual }),
    })),
    lastAttempt: entry.lastAttempt,
    warnAt: entry.warnAt,
    hold: entry.hold,
    finishedAt: entry.finishedAt,
    ...(notices.length > 0 && { notices }),
    ...(noticeCount > 0 && { noticeCount }),
    ...(pending !== null && { pending }),
    ...(holdUntil !== null && { holdUntil }),
    ...(crashes > 0 && { crashes }),
    ...(leases.length > 0 && { leases }),
  };
}

export function restoreEntry(stored: StoredEntry, ground: ChangeGround): QueuedEntry {
  const entry = acceptEntry(stored, ground);
  entry.revision = stored.revision;
  entry.recipients.forEach((recipient, index) => {
    const found = stored.recipients[index];
    if (found === undefined) return;
    const { intern, reasonOf } = ground;
    recipient.state = found.state;
    recipient.attempts = found.attempts;
    recipient.due = found.due;
    recipient.manual = found.manual === true;
    recipient.reply = found.reply && {
      ...found.reply,
      status: intern(found.reply.status),
      text: intern(found.reply.text),
      host: found.reply.host && intern(found.reply.host),
    };
    recipient.reason = found.reply === null ? '' : intern(reasonOf(found.reply));
  });
  const { lastAttempt, warnAt, hold, finishedAt } = stored;
  Object.assign(entry, { lastAttempt, warnAt, hold, finishedAt });
  restoreDetails(entry, stored);
  return entry;
}

function restoreDetails(entry: QueuedEntry, stored: StoredEntry): void {
  const { notices, noticeCount, pending, holdUntil, crashes, leases } = stored;
  const found = { notices, noticeCount, pending, holdUntil, crashes, leases };
  const given = Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
  if (Object.keys(given).length > 0) Object.assign(entry.edit, given);
}
