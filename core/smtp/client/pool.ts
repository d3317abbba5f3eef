import { type Clock, systemClock } from '../../clock.js';
import { type CallOptions, type Destination, destinationKey } from './destination.js';
import { abortFailure } from './dial.js';
import { type ClientFailure, diedUnseen, isClientFailure, localFailure } from './failure.js';
import { type MessageResult, type OutgoingMessage, type SendOptions, unsent } from './message.js';
import { openSession } from './opening.js';
import type { ClientSession } from './session.js';

/** Connections kept by destination: used again newest first, closed when they are old, idle for long, much used, or not in order. */
export class ClientPool implements SessionPool {
  readonly #limits: PoolLimits;
  readonly #clock: Clock;
  readonly #open: typeof openSession;
  readonly #places = new Map<string, Place>();
  readonly #groups = new PoolGroups();
  #sweep: NodeJS.Timeout | undefined;
  #closed = false;
  #busy = 0;
  #idle = 0;
  #waiting = 0;
  #opened = 0;
  #reused = 0;
  #failed = 0;

  constructor(limits: Partial<PoolLimits> = {}, clock: Clock = systemClock, open: typeof openSession = openSession) {
    this.#limits = { ...usualPoolLimits, ...limits };
    this.#clock = clock;
    this.#open = open;
  }

  statistics(): PoolStatistics {
    const counted = { leased: this.#busy, idle: this.#idle, waiting: this.#waiting };
    return { ...counted, opened: this.#opened, reused: this.#reused, failed: this.#failed };
  }

  async lease(destination: Destination, options: LeaseOptions = {}): Promise<Lease> {
    const place = this.#place(destination);
    const group = this.#groups.get(options.group ?? place.key);
    const kept = await this.#turn(place, group, options);
    if (kept !== undefined) {
      this.#reused += 1;
      return this.#lent(place, group, kept, true);
    }
    return this.#lent(place, group, await this.#make(place, group, destination, options), false);
  }

  async send(
    destination: Destination,
    message: OutgoingMessage,
    options: LeaseOptions & SendOptions = {},
  ): Promise<MessageResult> {
    try {
      return await this.#sendBy(await this.lease(destination, options), destination, message, options);
    } catch (error) {
      if (!isClientFailure(error)) throw error;
      return unsent(message, error, options.settled);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#sweep);
    const leaving: Promise<void>[] = [];
    for (const { waiters, idle } of this.#places.values()) {
      for (const waiter of waiters) waiter.refuse(closedHere());
      for (const one of idle.splice(0)) leaving.push(this.#dropped(one).quit());
    }
    await Promise.all(leaving);
  }

  /** A kept connection may have died unseen: nothing of the message has gone out, so it is tried once more on a new one. */
  async #sendBy(
    lease: Lease,
    destination: Destination,
    message: OutgoingMessage,
    options: LeaseOptions & SendOptions,
  ): Promise<MessageResult> {
    const { signal, settled } = options;
    const tell: SendOptions['settled'] = (index, result) => {
      const mayBeRetried = lease.reused && result.outcome === 'failed' && diedUnseen(result.failure);
      if (!mayBeRetried) settled?.(index, result);
    };
    const sent = lease.session.send(message, { settled: tell, ...(signal && { signal }) });
    const result = await sent.finally(() => lease.release());
    if (!lease.reused || !diedUnseen(result.failure)) return result;
    const place = this.#place(destination);
    this.#discardIdle(place);
    return this.#sendBy(await this.lease(destination, options), destination, message, options);
  }

  #place(destination: Destination): Place {
    const key = destinationKey(destination);
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    const place: Place = { key, busy: 0, idle: [], waiters: new Set() };
    this.#places.set(key, place);
    return place;
  }

  /** Resolves when it is the caller's turn: with a kept connection, or undefined when he may make one. Counts him as busy. */
  #turn(place: Place, group: PoolGroup, { most = Infinity, signal }: LeaseOptions): Promise<ClientSession | undefined> {
    if (this.#closed) return this.#refused(place, group, closedHere());
    if (signal?.aborted === true) return this.#refused(place, group, abortFailure('connect'));
    if (group.waiting === 0 && this.#admits(group, most)) return Promise.resolve(this.#begin(place, group, most));
    if (this.#waiting >= this.#limits.waiting) return this.#refused(place, group, tooMany());
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        signal?.removeEventListener('abort', aborted);
        if (place.waiters.delete(waiter)) this.#countWaiting(group, -1);
        this.#forget(place);
      };
      const waiter: Waiter = {
        group,
        most,
        proceed: (session) => {
          leave();
          resolve(session);
        },
        refuse: (failure) => {
          leave();
          reject(failure);
        },
      };
      const aborted = (): void => waiter.refuse(abortFailure('connect'));
      signal?.addEventListener('abort', aborted, { once: true });
      place.waiters.add(waiter);
      this.#countWaiting(group, 1);
    });
  }

  #refused(place: Place, group: PoolGroup, failure: ClientFailure): Promise<never> {
    this.#forget(place);
    this.#groups.forget(group);
    return Promise.reject(failure);
  }

