import type { Clock } from '../../../core/clock.js';
import type { ClaimOptions } from './queue-lease.js';
import { isWaiting, type QueuedEntry } from './queued-entry.js';
import type { Picked } from './schedule.js';

/** Processes that may die in a row while they hold an entry before it is tried alone. */
export const suspectCrashes = 2;

/** Maximum time that other entries wait. A message that crashes the process does so immediately. */
const aloneMs = 60_000;

/** Entries that several processes held when they died: after a start they are tried first, one at a time. */
export class Suspects {
  readonly #clock: Clock;
  readonly #untilMs: number;
  #entries: readonly QueuedEntry[];

  constructor(entries: Iterable<QueuedEntry>, clock: Clock) {
    this.#clock = clock;
    this.#untilMs = clock.monotonic() + aloneMs;
    this.#entries = [...entries].filter(isSuspect);
  }

  /** Number of entries still to be tried alone. */
  get count(): number {
    if (this.#entries.length === 0) return 0;
    const isOver = this.#clock.monotonic() >= this.#untilMs;
    this.#entries = isOver ? [] : this.#entries.filter(isSuspect);
    return this.#entries.length;
  }

  /** The next; undefined when none can be tried now. */
  pick({ now, maxRecipients = Infinity, room, sites }: ClaimOptions): Picked | undefined {
    for (const entry of this.#entries) {
      const first = entry.recipients.find((one) => isWaiting(one) && one.due <= now && room(one.destination) > 0);
      if (first === undefined) continue;
      const { destination, manual } = first;
      const site = sites === undefined ? destination : sites.of(destination);
      if (site === undefined || (sites !== undefined && sites.room(site) <= 0)) continue;
      const recipients = entry.recipients.filter(
        (one) => isWaiting(one) && one.due <= now && one.destination === destination && one.manual === manual,
      );
      return { entry, destination, recipients: recipients.slice(0, maxRecipients) };
    }
    return undefined;
  }
}

const isSuspect = ({ details, recipients }: QueuedEntry): boolean =>
  details.crashes >= suspectCrashes && recipients.some((one) => isWaiting(one) || one.state === 'active');
