import { setTimeout as pause } from 'node:timers/promises';
import type { Clock } from '../../../core/clock.js';
import type { Attempt, NewEntry, Notice, RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { Notify } from '../../../core/smtp/protocol/parameters.js';
import type { Lease, RecipientSettlement, RelayQueue, Settlement } from '../../../core/contracts/relay-queue-store.js';
import { parseAddress } from '../../../core/mime/address.js';
import type { FinishedAttempt } from '../../../core/pipeline/events.js';
import type { OutgoingAttempt } from '../../../core/pipeline/hook.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem } from '../../../core/problem.js';
import { ClockWatch } from '../queue/clock-watch.js';
import { damageHolds, deadLetterReason } from '../queue/hold-reasons.js';
import { expiredReply } from '../queue/housekeeping.js';
import type { AttemptResult, RecipientVerdict, RunningAttempt } from './attempt-result.js';
import { readDestination } from './destination.js';
import { attemptLocally, type LocalAttemptContext } from './local-attempt.js';
import type { OutboundMetrics } from './outbound-metrics.js';
import { holdReason } from './relay-target.js';
import { relayTarget } from './relay-hook.js';
import { isUnreadable, messageHead } from './outgoing-message.js';
import { tooManyRecipients } from './reply-classification.js';
import { attemptRemotely, type RemoteAttemptContext } from './remote-attempt.js';
import type { RetrySchedule } from './retry-schedule.js';

interface AttemptRunnerOptions {
  readonly queue: RelayQueue;
  readonly remote: RemoteAttemptContext;
  readonly local: LocalAttemptContext;
  readonly hostname: string;
  readonly schedule: () => RetrySchedule;
  /** See `SettlementInput`. */
  readonly keepDeadLetterMs: () => number;
  readonly metrics: OutboundMetrics;
  readonly clock: Clock;
  readonly log: Log;
  /** Notifications are pending. */
  readonly noticed: () => void;
}

function describeLease({ uid, entry, destination, recipients }: Lease): Omit<OutgoingAttempt, 'open'> {
  const read = readDestination(destination);
  return {
    id: uid,
    reversePath: entry.sender === null ? null : parseAddress(entry.sender),
    recipients: recipients.map(({ address }) => parseAddress(address)),
    target: read.kind === 'target' ? read.target : relayTarget,
    destination,
    attempts: Math.max(...recipients.map(({ attempts }) => attempts)),
    queuedAt: entry.queuedAt,
    size: entry.size,
  };
}

/** As watchers see it. */
function finishedAttempt(lease: Lease, attempt: Attempt, { results }: Settlement): FinishedAttempt {
  const addressOf = new Map(lease.recipients.map(({ index, address }) => [index, address]));
  return {
    attempt: describeLease(lease),
    at: attempt.at,
    ms: attempt.ms,
    host: attempt.host,
    tls: attempt.tls,
    possibleDuplicate: attempt.possibleDuplicate === true,
    results: results.map(({ index, state, reply, nextAttempt }) => ({
      recipient: parseAddress(addressOf.get(index) ?? ''),
      status: state,
      reply: reply && { code: reply.code, status: reply.status, text: reply.text, host: reply.host },
      nextAttemptAt: nextAttempt ?? null,
    })),
  };
}

/** Pauses between tries to record the result of an attempt while the disk refuses. */
const firstPauseMs = 500;
const maxPauseMs = 30_000;

/** From a lease to its recorded result. */
export class AttemptRunner {
  readonly #input: AttemptRunnerOptions;
  readonly #watch: ClockWatch;
  #unsettled = 0;

  constructor(input: AttemptRunnerOptions) {
    this.#input = input;
    this.#watch = new ClockWatch(input.clock);
  }

  /** Results that the disk refuses; their recipients are not tried meanwhile. */
  get unsettled(): number {
    return this.#unsettled;
  }

  /** Never rejects: an error here is a local fault, hence temporary. */
  async attempt(attempt: RunningAttempt, connections: number): Promise<AttemptResult> {
    const { remote, local, clock, log } = this.#input;
    const { lease } = attempt;
    const at = clock.now();
    try {
      const refused = await this.#askHooks(lease, at);
      if (refused !== undefined) return refused;
      return readDestination(lease.destination).kind === 'target'
        ? await attemptLocally(lease, local)
        : await attemptRemotely(attempt, connections, remote);
    } catch (error) {
      log.error({ uid: lease.uid, err: error }, 'an attempt failed by a fault of this server');
      const verdicts = new Map(lease.recipients.map(({ index }) => [index, localFault]));
      const nobody = { host: null, tls: null, tellsDsn: false, lost: false };
      const tried: AttemptResult = { at, ms: 0, verdicts, ...nobody, servers: 'answered' };
      return isUnreadable(error) ? { ...tried, hold: damageHolds.either } : tried;
    }
  }

  /** The result when a hook of the stage `attempt` refuses or holds the mail. */
  async #askHooks(lease: Lease, at: number): Promise<AttemptResult | undefined> {
    const { local, queue } = this.#input;
    const decision = await local.local.mayAttempt({ ...describeLease(lease), open: () => queue.open(lease.uid) });
    if (decision.outcome === 'pass' && decision.hop === undefined) return undefined;
    const said = { host: null, retryAfter: null, category: 'policy' };
    const { code, status, lines } =
      decision.outcome === 'refuse' ? decision.reply : { code: 450, status: '4.7.1', lines: ['Held by a rule'] };
    const verdict: RecipientVerdict = {
      ...said,
      action: code < 500 ? 'defer' : 'bounce',
      code,
      status: status ?? `${code < 500 ? 4 : 5}.0.0`,
      text: lines.join(' '),
    };
    const verdicts = new Map(lease.recipients.map(({ index }) => [index, verdict]));
    const hold = decision.outcome === 'pass' ? holdReason(decision.hop?.data) : undefined;
    const nobody = { host: null, tls: null, tellsDsn: false, lost: false };
    const result: AttemptResult = { at, ms: 0, verdicts, ...nobody, servers: 'answered' };
    return hold === undefined ? result : { ...result, hold };
  }

  /** Never rejects. */
  async settle(lease: Lease, tried: AttemptResult): Promise<void> {
    const { queue, clock, schedule, metrics, log } = this.#input;
    const { local } = this.#input.local;
    const failed = [...tried.verdicts.values()].some(({ action }) => action !== 'deliver');
    const deadLetter = failed ? await this.#deadLetter(lease) : null;
    this.#watch.look();
    const settlement = settlementOf(lease, tried, {
      schedule: schedule(),
      now: clock.now(),
      mayExpire: !this.#watch.hasJumped,
      deadLetter,
      keepDeadLetterMs: this.#input.keepDeadLetterMs(),
    });
    metrics.settled(settlement, tried.ms);
    this.#logResult(lease, tried, settlement);
    for (let ms = firstPauseMs, isWaiting = false; ; ms = Math.min(ms * 2, maxPauseMs)) {
      try {
        await queue.settle(lease, settlement);
        if (isWaiting) this.#unsettled -= 1;
        if (settlement.notices !== undefined) this.#input.noticed();
        if (settlement.attempt !== undefined) local.attempted(finishedAttempt(lease, settlement.attempt, settlement));
        return;
      } catch (error) {
        const isOver = isProblem(error) && error.problem === 'conflict';
        if (isOver || this.#input.remote.signal.aborted) {
          if (isWaiting) this.#unsettled -= 1;
          if (settlement.attempt === undefined) {
            log.warn({ uid: lease.uid, err: error }, 'a lease under which nothing was sent cannot be given back');
            return;
          }
          log.error(
            { uid: lease.uid, err: error },
            'possible duplicate: the outcome of an attempt is not written down',
          );
          return;
        }
        if (!isWaiting) this.#unsettled += 1;
        isWaiting = true;
        log.error({ uid: lease.uid, err: error }, 'the outcome of an attempt cannot be written down yet');
        await pause(ms, undefined, { ref: false });
      }
    }
  }

  async #deadLetter({ uid, entry }: Lease): Promise<string | null> {
    const { queue, hostname } = this.#input;
    if (entry.sender === null) return deadLetterReason(entry, Buffer.alloc(0), hostname);
    try {
      return deadLetterReason(entry, await messageHead(queue, uid), hostname);
    } catch {
      return null;
    }
  }

  #logResult(lease: Lease, tried: AttemptResult, settlement: ReturnType<typeof settlementOf>): void {
    const { attempt } = settlement;
    if (attempt === undefined) return;
    const { outcome, reply, host, tls } = attempt;
    const about = {
      uid: lease.uid,
      outcome,
      destination: lease.destination,
      recipients: lease.recipients.length,
      host,
      tls,
      code: reply?.code,
      status: reply?.status,
      reason: reply?.text,
      ms: tried.ms,
    };
    if (outcome === 'delivered') this.#input.log.info(about, 'attempted');
    else this.#input.log.warn({ ...about, possibleDuplicate: tried.lost || undefined }, 'attempted');
  }
}

