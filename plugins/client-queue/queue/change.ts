import { z } from 'zod';
import type { Notice, RecordedReply } from '../../../core/contracts/queue-entry.js';
import { flat, isOpen, type QueuedEntry, type RecipientRecord } from './queued-entry.js';
import { StoredAttempt, StoredLease, StoredNotice, StoredPending, StoredReply, StoredState } from './envelope.js';

/** New state of one recipient; absent fields stay as they are. */
const RecipientChange = z.object({
  index: z.int().min(0),
  state: StoredState,
  attempts: z.exactOptional(z.int().min(0)),
  due: z.exactOptional(z.number()),
  manual: z.exactOptional(z.boolean()),
  reply: z.exactOptional(StoredReply),
});

export type RecipientChange = Readonly<z.output<typeof RecipientChange>>;

/**
 * One change of an entry: new values, never differences, so that applying it twice does no harm. `revision` is the
 * entry's revision after the change.
 */
export const EntryChange = z.object({
  uid: z.string(),
  revision: z.int(),
  recipients: z.exactOptional(z.array(RecipientChange)),
  attempt: z.exactOptional(StoredAttempt),
  lastAttempt: z.exactOptional(z.number()),
  /** All pending notices after the change. */
  notices: z.exactOptional(z.array(StoredNotice)),
  noticeCount: z.exactOptional(z.int()),
  expiresAt: z.exactOptional(z.number()),
  warnAt: z.exactOptional(z.number().nullable()),
  hold: z.exactOptional(z.string().nullable()),
  holdUntil: z.exactOptional(z.number().nullable()),
  discardAt: z.exactOptional(z.number().nullable()),
  pending: z.exactOptional(StoredPending.nullable()),
  crashes: z.exactOptional(z.int()),
  countsFrom: z.exactOptional(z.number().nullable()),
  /** A new lease. */
  lease: z.exactOptional(StoredLease),
  /** Token of a lease that ends. */
  ended: z.exactOptional(z.number()),
  finishedAt: z.exactOptional(z.number().nullable()),
});

export type EntryChange = Readonly<z.output<typeof EntryChange>>;

/** Functions that applying a change needs. */
export interface ChangeDeps {
  readonly intern: (text: string) => string;
  readonly reasonOf: (reply: RecordedReply) => string;
}

/** Applies the change to the entry. */
export function applyChange(entry: QueuedEntry, change: EntryChange, deps: ChangeDeps): void {
  entry.revision = change.revision;
  for (const recipient of change.recipients ?? []) applyToRecipient(entry, recipient, deps);
  if (change.lastAttempt !== undefined) entry.lastAttempt = change.lastAttempt;
  if (change.expiresAt !== undefined) entry.expiresAt = change.expiresAt;
  if (change.warnAt !== undefined) entry.warnAt = change.warnAt;
  if (change.hold !== undefined) entry.hold = change.hold;
  if (change.finishedAt !== undefined) entry.finishedAt = change.finishedAt;
  applyToDetails(entry, change);
  entry.tidy();
}

function applyToRecipient(entry: QueuedEntry, change: RecipientChange, deps: ChangeDeps): void {
  const { index, state, attempts, due, manual, reply } = change;
  const recipient = entry.recipients[index];
  if (recipient === undefined) return;
  recipient.state = state;
  if (attempts !== undefined) recipient.attempts = attempts;
  if (due !== undefined) recipient.due = due;
  if (manual !== undefined) recipient.manual = manual;
  if (reply !== undefined) setReply(recipient, reply, deps);
}

/** Shares repeated hosts and texts. */
export function setReply(recipient: RecipientRecord, reply: RecordedReply, { intern, reasonOf }: ChangeDeps): void {
  const { code, status, text, host, at } = reply;
  recipient.reply = { code, status: intern(status), text: intern(text), host: host && intern(host), at };
  recipient.reason = recipient.state === 'delivered' ? '' : intern(reasonOf(reply));
}

function applyToDetails(entry: QueuedEntry, change: EntryChange): void {
  const { notices, noticeCount, holdUntil, discardAt, pending, crashes, countsFrom, lease, ended, attempt } = change;
  if (notices !== undefined) entry.edit.notices = notices;
  if (noticeCount !== undefined) entry.edit.noticeCount = noticeCount;
  if (holdUntil !== undefined) entry.edit.holdUntil = holdUntil;
  if (discardAt !== undefined) entry.edit.discardAt = discardAt;
  if (pending !== undefined) entry.edit.pending = pending;
  if (crashes !== undefined) entry.edit.crashes = crashes;
  if (countsFrom !== undefined) entry.edit.countsFrom = countsFrom;
  if (ended !== undefined) entry.edit.leases = entry.details.leases.filter(({ token }) => token !== ended);
  if (lease !== undefined) entry.edit.leases = [...entry.details.leases, lease];
  if (attempt !== undefined)
    entry.edit.recent = [...entry.details.recent, flat(JSON.stringify(attempt))].slice(-keptAttempts);
}

/** Attempts that are kept per entry. */
export const keptAttempts = 20;

/** A change under construction. */
export type ChangeDraft = { -readonly [Field in keyof EntryChange]: EntryChange[Field] };

export function draftOf(entry: QueuedEntry): ChangeDraft {
  return { uid: entry.uid, revision: entry.revision + 1 };
}

/** Adds notices to the pending ones; ids are never reused. */
export function addNotices(entry: QueuedEntry, draft: ChangeDraft, notices: readonly Omit<Notice, 'id'>[]): void {
  if (notices.length === 0) return;
  const pending =
    draft.notices ?? [...entry.details.notices].map((notice) => ({ ...notice, recipients: [...notice.recipients] }));
  let count = draft.noticeCount ?? entry.details.noticeCount;
  draft.notices = [
    ...pending,
    ...notices.map((notice) => {
      count += 1;
      return { ...notice, recipients: [...notice.recipients], id: String(count) };
    }),
  ];
  draft.noticeCount = count;
}

/** The states of all recipients after the change. */
export function statesBehind(entry: QueuedEntry, draft: ChangeDraft): readonly Pick<RecipientRecord, 'state'>[] {
  const changed = new Map((draft.recipients ?? []).map(({ index, state }) => [index, state]));
  return entry.recipients.map(({ index, state }) => ({ state: changed.get(index) ?? state }));
}

/** Records the end of an entry without open recipients. */
export function finish(entry: QueuedEntry, draft: ChangeDraft, now: number): void {
  const states = statesBehind(entry, draft);
  if (!states.some(isOpen)) draft.finishedAt = now;
  if (entry.hold !== null && draft.hold === undefined && !states.some(({ state }) => state === 'held'))
    draft.hold = null;
}
