import type { RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { RecipientResult, Settlement } from '../../../core/contracts/queue-lease.js';
import type { Change, RecipientChange } from './change.js';
import { addNotices, draftOf, finish } from './draft.js';
import { performPending } from './mutation.js';
import { waitingState, type EntryLease, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

/** Longer replies are cut. */
const longestReply = 1000;

/** What becomes of an entry when one of its leases ends. Results for others than the recipients of the lease do not count. */
export function settleLease(entry: QueuedEntry, lease: EntryLease, settlement: Settlement, now: number): Change {
  const { attempt, results, notices = [] } = settlement;
  const draft = draftOf(entry);
  const byIndex = new Map(results.map((result) => [result.index, result]));
  const counted = attempt !== undefined && attempt.manual !== true;
  draft.ended = lease.token;
  draft.recipients = lease.recipients.flatMap((index) => {
    const recipient = entry.recipients[index];
    return recipient === undefined ? [] : [recipientChange(recipient, byIndex.get(index), { counted, now })];
  });
  if (attempt !== undefined) {
    draft.attempt = {
      ...attempt,
      reply: attempt.reply && shortened(attempt.reply),
      recipients: [...attempt.recipients],
    };
    draft.lastAttempt = attempt.at;
  }
  const { hold, discardAt } = results.find(({ state }) => state === 'held') ?? {};
  if (hold !== undefined) draft.hold = hold;
  if (discardAt !== undefined) draft.discardAt = discardAt;
  if (entry.details.crashes > 0) draft.crashes = 0;
  addNotices(entry, draft, notices);
  performPending(entry, draft, now);
  finish(entry, draft, now);
  return draft;
}

function recipientChange(
  recipient: RecipientRecord,
  result: RecipientResult | undefined,
  { counted, now }: { readonly counted: boolean; readonly now: number },
): RecipientChange {
  const { index } = recipient;
  if (result === undefined) return { index, state: waitingState(recipient) };
  const attempts = recipient.attempts + (counted ? 1 : 0);
  const reply = result.reply && shortened(result.reply);
  return {
    index,
    state: result.state,
    attempts,
    manual: false,
    ...(reply !== null && { reply }),
    ...(result.state === 'deferred' && { due: result.nextAttempt ?? now }),
  };
}

function shortened(reply: RecordedReply): RecordedReply {
  return reply.text.length <= longestReply ? reply : { ...reply, text: `${reply.text.slice(0, longestReply)}…` };
}