const localFault: RecipientVerdict = {
  action: 'defer',
  code: 451,
  status: '4.3.0',
  text: 'Local error, it is tried again',
  host: null,
  retryAfter: null,
  category: 'other',
};

interface SettlementInput {
  readonly schedule: RetrySchedule;
  readonly now: number;
  /** False while the clock is not trusted: then no mail expires. */
  readonly mayExpire: boolean;
  /** Why no one can be notified of a failure, so that an operator has to see it; asked only after a failure. */
  readonly deadLetter: string | null;
  /** How long such mail is kept for an operator; 0 for ever. Milliseconds. */
  readonly keepDeadLetterMs: number;
}

/** Delay of recipients that found no room in a delivery that just succeeded. */
const nextPartMs = 1000;

/** Whether a DSN for this recipient is wanted (RFC 3461 §4.1): by default for failures and delays. */
export function wants(kind: Exclude<Notify, 'never'>, notify: readonly Notify[] | undefined): boolean {
  return notify === undefined ? kind !== 'success' : notify.includes(kind);
}

/** The recorded result of an attempt. */
function settlementOf(lease: Lease, tried: AttemptResult, input: SettlementInput): Settlement {
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
  /** Other recipients of the delivery were accepted. */
  readonly some: boolean;
  readonly entry: NewEntry;
  readonly tried: AttemptResult;
  readonly input: SettlementInput;
}

