import type { Clock } from '../../../core/clock.js';
import type { LocalDelivery, Parcel } from '../../../core/contracts/local-delivery.js';
import type { Lease, RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { parseAddress } from '../../../core/mime/address.js';
import { classOf, isProblem, type Problem } from '../../../core/problem.js';
import type { Log } from '../../../core/log/log.js';
import { readDestination } from './destination.js';
import { isUnreadable } from './outgoing-message.js';
import { refusedDestination } from './relay-target.js';
import type { ReplyClassification } from './reply-classification.js';
import type { AttemptResult, RecipientVerdict } from './attempt-result.js';

export interface LocalAttemptContext {
  readonly local: Pick<LocalDelivery, 'deliver' | 'mayAttempt' | 'attempted'>;
  readonly queue: Pick<RelayQueue, 'open'>;
  readonly classification: () => ReplyClassification;
  readonly clock: Clock;
  readonly log: Log;
}

/** Delivers the recipients of a lease to the target of this server that they are routed to. */
export async function attemptLocally(lease: Lease, context: LocalAttemptContext): Promise<AttemptResult> {
  const { clock } = context;
  const at = clock.now();
  const began = clock.monotonic();
  const verdicts = new Map(lease.destination === refusedDestination ? refused(lease) : await delivered(lease, context));
  const ms = Math.round(clock.monotonic() - began);
  return { at, ms, verdicts, host: null, tls: null, tellsDsn: false, lost: false, servers: 'answered' };
}

type Verdicts = readonly (readonly [index: number, verdict: RecipientVerdict])[];

/** Their own target refused them: that is final. */
function refused({ recipients, entry }: Lease): Verdicts {
  return recipients.map(({ index }) => {
    const { code = 550, status = '5.0.0', text = 'Refused', host = null } = entry.recipients[index]?.lastReply ?? {};
    return [index, { action: 'bounce', code, status, text, host, retryAfter: null, category: 'other' }];
  });
}

async function delivered(lease: Lease, context: LocalAttemptContext): Promise<Verdicts> {
  const { uid, entry, destination } = lease;
  const { mayCommit, isLost } = askedLease(lease);
  const read = readDestination(destination);
  const fallback = { target: read.kind === 'target' ? read.target : '', destination: '' };
  const found: { missing?: Problem } = {};
  try {
    const outcomes = await context.local.deliver({
      id: uid,
      reversePath: entry.sender === null ? null : parseAddress(entry.sender),
      recipients: lease.recipients.map(({ index, address }) => ({
        address: parseAddress(address),
        hop: entry.recipients[index]?.hop ?? fallback,
      })),
      smtputf8: entry.smtputf8,
      fresh: lease.interrupted === false,
      mayCommit,
      content: () =>
        opened(context.queue, uid, (error) => {
          if (isUnreadable(error)) found.missing = error;
        }),
    });
    if (found.missing !== undefined) throw found.missing;
    if (isLost() && outcomes.every(({ outcome }) => outcome !== 'delivered')) return [];
    return lease.recipients.map(({ index }, place) => {
      const outcome = outcomes[place];
      if (outcome === undefined) throw new Error('a target must answer for each recipient');
      if (outcome.outcome === 'delivered') return [index, deliveredVerdict(outcome.reply)];
      const { code, status, text } = outcome;
      return [index, classified(context.classification(), code, status, text)];
    });
  } catch (error) {
    // Any other result of a target would be a verdict on the recipient.
    if (found.missing !== undefined) throw found.missing;
    if (isLost()) return [];
    context.log.error({ uid, err: error }, 'a queued message could not be delivered to its target');
    const [code, status] = isProblem(error) ? classOf(error).smtp : ([451, '4.3.0'] as const);
    const text = isProblem(error) ? error.message : 'Local error, try again later';
    const verdict = classified(context.classification(), code, status, text);
    return lease.recipients.map(({ index }) => [index, verdict]);
  }
}

/** The question for those who deliver, and whether it was last answered otherwise than with yes. */
function askedLease(lease: Lease): { readonly mayCommit: Parcel['mayCommit']; readonly isLost: () => boolean } {
  const holds = lease.holds?.bind(lease);
  if (holds === undefined) return { mayCommit: undefined, isLost: () => false };
  let isLost = false;
  const mayCommit = (): boolean | Promise<boolean> => {
    isLost = true;
    const note = (isHeld: boolean): boolean => {
      isLost = !isHeld;
      return isHeld;
    };
    const answer = holds();
    return typeof answer === 'boolean' ? note(answer) : answer.then(note);
  };
  return { mayCommit, isLost: () => isLost };
}

async function* opened(
  queue: LocalAttemptContext['queue'],
  uid: string,
  failed: (error: unknown) => void,
): AsyncGenerator<Buffer> {
  try {
    yield* (await queue.open(uid)) as AsyncIterable<Buffer>;
  } catch (error) {
    failed(error);
    throw error;
  }
}

function deliveredVerdict(
  reply: { readonly code: number; readonly status: string | null; readonly lines: readonly string[] } | undefined,
): RecipientVerdict {
  const { code = 250, status = '2.1.5', lines = ['Delivered'] } = reply ?? {};
  return {
    action: 'deliver',
    code,
    status: status ?? '2.0.0',
    text: lines.join(' '),
    host: null,
    retryAfter: null,
    category: 'other',
  };
}

function classified(classification: ReplyClassification, code: number, status: string, text: string): RecipientVerdict {
  const { action, retryAfter, category, rule } = classification.explain(code, status, text, null);
  return {
    action: action === 'deliver' ? 'defer' : action,
    code,
    status,
    text,
    host: null,
    retryAfter,
    category,
    rule,
  };
}
