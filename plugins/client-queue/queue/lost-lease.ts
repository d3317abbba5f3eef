import type { Attempt } from '../../../core/contracts/queue-entry.js';
import type { Change, RecipientChange } from './change.js';
import { draftOf, finish } from './draft.js';
import { performPending } from './mutation.js';
import { isOpen, type EntryLease, type QueuedEntry } from './queued-entry.js';
import { suspectCrashes } from './suspects.js';

/** So many processes may die one after the other while they have an entry in hand, the last with this entry alone. */
const mostCrashes = suspectCrashes + 1;
export const crashHold = `The server has ended ${mostCrashes} times while this message was being sent.`;

export interface LossMoment {
  readonly now: number;
  /** When it is tried again. */
  readonly due: number;
  /** The process that held it has died. */
  readonly crashed: boolean;
  /** It had no other entry in hand. */
  readonly alone?: boolean;
}

/**
 * What becomes of an entry when nobody can say how the attempt of a lease went: it is tried again, and its server may get it
 * twice. The attempt counts. One that kills process after process, the last time alone, is held.
 */
export function loseLease(
  entry: QueuedEntry,
  lease: EntryLease,
  { now, due, crashed, alone = false }: LossMoment,
): Change {
  const draft = draftOf(entry);
  const crashes = Math.min(entry.details.crashes + (crashed ? 1 : 0), alone ? mostCrashes : suspectCrashes);
  const poisonous = crashes >= mostCrashes;
  const recipients = lease.recipients.flatMap((index) => entry.recipients[index] ?? []);
  draft.ended = lease.token;
  draft.lastAttempt = lease.at;
  draft.attempt = lostAttempt(lease, recipients);
  draft.recipients = recipients.map(({ index, attempts, manual }): RecipientChange => {
    const counted = attempts + (manual ? 0 : 1);
    return poisonous
      ? { index, state: 'held', attempts: counted }
      : { index, state: 'deferred', attempts: counted, due };
  });
  if (poisonous) {
    draft.hold = crashHold;
    const others = entry.recipients.filter((other) => isOpen(other) && !recipients.includes(other));
    draft.recipients.push(...others.map(({ index }): RecipientChange => ({ index, state: 'held' })));
  }
  if (crashed) draft.crashes = crashes;
  performPending(entry, draft, now);
  finish(entry, draft, now);
  return draft;
}

function lostAttempt(
  { at }: EntryLease,
  recipients: readonly { readonly address: string; readonly destination: string }[],
): Attempt & { recipients: string[] } {
  return {
    at,
    ms: 0,
    destination: recipients[0]?.destination ?? '',
    host: null,
    tls: null,
    recipients: recipients.map(({ address }) => address),
    outcome: 'lost',
    reply: null,
    possibleDuplicate: true,
  };
}