function resultOf(verdict: RecipientVerdict, { index, attempts, some, entry, input }: About): RecipientSettlement {
  const { now, schedule, mayExpire } = input;
  const reply = recorded(verdict, now);
  if (verdict.action === 'deliver') return { index, state: 'delivered', reply };
  if (verdict.action === 'bounce') return failure(index, 'bounced', reply, input);
  if (some && verdict.rule === tooManyRecipients) {
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
): RecipientSettlement {
  if (deadLetter === null) return { index, state, reply };
  const discardAt = keepDeadLetterMs === 0 ? {} : { discardAt: now + keepDeadLetterMs };
  return { index, state: 'held', reply, hold: deadLetter, ...discardAt };
}

const recorded = ({ code, status, text, host }: RecipientVerdict, at: number): RecordedReply => ({
  code,
  status,
  text: text.slice(0, 1000),
  host,
  at,
});

function attemptOf(lease: Lease, tried: AttemptResult, results: readonly RecipientSettlement[]): Attempt {
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

/** Notifications of this attempt for the sender; none for a null sender. */
function noticesOf(
  { entry, recipients }: Lease,
  tried: AttemptResult,
  results: readonly RecipientSettlement[],
  at: number,
): readonly Omit<Notice, 'id'>[] {
  if (entry.sender === null) return [];
  const those = (kind: Exclude<Notify, 'never'>, states: readonly RecipientSettlement['state'][]): readonly string[] =>
    results.flatMap(({ index, state }) => {
      const recipient = recipients.find((one) => one.index === index);
      const isMeant = states.includes(state) && wants(kind, entry.recipients[index]?.notify);
      return isMeant && recipient !== undefined ? [recipient.address] : [];
    });
  const failed = those('failure', ['bounced', 'expired']);
  // A server with DSN support notifies the sender itself.
  const taken = tried.tellsDsn ? [] : those('success', ['delivered']);
  const kind = tried.host === null ? 'delivered' : 'relayed';
  return [
    ...(failed.length > 0 ? [{ kind: 'failed' as const, recipients: failed, at }] : []),
    ...(taken.length > 0 ? [{ kind, recipients: taken, at } as const] : []),
  ];
}
