import type { ClaimOptions, Lease } from '../../../core/contracts/queue-lease.js';
import type { Clock } from '../../../core/clock.js';
import { problem } from '../../../core/problem.js';
import type { Change } from './change.js';
import { draftOf } from './draft.js';
import type { EntryLease, QueuedEntry, RecipientRecord } from './queued-entry.js';
import type { Picked } from './schedule.js';

/** A lease of this process. */
export interface ActiveLease extends EntryLease {
  readonly entry: QueuedEntry;
  /** By `clock.monotonic()`. */
  readonly deadline: number;
}

/** The leases that this process has given. */
export class Leases {
  readonly #clock: Clock;
  readonly #active = new Map<number, ActiveLease>();
  #token: number;

  /** @param token all leases get larger ones */
  constructor(clock: Clock, token: number) {
    this.#clock = clock;
    this.#token = token;
  }

  get count(): number {
    return this.#active.size;
  }

  begin({ entry, destination, recipients }: Picked, { now, leaseMs }: ClaimOptions): Lease {
    this.#token += 1;
    const token = this.#token;
    const indexes = recipients.map(({ index }) => index);
    const deadline = this.#clock.monotonic() + leaseMs;
    this.#active.set(token, { token, at: now, recipients: indexes, entry, deadline });
    return {
      uid: entry.uid,
      recipients: recipients.map(({ index, address, attempts }) => ({ index, address, attempts })),
      destination,
      entry: entry.accepted,
      token,
      manual: recipients.some(({ manual }) => manual),
      interrupted: recipients.some(isInterrupted),
    };
  }

  /** Ends it: nobody else can. @throws Problem `conflict` when it has ended already */
  end({ token, uid }: Lease): ActiveLease {
    const active = this.#active.get(token);
    if (active === undefined || active.entry.uid !== uid) throw problem('conflict', 'The lease has ended.');
    this.#active.delete(token);
    return active;
  }

  /** Takes all out that have run out. */
  takeOverdue(): readonly ActiveLease[] {
    const now = this.#clock.monotonic();
    return this.#takeIf(({ deadline }) => deadline <= now);
  }

  takeAll(): readonly ActiveLease[] {
    return this.#takeIf(() => true);
  }

  #takeIf(wanted: (lease: ActiveLease) => boolean): readonly ActiveLease[] {
    const taken = [...this.#active.values()].filter(wanted);
    for (const { token } of taken) this.#active.delete(token);
    return taken;
  }
}

/**
 * Whether an earlier attempt may have delivered it unseen: nothing was written down of it, or a fault of this server ended it, so
 * that it may not have been taken back.
 */
function isInterrupted({ entry, reply }: RecipientRecord): boolean {
  const { lastAttempt, details } = entry;
  if (details.crashes > 0) return true;
  return lastAttempt !== null && (reply === null || reply.at < lastAttempt || reply.status.startsWith('4.3.'));
}

/** The entry from when on the recipients of the lease are in flight. */
export function leaseChange(entry: QueuedEntry, { token, recipients }: Lease, at: number): Change {
  const indexes = recipients.map(({ index }) => index);
  return {
    ...draftOf(entry),
    recipients: indexes.map((index) => ({ index, state: 'active' })),
    lease: { token, at, recipients: indexes },
  };
}
