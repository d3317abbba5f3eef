import type { Clock } from '../../../core/clock.js';
import type { Attempt } from '../../../core/contracts/queue-entry.js';
import { problem } from '../../../core/problem.js';
import { type EntryChange, draftOf, finish, type RecipientChange } from './change.js';
import { performPending } from './mutation.js';
import { type EntryLease, isOpen, isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';
import type { ClaimOptions, Lease } from '../../../core/contracts/relay-queue-store.js';
import type { Picked } from './schedule.js';

/** A lease that this process granted. */
interface ActiveLease extends EntryLease {
  readonly entry: QueuedEntry;
  /** By `clock.monotonic()`. */
  readonly deadline: number;
}

/** The leases that this process has granted. */
export class Leases {
  readonly #clock: Clock;
  readonly #active = new Map<number, ActiveLease>();
  #token: number;

  /** @param token the last used one; new leases get larger ones */
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

  /** Ends it; no other call can end it again. @throws Problem `conflict` when it has ended already */
  end({ token, uid }: Lease): ActiveLease {
    const active = this.#active.get(token);
    if (active === undefined || active.entry.uid !== uid) throw problem('conflict', 'The lease has ended.');
    this.#active.delete(token);
    return active;
  }

  /** Removes and returns the expired leases. */
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
 * True when an earlier attempt may have delivered without a recorded result: the process died, or a local fault ended
 * it, so its message may already be with the next server.
 */
function isInterrupted({ entry, reply }: RecipientRecord): boolean {
  const { lastAttempt, details } = entry;
  if (details.crashes > 0) return true;
  return lastAttempt !== null && (reply === null || reply.at < lastAttempt || reply.status.startsWith('4.3.'));
}

/** The change that puts the recipients of the lease in flight. */
export function leaseChange(entry: QueuedEntry, { token, recipients }: Lease, at: number): EntryChange {
  const indexes = recipients.map(({ index }) => index);
  return {
    ...draftOf(entry),
    recipients: indexes.map((index) => ({ index, state: 'active' })),
    lease: { token, at, recipients: indexes },
  };
}

/** Processes that may die in a row while they hold an entry before it is tried alone. */
export const suspectCrashes = 2;

/** Processes that may die in a row while they hold an entry, the last with this entry alone. */
const maxCrashes = suspectCrashes + 1;
const crashHold = `The server has ended ${maxCrashes} times while this message was being sent.`;

interface LossMoment {
  readonly now: number;
  /** Time of the next attempt. */
  readonly due: number;
  /** The process that held it has died. */
  readonly crashed: boolean;
  /** It held no other entry. */
  readonly alone?: boolean;
}

/**
 * The change for an entry whose lease ended without a result: it is tried again, so the next server may receive it
 * twice. The attempt counts. An entry that crashes one process after another, the last time alone, is held.
 */
export function loseLease(
  entry: QueuedEntry,
  lease: EntryLease,
  { now, due, crashed, alone = false }: LossMoment,
): EntryChange {
  const draft = draftOf(entry);
  const crashes = Math.min(entry.details.crashes + (crashed ? 1 : 0), alone ? maxCrashes : suspectCrashes);
  const poisonous = crashes >= maxCrashes;
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