  #countWaiting(group: PoolGroup, by: 1 | -1): void {
    group.waiting += by;
    this.#waiting += by;
    this.#groups.forget(group);
  }

  /** A kept connection, or room for a new one. */
  #begin(place: Place, group: PoolGroup, most: number): ClientSession | undefined {
    this.#count(place, group, 1);
    const kept = this.#takeIdle(place);
    if (kept === undefined) this.#makeRoom(group, most);
    return kept;
  }

  async #make(place: Place, group: PoolGroup, destination: Destination, options: LeaseOptions): Promise<ClientSession> {
    const { deadlines, signal } = options;
    const call = { clock: this.#clock, ...(deadlines && { deadlines }), ...(signal && { signal }) };
    try {
      const session = await this.#open(destination, call);
      this.#opened += 1;
      return session;
    } catch (error) {
      this.#failed += 1;
      this.#leave(place, group);
      throw error;
    }
  }

  #lent(place: Place, group: PoolGroup, session: ClientSession, reused: boolean): Lease {
    let out = true;
    const release = (): void => {
      if (!out) return;
      out = false;
      if (this.#keeps(session)) this.#keep(place, group, session);
      else if (session.failure === undefined) void session.quit();
      this.#leave(place, group);
    };
    return { session, reused, release };
  }

  #keeps(session: ClientSession): boolean {
    const { uses, ageMs } = this.#limits;
    const young = this.#clock.monotonic() - session.since < ageMs;
    return !this.#closed && session.reusable && session.messages < uses && young;
  }

  #keep(place: Place, group: PoolGroup, session: ClientSession): void {
    place.idle.push({ session, group, at: this.#clock.monotonic() });
    group.idle += 1;
    this.#idle += 1;
    this.#sweep ??= setTimeout(() => this.#sweepIdle(), this.#limits.idleMs).unref();
  }

  /** Takes note that a connection is kept no more. */
  #dropped({ session, group }: Idle): ClientSession {
    this.#idle -= 1;
    group.idle -= 1;
    this.#groups.forget(group);
    return session;
  }

  #leave(place: Place, group: PoolGroup): void {
    const wasFull = this.#busy >= this.#limits.connections;
    this.#count(place, group, -1);
    this.#serve(place);
    if (wasFull || group.waiting > 0) this.#serveOthers(place);
    this.#forget(place);
    this.#groups.forget(group);
  }

  /** Those who wait here, as far as there is something for them. */
  #serve(place: Place): void {
    for (const waiter of place.waiters) {
      const { group, most } = waiter;
      if (this.#admits(group, most)) waiter.proceed(this.#begin(place, group, most));
      else if (group.name === place.key) return;
    }
  }

  /** Room that has come about here may be room for another destination. */
  #serveOthers(place: Place): void {
    if (this.#waiting === 0) return;
    for (const other of this.#places.values()) {
      if (this.#busy >= this.#limits.connections) return;
      if (other !== place && other.waiters.size > 0) this.#serve(other);
    }
  }

  #admits({ busy }: PoolGroup, most: number): boolean {
    return this.#busy < this.#limits.connections && busy < Math.min(most, this.#limits.connectionsEach);
  }

  /** The newest that is still in order. */
  #takeIdle(place: Place): ClientSession | undefined {
    for (let one = place.idle.pop(); one !== undefined; one = place.idle.pop()) {
      const session = this.#dropped(one);
      if (this.#keeps(session)) return session;
      void session.quit();
    }
    return undefined;
  }

  #discardIdle(place: Place): void {
    for (const one of place.idle.splice(0)) this.#dropped(one).close();
  }

  /** For the connection that is about to be made others are given up that are only kept. */
  #makeRoom(group: PoolGroup, most: number): void {
    const discard = (place: Place, one: Idle): void => {
      void this.#dropped(one).quit();
      this.#forget(place);
    };
    const isOurs = (one: Idle): boolean => one.group === group;
    if (group.idle > 0 && group.busy + group.idle > most) takeKept(this.#places.values(), isOurs, discard);
    if (this.#busy + this.#idle > this.#limits.connections) takeKept(this.#places.values(), () => true, discard);
  }

  #sweepIdle(): void {
    this.#sweep = undefined;
    const now = this.#clock.monotonic();
    for (const place of this.#places.values()) {
      while (place.idle[0] !== undefined && this.#isStale(place.idle[0], now)) {
        void this.#dropped(place.idle[0]).quit();
        place.idle.shift();
      }
      this.#forget(place);
    }
    if (this.#idle > 0) this.#sweep = setTimeout(() => this.#sweepIdle(), this.#limits.idleMs).unref();
  }

  #isStale({ session, at }: Idle, now: number): boolean {
    return !session.reusable || now - at >= this.#limits.idleMs || now - session.since >= this.#limits.ageMs;
  }

  #count(place: Place, group: PoolGroup, by: 1 | -1): void {
    place.busy += by;
    group.busy += by;
    this.#busy += by;
  }

  #forget(place: Place): void {
    if (place.busy + place.idle.length + place.waiters.size === 0) this.#places.delete(place.key);
  }
}

