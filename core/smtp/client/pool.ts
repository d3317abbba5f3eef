import { systemClock, type Clock } from '../../clock.js';
import { destinationKey, type Destination } from './destination.js';
import { abortFailure } from './dial.js';
import { isClientFailure, localFailure, type ClientFailure } from './failure.js';
import type { MessageResult, OutgoingMessage, SendOptions } from './message.js';
import { openSession } from './opening.js';
import type { Lease, LeaseOptions, PoolLimits, PoolStatistics, SessionPool } from './pooling.js';
import type { ClientSession } from './session.js';
import { unsent } from './unsent.js';

export const usualPoolLimits: PoolLimits = {
  connections: 200,
  connectionsEach: 20,
  waiting: 10_000,
  idleMs: 10_000,
  uses: 1000,
  ageMs: 300_000,
};

/** Somebody who waits for a connection of his destination. */
interface Waiter {
  readonly most: number;
  readonly proceed: (session: ClientSession | undefined) => void;
  readonly refuse: (failure: ClientFailure) => void;
}

/** A kept connection. */
interface Idle {
  readonly session: ClientSession;
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

/** Connections kept by destination: used again newest first, closed when they are old, idle for long, much used, or not in order. */
export class ClientPool implements SessionPool {
  readonly #limits: PoolLimits;
  readonly #clock: Clock;
  readonly #open: typeof openSession;
  readonly #places = new Map<string, Place>();
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
    const kept = await this.#turn(place, options);
    if (kept !== undefined) {
      this.#reused += 1;
      return this.#lent(place, kept, true);
    }
    return this.#lent(place, await this.#make(place, destination, options), false);
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
      for (const { session } of idle.splice(0)) leaving.push(session.quit());
    }
    this.#idle = 0;
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
  #turn(place: Place, { most = Infinity, signal }: LeaseOptions): Promise<ClientSession | undefined> {
    if (this.#closed) return Promise.reject(closedHere());
    if (signal?.aborted === true) return Promise.reject(abortFailure('connect'));
    if (place.waiters.size === 0 && this.#admits(place, most)) {
      const kept = this.#takeIdle(place);
      this.#count(place, 1);
      return Promise.resolve(kept);
    }
    if (this.#waiting >= this.#limits.waiting) return Promise.reject(tooMany());
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        signal?.removeEventListener('abort', aborted);
        if (place.waiters.delete(waiter)) this.#waiting -= 1;
        this.#forget(place);
      };
      const waiter: Waiter = {
        most,
        proceed: (session) => {
          this.#count(place, 1);
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
      this.#waiting += 1;
    });
  }

  async #make(place: Place, destination: Destination, options: LeaseOptions): Promise<ClientSession> {
    const { deadlines, signal } = options;
    const call = { clock: this.#clock, ...(deadlines && { deadlines }), ...(signal && { signal }) };
    try {
      const session = await this.#open(destination, call);
      this.#opened += 1;
      return session;
    } catch (error) {
      this.#failed += 1;
      this.#leave(place);
      throw error;
    }
  }

  #lent(place: Place, session: ClientSession, reused: boolean): Lease {
    let out = true;
    const release = (): void => {
      if (!out) return;
      out = false;
      if (this.#keeps(session)) this.#keep(place, session);
      else if (session.failure === undefined) void session.quit();
      this.#leave(place);
    };
    return { session, reused, release };
  }

  #keeps(session: ClientSession): boolean {
    const { uses, ageMs } = this.#limits;
    const young = this.#clock.monotonic() - session.since < ageMs;
    return !this.#closed && session.reusable && session.messages < uses && young;
  }

  #keep(place: Place, session: ClientSession): void {
    place.idle.push({ session, at: this.#clock.monotonic() });
    this.#idle += 1;
    this.#sweep ??= setTimeout(() => this.#sweepIdle(), this.#limits.idleMs).unref();
  }

  #leave(place: Place): void {
    const wasFull = this.#busy >= this.#limits.connections;
    this.#count(place, -1);
    this.#serve(place);
    if (wasFull) this.#serveOthers(place);
    this.#forget(place);
  }

  /** Those who wait here, as far as there is something for them. */
  #serve(place: Place): void {
    for (const waiter of place.waiters) {
      if (!this.#admits(place, waiter.most)) return;
      waiter.proceed(this.#takeIdle(place));
    }
  }

  /** Where the whole pool was full, room here is room for another destination. */
  #serveOthers(place: Place): void {
    if (this.#waiting === 0) return;
    for (const other of this.#places.values()) {
      if (this.#busy >= this.#limits.connections) return;
      if (other !== place && other.waiters.size > 0) this.#serve(other);
    }
  }

  #admits(place: Place, most: number): boolean {
    return this.#busy < this.#limits.connections && place.busy < Math.min(most, this.#limits.connectionsEach);
  }

  /** The newest that is still in order; undefined when one must be made, for which there is room then. */
  #takeIdle(place: Place): ClientSession | undefined {
    for (let one = place.idle.pop(); one !== undefined; one = place.idle.pop()) {
      this.#idle -= 1;
      if (this.#keeps(one.session)) return one.session;
      void one.session.quit();
    }
    if (this.#busy + this.#idle >= this.#limits.connections) this.#discardOne();
    return undefined;
  }

  #discardIdle(place: Place): void {
    this.#idle -= place.idle.length;
    for (const { session } of place.idle.splice(0)) session.close();
  }

  /** One of those that are kept for other destinations. */
  #discardOne(): void {
    for (const place of this.#places.values()) {
      const oldest = place.idle.shift();
      if (oldest === undefined) continue;
      this.#idle -= 1;
      void oldest.session.quit();
      return;
    }
  }

  #sweepIdle(): void {
    this.#sweep = undefined;
    const now = this.#clock.monotonic();
    for (const place of this.#places.values()) {
      while (place.idle[0] !== undefined && this.#isStale(place.idle[0], now)) {
        void place.idle.shift()?.session.quit();
        this.#idle -= 1;
      }
      this.#forget(place);
    }
    if (this.#idle > 0) this.#sweep = setTimeout(() => this.#sweepIdle(), this.#limits.idleMs).unref();
  }

  #isStale({ session, at }: Idle, now: number): boolean {
    return !session.reusable || now - at >= this.#limits.idleMs || now - session.since >= this.#limits.ageMs;
  }

  #count(place: Place, by: 1 | -1): void {
    place.busy += by;
    this.#busy += by;
  }

  #forget(place: Place): void {
    if (place.busy + place.idle.length + place.waiters.size === 0) this.#places.delete(place.key);
  }
}

/** The connection was gone before the server had answered anything: closed, or with the 421 of a server that left meanwhile. */
function diedUnseen(failure: ClientFailure | undefined): boolean {
  if (failure === undefined || failure.step !== 'mail') return false;
  return failure.kind === 'closed' || (failure.kind === 'reply' && failure.code === 421);
}

const closedHere = (): ClientFailure => localFailure('connect', 'No more mail is sent');
const tooMany = (): ClientFailure => localFailure('connect', 'Too many messages wait for a connection');
