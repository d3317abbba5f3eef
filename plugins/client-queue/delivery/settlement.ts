import type { Attempt, NewEntry, Notice, Notify, RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { Lease, RecipientResult, Settlement } from '../../../core/contracts/queue-lease.js';
import { expiredReply } from '../queue/expired-reply.js';
import type { RetrySchedule } from './retry-schedule.js';
import type { Tried, Verdict } from './tried.js';

export interface SettlementInput {
  readonly schedule: RetrySchedule;
  readonly now: number;
  /** False while the clock is not to be believed: mail whose time seems to be over is tried again. */
  readonly mayExpire: boolean;
  /** Why nobody can be told of a failure, so that an operator has to see it; asked only when something has failed. */
  readonly deadLetter: string | null;
  /** Such mail is kept for an operator for so long; 0 for ever. Milliseconds. */
  readonly keepDeadLetterMs: number;
}

/** So soon come those who found no room among the recipients of a delivery that has just gone well. */
const nextPartMs = 1000;

/** Whether somebody wants to hear of this recipient (RFC 3461 §4.1): of failures and delays unless he said something else. */
export function wants(kind: Exclude<Notify, 'never'>, notify: readonly Notify[] | undefined): boolean {
  return notify === undefined ? kind !== 'success' : notify.includes(kind);
}

/** What is written down of an attempt. */
export function settlementOf(lease: Lease, tried: Tried, input: SettlementInput): Settlement {
  if (tried.verdicts.size === 0) return { results: [] };
  const { hold } = tried;
  if (hold !== undefined) {
    const held = lease.recipients.map(({ index }) => ({ index, state: 'held' as const, reply: null, hold }));
    return { attempt: attemptOf(lease, tried, held), results: held };
  }
  const some = [...tried.verdicts.values()].some(({ action }) => action === 'deliver');
  const results = lease.recipients.flatMap(({ index, attempts }) => {
    const verdict = tried.verdicts.get(index);
    if (verdict === undefined) return [];
    const count = attempts + (lease.manual ? 0 : 1);
    return [resultOf(verdict, { index, attempts: count, some, entry: lease.entry, tried, input })];
  });
  const notices = noticesOf(lease, tried, results, input.now);
  return { attempt: attemptOf(lease, tried, results), results, ...(notices.length > 0 && { notices }) };
}

interface About {
  readonly index: number;
  readonly attempts: number;
  /** Others of the delivery were taken. */
  readonly some: boolean;
  readonly entry: NewEntry;
  readonly tried: Tried;
  readonly input: SettlementInput;
}

function resultOf(verdict: Verdict, { index, attempts, some, entry, input }: About): RecipientResult {
  const { now, schedule, mayExpire } = input;
  const reply = recorded(verdict, now);
  if (verdict.action === 'deliver') return { index, state: 'delivered', reply };
  if (verdict.action === 'bounce') return failure(index, 'bounced', reply, input);
  if (some && verdict.category === 'capacity' && verdict.retryAfter === 5) {
    return { index, state: 'deferred', reply, nextAttempt: now + nextPartMs };
  }
  const { queuedAt, expiresAt } = entry;
  const over = mayExpire ? expiresAt : Infinity;
  const nextAttempt = schedule.next({ now, attempts, expiresAt: over, retryAfter: verdict.retryAfter });
  if (nextAttempt !== undefined) return { index, state: 'deferred', reply, nextAttempt };
  return failure(index, 'expired', expiredReply(reply, { queuedAt, expiresAt, now }), input);
}

function failure(
  index: number,
  state: 'bounced' | 'expired',
  reply: RecordedReply,
  { deadLetter, keepDeadLetterMs, now }: SettlementInput,
): RecipientResult {
  if (deadLetter === null) return { index, state, reply };
  const discardAt = keepDeadLetterMs === 0 ? {} : { discardAt: now + keepDeadLetterMs };
  return { index, state: 'held', reply, hold: deadLetter, ...discardAt };
}

const recorded = ({ code, status, text, host }: Verdict, at: number): RecordedReply => ({
  code,
  status,
  text: text.slice(0, 1000),
  host,
  at,
});

function attemptOf(lease: Lease, tried: Tried, results: readonly RecipientResult[]): Attempt {
  const states = new Set(results.map(({ state }) => state));
  const isDelivered = states.has('delivered');
  const outcome = tried.lost
    ? 'lost'
    : isDelivered
      ? states.size === 1
        ? 'delivered'
        : 'partial'
      : states.has('deferred')
        ? 'deferred'
        : 'failed';
  const telling = results.find(({ state }) => state !== 'delivered') ?? results[0];
  return {
    at: tried.at,
    ms: tried.ms,
    destination: lease.destination,
    host: tried.host,
    tls: tried.tls,
    recipients: lease.recipients.map(({ address }) => address),
    outcome,
    reply: telling?.reply ?? null,
    ...(tried.lost && { possibleDuplicate: true }),
    ...(lease.manual && { manual: true }),
  };
}

/** What the sender is to be told of this attempt; a null sender is told nothing. */
function noticesOf(
  { entry, recipients }: Lease,
  tried: Tried,
  results: readonly RecipientResult[],
  at: number,
): readonly Omit<Notice, 'id'>[] {
  if (entry.sender === null) return [];
  const those = (kind: Exclude<Notify, 'never'>, states: readonly RecipientResult['state'][]): readonly string[] =>
    results.flatMap(({ index, state }) => {
      const recipient = recipients.find((one) => one.index === index);
      const isMeant = states.includes(state) && wants(kind, entry.recipients[index]?.notify);
      return isMeant && recipient !== undefined ? [recipient.address] : [];
    });
  const failed = those('failure', ['bounced', 'expired']);
  // A server that knows RFC 3461 tells the sender itself.
  const taken = tried.tellsDsn ? [] : those('success', ['delivered']);
  const kind = tried.host === null ? 'delivered' : 'relayed';
  return [
    ...(failed.length > 0 ? [{ kind: 'failed' as const, recipients: failed, at }] : []),
    ...(taken.length > 0 ? [{ kind, recipients: taken, at } as const] : []),
  ];
}