export interface PoolLimits {
  /** Connections of the whole pool, those in use and those that are kept. */
  readonly connections: number;
  /** Of one destination; a lease may ask for less. */
  readonly connectionsEach: number;
  /** Who may wait for a connection; more are refused. */
  readonly waiting: number;
  /** How long a connection is kept unused, in milliseconds. */
  readonly idleMs: number;
  /** Messages after which a connection is not used again. */
  readonly uses: number;
  /** Age after which a connection is not used again, in milliseconds. */
  readonly ageMs: number;
}

const usualPoolLimits: PoolLimits = {
  connections: 200,
  connectionsEach: 20,
  waiting: 10_000,
  idleMs: 10_000,
  uses: 1000,
  ageMs: 300_000,
};

export interface PoolStatistics {
  readonly leased: number;
  readonly idle: number;
  readonly waiting: number;
  /** Since the start: connections made, leases that were served by a kept one, connections that could not be made. */
  readonly opened: number;
  readonly reused: number;
  readonly failed: number;
}

interface LeaseOptions extends Omit<CallOptions, 'transcript' | 'identity' | 'clock'> {
  /** At most so many connections to this destination; the pool's limit when absent or higher. */
  readonly most?: number;
  /** Destinations that are leased with the same name share `most`, kept connections and all; each stands alone when absent. */
  readonly group?: string;
}

/** A connection for one message at a time. */
export interface Lease {
  readonly session: ClientSession;
  /** True when the connection was kept from before: the server may have left meanwhile. */
  readonly reused: boolean;
  /** Gives it back; it is kept if it is reusable, else closed. Once. */
  release(): void;
}

/** Connections that are kept and used again, by destination (`destinationKey`). */
export interface SessionPool {
  /** Rejects with a `ClientFailure`: of opening, `local` when the signal says so or too many wait. */
  lease(destination: Destination, options?: LeaseOptions): Promise<Lease>;
  /**
   * Sends one message over a kept connection or a new one. A kept connection that turns out to be dead before the server had anything
   * of the message is replaced by a new one. Never rejects.
   */
  send(
    destination: Destination,
    message: OutgoingMessage,
    options?: LeaseOptions & SendOptions,
  ): Promise<MessageResult>;
  statistics(): PoolStatistics;
  /** Says QUIT on the kept ones, refuses those who wait, and closes leased ones when they come back. */
  close(): Promise<void>;
}

/** Somebody who waits for a connection of his destination. */
interface Waiter {
  readonly group: PoolGroup;
  readonly most: number;
  readonly proceed: (session: ClientSession | undefined) => void;
  readonly refuse: (failure: ClientFailure) => void;
}

/** A kept connection. */
interface Idle {
  readonly session: ClientSession;
  readonly group: PoolGroup;
  readonly at: number;
}

/** What the pool knows of one destination; gone with its last connection and waiter. */
interface Place {
  readonly key: string;
  /** Connections that are leased or being made. */
  busy: number;
  /** The last one given back is the first one used. */
  readonly idle: Idle[];
  readonly waiters: Set<Waiter>;
}

/** Takes out the oldest of the first place that has one that suits. */
function takeKept(
  places: Iterable<Place>,
  suits: (one: Idle) => boolean,
  taken: (place: Place, one: Idle) => void,
): void {
  for (const place of places) {
    const index = place.idle.findIndex(suits);
    const [oldest] = index < 0 ? [] : place.idle.splice(index, 1);
    if (oldest !== undefined) return taken(place, oldest);
  }
}

const closedHere = (): ClientFailure => localFailure('connect', 'No more mail is sent');
const tooMany = (): ClientFailure => localFailure('connect', 'Too many messages wait for a connection');

/** Connections that share a limit, whatever servers they lead to; gone with the last of them. */
interface PoolGroup {
  readonly name: string;
  /** Leased, or being made. */
  busy: number;
  /** Kept, and used by it last. */
  idle: number;
  waiting: number;
}

/** The groups of which a pool knows something. */
class PoolGroups {
  readonly #groups = new Map<string, PoolGroup>();

  get(name: string): PoolGroup {
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    const group = { name, busy: 0, idle: 0, waiting: 0 };
    this.#groups.set(name, group);
    return group;
  }

  /** To be called when something of it has gone. */
  forget({ name, busy, idle, waiting }: PoolGroup): void {
    if (busy + idle + waiting === 0) this.#groups.delete(name);
  }
}
