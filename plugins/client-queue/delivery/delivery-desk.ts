import { setTimeout as pause } from 'node:timers/promises';
import type { Clock } from '../../../core/clock.js';
import type { Lease } from '../../../core/contracts/queue-lease.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem } from '../../../core/problem.js';
import { deadLetterReason } from '../dsn/answerable.js';
import { readDestination } from './destination-key.js';
import { attemptLocally, type LocalGround } from './local-attempt.js';
import { messageHead } from './message-head.js';
import type { OutboundMetrics } from './outbound-metrics.js';
import { ClockWatch } from '../queue/clock-watch.js';
import { attemptRemotely, type RemoteGround } from './remote-attempt.js';
import type { RetrySchedule } from './retry-schedule.js';
import { isMissingMessage } from './outgoing-message.js';
import { damageHolds } from '../queue/damage-holds.js';
import { settlementOf } from './settlement.js';
import type { Tried, Verdict } from './tried.js';

export interface DeliveryDeskInput {
  readonly queue: RelayQueue;
  readonly remote: RemoteGround;
  readonly local: LocalGround;
  readonly hostname: string;
  readonly schedule: () => RetrySchedule;
  /** See `SettlementInput`. */
  readonly keepDeadLetterMs: () => number;
  readonly metrics: OutboundMetrics;
  readonly clock: Clock;
  readonly log: Log;
  /** Somebody is to be told of something. */
  readonly noticed: () => void;
}

/** Pauses between two tries to write down what came of an attempt, while the disk refuses. */
const firstPauseMs = 500;
const longestPauseMs = 30_000;

/** From a lease to what is written down of it. */
export class DeliveryDesk {
  readonly #input: DeliveryDeskInput;
  readonly #watch: ClockWatch;
  #unsettled = 0;

  constructor(input: DeliveryDeskInput) {
    this.#input = input;
    this.#watch = new ClockWatch(input.clock);
  }

  /** Outcomes that the disk does not take; they are not tried again meanwhile. */
  get unsettled(): number {
    return this.#unsettled;
  }

  /** Never rejects: what goes wrong here is a local fault, and temporary. */
  async attempt(lease: Lease, connections: number): Promise<Tried> {
    const { remote, local, clock, log } = this.#input;
    const at = clock.now();
    try {
      return readDestination(lease.destination).kind === 'target'
        ? await attemptLocally(lease, local)
        : await attemptRemotely(lease, connections, remote);
    } catch (error) {
      log.error({ uid: lease.uid, err: error }, 'an attempt failed by a fault of this server');
      const verdicts = new Map(lease.recipients.map(({ index }) => [index, localFault]));
      const nobody = { host: null, tls: null, tellsDsn: false, lost: false };
      const tried: Tried = { at, ms: 0, verdicts, ...nobody, servers: 'answered' };
      return isMissingMessage(error) ? { ...tried, hold: damageHolds.either } : tried;
    }
  }

  /** Never rejects. */
  async settle(lease: Lease, tried: Tried): Promise<void> {
    const { queue, clock, schedule, metrics, log } = this.#input;
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
    this.#tell(lease, tried, settlement);
    for (let ms = firstPauseMs, isWaiting = false; ; ms = Math.min(ms * 2, longestPauseMs)) {
      try {
        await queue.settle(lease, settlement);
        if (isWaiting) this.#unsettled -= 1;
        if (settlement.notices !== undefined) this.#input.noticed();
        return;
      } catch (error) {
        const isOver = isProblem(error) && error.problem === 'conflict';
        if (isOver || this.#input.remote.signal.aborted) {
          if (isWaiting) this.#unsettled -= 1;
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

  #tell(lease: Lease, tried: Tried, settlement: ReturnType<typeof settlementOf>): void {
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

const localFault: Verdict = {
  action: 'defer',
  code: 451,
  status: '4.3.0',
  text: 'Local error, it is tried again',
  host: null,
  retryAfter: null,
  category: 'other',
};
