import { deadLetterReason } from '../delivery/attempts.js';
import type { Change, RecipientChange } from './change.js';
import { addNotices, draftOf, finish, statesBehind, type Draft } from './draft.js';
import { expiredReply } from './expired-reply.js';
import { released } from './mutation.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

export interface Moment {
  readonly now: number;
  /** The clock has gone steadily for so long that its word alone ends an entry. */
  readonly steady: boolean;
  /** It was seen to jump a short while ago: its word ends none. */
  readonly jumped: boolean;
  /** Mail that nobody can be told of is kept for an operator for so long; 0 for ever. Milliseconds. */
  readonly keepDeadLetterMs: number;
  /** By how many milliseconds the clock was ahead when the entry was accepted. */
  readonly aheadOf: (entry: QueuedEntry) => number;
}

/** What time does to an entry; undefined for nothing. */
export function ageEntry(entry: QueuedEntry, moment: Moment): Change | undefined {
  const { now } = moment;
  const lapsed = entry.details.holdUntil !== null && entry.details.holdUntil <= now;
  const ahead = moment.aheadOf(entry);
  const own = now + ahead;
  const countsFrom = countsFromBehind(entry, ahead, moment);
  const old = own >= entry.expiresAt;
  const late = entry.warnAt !== null && entry.warnAt <= own;
  if (isOverdue(entry, moment)) return discarded(entry, now);
  if (!lapsed && !old && !late && countsFrom === undefined) return undefined;
  const draft = draftOf(entry);
  if (countsFrom !== undefined) draft.countsFrom = countsFrom;
  if (lapsed) {
    draft.recipients = entry.recipients.filter(({ state }) => state === 'held').map((held) => released(held, now));
    draft.hold = null;
    draft.holdUntil = null;
  }
  const expired = old ? entry.recipients.filter((recipient) => isExpired(recipient, moment)) : [];
  if (expired.length > 0) expire(entry, draft, expired, moment);
  const states = statesBehind(entry, draft);
  const delayed = entry.recipients.filter(
    ({ index, attempts }) => attempts > 0 && isWaiting(states[index] ?? { state: 'deleted' }),
  );
  if (late && delayed.length > 0) {
    draft.warnAt = null;
    // Whoever has no address is not told of a delay (RFC 3464 §2).
    const recipients = delayed.map(({ address }) => address);
    if (entry.sender !== null) addNotices(entry, draft, [{ kind: 'delayed', recipients, at: now }]);
  }
  const isUnchanged = !lapsed && expired.length === 0 && draft.warnAt === undefined && countsFrom === undefined;
  if (isUnchanged) return undefined;
  finish(entry, draft, now);
  return draft;
}

/** What is to be noted, so that a restart does not begin its time again; undefined for nothing new. */
function countsFromBehind(entry: QueuedEntry, ahead: number, { jumped }: Moment): number | null | undefined {
  const { countsFrom } = entry.details;
  if (jumped) return countsFrom === null ? undefined : null;
  if (ahead === 0 || countsFrom === entry.queuedAt - ahead) return undefined;
  return entry.queuedAt - ahead;
}

/** What nobody can be told of is held for an operator. */
function expire(
  entry: QueuedEntry,
  draft: Draft,
  expired: readonly RecipientRecord[],
  { now, keepDeadLetterMs }: Moment,
): void {
  const { queuedAt, expiresAt, accepted } = entry;
  const hold = entry.sender === null ? deadLetterReason(accepted, Buffer.alloc(0), '') : null;
  const state = hold === null ? 'expired' : 'held';
  const ended = expired.map(({ index, reply }): RecipientChange => {
    return { index, state, reply: expiredReply(reply, { queuedAt, expiresAt, now }) };
  });
  draft.recipients = [...(draft.recipients ?? []), ...ended];
  if (hold === null) {
    addNotices(entry, draft, [{ kind: 'failed', recipients: expired.map(({ address }) => address), at: now }]);
    return;
  }
  draft.hold = hold;
  if (keepDeadLetterMs > 0) draft.discardAt = now + keepDeadLetterMs;
}

/** Mail that nobody can be told of was held for as long as it is to be, and no operator has seen to it. */
function isOverdue(entry: QueuedEntry, { now, steady }: Moment): boolean {
  const { discardAt } = entry.details;
  return steady && discardAt !== null && discardAt <= now && entry.recipients.every((one) => !isWaiting(one));
}

function discarded(entry: QueuedEntry, now: number): Change | undefined {
  const held = entry.recipients.filter(({ state }) => state === 'held');
  if (held.length === 0) return undefined;
  const draft = draftOf(entry);
  draft.recipients = held.map(({ index }) => ({ index, state: 'expired' }));
  draft.discardAt = null;
  finish(entry, draft, now);
  return draft;
}

/**
 * Age alone does not end a recipient: the clock may have jumped. He has been tried when his time was over already, or was tried
 * before and the clock goes steadily. Whom an operator wants to have tried is tried first.
 */
function isExpired(recipient: RecipientRecord, { steady, jumped }: Moment): boolean {
  const { entry, attempts, manual } = recipient;
  if (!isWaiting(recipient) || manual || attempts === 0 || jumped) return false;
  return steady || (entry.lastAttempt ?? 0) >= entry.expiresAt;
}
