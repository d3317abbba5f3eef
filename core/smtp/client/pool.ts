import { LRUCache } from 'lru-cache';
import { type Clock, systemClock } from '../../clock.js';
import { type CallOptions, type RemoteServer, serverKey } from './remote-server.js';
import { abortFailure } from './dial.js';
import { type ClientFailure, diedIdle, isClientFailure, localFailure } from './failure.js';
import { type MessageResult, type OutgoingMessage, type SendOptions, failedResult } from './message.js';
import { openSession } from './opening.js';
import type { ClientSession } from './session.js';

/**
 * Pool of connections by server. Reuses the newest first; closes those that are too old, idle for too long, used
 * too often, or broken.
 */
export class ClientPool implements SessionPool {
  readonly #limits: PoolLimits;
  readonly #clock: Clock;
  readonly #open: typeof openSession;
  readonly #entries = new Map<string, PoolEntry>();
  readonly #groups = new PoolGroups();
  /** Keys of servers that offer BDAT and do not know it. */
  readonly #withoutChunks = new LRUCache<string, true>({ max: 1000 });
  #sweep: NodeJS.Timeout | undefined;
  #closed = false;
  #busy = 0;
  #idle = 0;
  #waiting = 0;
  #opened = 0;
  #reused = 0;
  #failed = 0;

  constructor(limits: Partial<PoolLimits> = {}, clock: Clock = systemClock, open: typeof openSession = openSession) {
    this.#limits = { ...defaultPoolLimits, ...limits };
    this.#clock = clock;
    this.#open = open;
  }

  statistics(): PoolStatistics {
    const counted = { leased: this.#busy, idle: this.#idle, waiting: this.#waiting };
    return { ...counted, opened: this.#opened, reused: this.#reused, failed: this.#failed };
  }

  async lease(server: RemoteServer, options: LeaseOptions = {}): Promise<PooledSession> {
    const place = this.#entryOf(server);
    const group = this.#groups.get(options.group ?? place.key);
    const kept = await this.#awaitConnection(place, group, options);
    if (kept !== undefined) {
      this.#reused += 1;
      return this.#leaseOf(place, group, kept, true);
    }
    return this.#leaseOf(place, group, await this.#openSession(place, group, server, options), false);
  }

  async send(
    server: RemoteServer,
    message: OutgoingMessage,
    options: LeaseOptions & SendOptions = {},
  ): Promise<MessageResult> {
    try {
      return await this.#sendBy(await this.lease(server, options), server, message, options);
    } catch (error) {
      if (!isClientFailure(error)) throw error;
      return failedResult(message, error, options.settled);
    }
  }

  /** Closes idle connections of a group that has more than it may have now. Those in use stay. */
  trim(name: string, most: number): void {
    const group = this.#groups.find(name);
    if (group === undefined) return;
    for (let more = group.busy + group.idle - most; more > 0 && group.idle > 0; more -= 1) this.#discardOf(group);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#sweep);
    const leaving: Promise<void>[] = [];
    for (const { waiters, idle } of this.#entries.values()) {
      for (const waiter of waiters) waiter.refuse(closedHere());
      for (const one of idle.splice(0)) leaving.push(this.#removeIdle(one).quit());
    }
    await Promise.all(leaving);
  }

  /**
   * An idle connection may have died unnoticed: none of the message was sent, so it is tried once more on a new one.
   */
  async #sendBy(
    lease: PooledSession,
    server: RemoteServer,
    message: OutgoingMessage,
    options: LeaseOptions & SendOptions,
  ): Promise<MessageResult> {
    const { signal, settled } = options;
    const tell: SendOptions['settled'] = (index, result) => {
      const mayBeRetried = lease.reused && result.outcome === 'failed' && diedIdle(result.failure);
      if (!mayBeRetried) settled?.(index, result);
    };
    const sent = lease.session.send(message, { settled: tell, ...(signal && { signal }) });
    const result = await sent.finally(() => lease.release());
    if (!lease.reused || !diedIdle(result.failure)) return result;
    const place = this.#entryOf(server);
    this.#discardIdle(place);
    return this.#sendBy(await this.lease(server, options), server, message, options);
  }

  #entryOf(server: RemoteServer): PoolEntry {
    const key = serverKey(server);
    const known = this.#entries.get(key);
    if (known !== undefined) return known;
    const place: PoolEntry = { key, busy: 0, idle: [], waiters: new Set() };
    this.#entries.set(key, place);
    return place;
  }

  /** Resolves with an idle connection, or undefined when the caller may open one, and counts the caller as busy. */
  #awaitConnection(
    place: PoolEntry,
    group: PoolGroup,
    { most = Infinity, signal }: LeaseOptions,
  ): Promise<ClientSession | undefined> {
    if (this.#closed) return this.#refused(place, group, closedHere());
    if (signal?.aborted === true) return this.#refused(place, group, abortFailure('connect'));
    const isNext = group.waiting === 0 || ![...place.waiters].some((waiter) => waiter.group === group);
    if (isNext && !this.#isFull(place) && group.busy < most)
      return Promise.resolve(this.#takeOrReserve(place, group, most));
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

  #refused(place: PoolEntry, group: PoolGroup, failure: ClientFailure): Promise<never> {
    this.#forget(place);
    this.#groups.forget(group);
    return Promise.reject(failure);
  }

  #countWaiting(group: PoolGroup, by: 1 | -1): void {
    group.waiting += by;
    this.#waiting += by;
    this.#groups.forget(group);
  }

  /** An idle connection, or permission to open one. */
  #takeOrReserve(place: PoolEntry, group: PoolGroup, most: number): ClientSession | undefined {
    this.#count(place, group, 1);
    const kept = this.#takeIdle(place);
    if (kept === undefined) this.#makeRoom(group, most);
    return kept;
  }

  async #openSession(
    place: PoolEntry,
    group: PoolGroup,
    server: RemoteServer,
    options: LeaseOptions,
  ): Promise<ClientSession> {
    const { deadlines, signal } = options;
    const chunking = !this.#withoutChunks.has(place.key);
    const call = { clock: this.#clock, chunking, ...(deadlines && { deadlines }), ...(signal && { signal }) };
    try {
      const session = await this.#open(server, call);
      this.#opened += 1;
      return session;
    } catch (error) {
      this.#failed += 1;
      this.#leave(place, group);
      throw error;
    }
  }

  #leaseOf(place: PoolEntry, group: PoolGroup, session: ClientSession, reused: boolean): PooledSession {
    let out = true;
    const release = (): void => {
      if (!out) return;
      out = false;
      if (session.refusedChunk) this.#withoutChunks.set(place.key, true);
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

  #keep(place: PoolEntry, group: PoolGroup, session: ClientSession): void {
    place.idle.push({ session, group, at: this.#clock.monotonic() });
    group.idle += 1;
    this.#idle += 1;
    this.#sweep ??= setTimeout(() => this.#sweepIdle(), this.#limits.idleMs).unref();
  }

  /** Accounts for an idle connection that is leaving. */
  #removeIdle({ session, group }: Idle): ClientSession {
    this.#idle -= 1;
    group.idle -= 1;
    this.#groups.forget(group);
    return session;
  }

  #leave(place: PoolEntry, group: PoolGroup): void {
    const wasFull = this.#busy >= this.#limits.connections;
    this.#count(place, group, -1);
    this.#serve(place);
    if (wasFull || group.waiting > 0) this.#serveOthers(place);
    this.#forget(place);
    this.#groups.forget(group);
  }

  /** Serves as many waiters of this server as possible. */
  #serve(place: PoolEntry): void {
    for (const waiter of place.waiters) {
      const { group, most } = waiter;
      if (this.#isFull(place)) return;
      if (group.busy < most) waiter.proceed(this.#takeOrReserve(place, group, most));
      else if (group.name === place.key) return;
    }
  }

  /** Freed capacity may serve another server. */
  #serveOthers(place: PoolEntry): void {
    if (this.#waiting === 0) return;
    for (const other of this.#entries.values()) {
      if (this.#busy >= this.#limits.connections) return;
      if (other !== place && other.waiters.size > 0) this.#serve(other);
    }
  }

  #isFull({ busy }: PoolEntry): boolean {
    return this.#busy >= this.#limits.connections || busy >= this.#limits.connectionsEach;
  }

  /** The newest idle connection that is usable. */
  #takeIdle(place: PoolEntry): ClientSession | undefined {
    for (let one = place.idle.pop(); one !== undefined; one = place.idle.pop()) {
      const session = this.#removeIdle(one);
      if (this.#keeps(session)) return session;
      void session.quit();
    }
    return undefined;
  }

  #discardIdle(place: PoolEntry): void {
    for (const one of place.idle.splice(0)) this.#removeIdle(one).close();
  }

  /** Closes idle connections to make room for a new one. */
  #makeRoom(group: PoolGroup, most: number): void {
    if (group.idle > 0 && group.busy + group.idle > most) this.#discardOf(group);
    if (this.#busy + this.#idle > this.#limits.connections) this.#discardOf();
  }

  /** Closes one that is idle, of the group if one is given. */
  #discardOf(group?: PoolGroup): void {
    takeIdleWhere(
      this.#entries.values(),
      (one) => group === undefined || one.group === group,
      (place, one) => {
        void this.#removeIdle(one).quit();
        this.#forget(place);
      },
    );
  }

  #sweepIdle(): void {
    this.#sweep = undefined;
    const now = this.#clock.monotonic();
    for (const place of this.#entries.values()) {
      while (place.idle[0] !== undefined && this.#isStale(place.idle[0], now)) {
        void this.#removeIdle(place.idle[0]).quit();
        place.idle.shift();
      }
      this.#forget(place);
    }
    if (this.#idle > 0) this.#sweep = setTimeout(() => this.#sweepIdle(), this.#limits.idleMs).unref();
  }

  #isStale({ session, at }: Idle, now: number): boolean {
    return !session.reusable || now - at >= this.#limits.idleMs || now - session.since >= this.#limits.ageMs;
  }

  #count(place: PoolEntry, group: PoolGroup, by: 1 | -1): void {
    place.busy += by;
    group.busy += by;
    this.#busy += by;
  }

  #forget(place: PoolEntry): void {
    if (place.busy + place.idle.length + place.waiters.size === 0) this.#entries.delete(place.key);
  }
}

export interface PoolLimits {
  /** Connections of the whole pool, in use and idle. */
  readonly connections: number;
  /** Connections of one server, whatever the group; a lease may ask for less. */
  readonly connectionsEach: number;
  /** Maximum number of waiting callers; more are refused. */
  readonly waiting: number;
  /** How long an unused connection is kept, in milliseconds. */
  readonly idleMs: number;
  /** Messages after which a connection is closed. */
  readonly uses: number;
  /** Age at which a connection is closed, in milliseconds. */
  readonly ageMs: number;
}

const defaultPoolLimits: PoolLimits = {
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
  /** Since the start: connections opened, leases served by an idle one, failed openings. */
  readonly opened: number;
  readonly reused: number;
  readonly failed: number;
}

interface LeaseOptions extends Omit<CallOptions, 'transcript' | 'identity' | 'clock'> {
  /** Maximum connections to this server; the pool's limit when absent or higher. */
  readonly most?: number;
  /** Servers leased with the same name share `most`, idle connections included; default the server alone. */
  readonly group?: string;
}

/** A connection for one message at a time. */
export interface PooledSession {
  readonly session: ClientSession;
  /** True when the connection was idle before: the server may have closed it. */
  readonly reused: boolean;
  /** Returns the connection; reusable ones are kept. Call it once. */
  release(): void;
}

/** Reusable connections by server (`serverKey`). */
export interface SessionPool {
  /** Rejects with a `ClientFailure`: that of the opening, or `local` when aborted or when too many wait. */
  lease(server: RemoteServer, options?: LeaseOptions): Promise<PooledSession>;
  /**
   * Sends one message over an idle or a new connection. An idle connection that proves dead before the server had
   * anything of the message is replaced. Never rejects.
   */
  send(server: RemoteServer, message: OutgoingMessage, options?: LeaseOptions & SendOptions): Promise<MessageResult>;
  statistics(): PoolStatistics;
  /** Sends QUIT on idle connections, refuses waiters, and closes leased connections when they return. */
  close(): Promise<void>;
}

/** A caller that waits for a connection. */
interface Waiter {
  readonly group: PoolGroup;
  readonly most: number;
  readonly proceed: (session: ClientSession | undefined) => void;
  readonly refuse: (failure: ClientFailure) => void;
}

interface Idle {
  readonly session: ClientSession;
  readonly group: PoolGroup;
  readonly at: number;
}

/** State of one server; removed with its last connection and waiter. */
interface PoolEntry {
  readonly key: string;
  /** Leased or opening. */
  busy: number;
  /** The connection returned last is reused first. */
  readonly idle: Idle[];
  readonly waiters: Set<Waiter>;
}

/** Removes the oldest matching connection of the first server that has one. */
function takeIdleWhere(
  places: Iterable<PoolEntry>,
  suits: (one: Idle) => boolean,
  taken: (place: PoolEntry, one: Idle) => void,
): void {
  for (const place of places) {
    const index = place.idle.findIndex(suits);
    const [oldest] = index < 0 ? [] : place.idle.splice(index, 1);
    if (oldest !== undefined) return taken(place, oldest);
  }
}

const closedHere = (): ClientFailure => localFailure('connect', 'No more mail is sent');
const tooMany = (): ClientFailure => localFailure('connect', 'Too many messages wait for a connection');

/** Connections that share a limit across servers; removed with the last of them. */
interface PoolGroup {
  readonly name: string;
  /** Leased or opening. */
  busy: number;
  /** Idle connections that it used last. */
  idle: number;
  waiting: number;
}

class PoolGroups {
  readonly #groups = new Map<string, PoolGroup>();

  get(name: string): PoolGroup {
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    const group = { name, busy: 0, idle: 0, waiting: 0 };
    this.#groups.set(name, group);
    return group;
  }

  find(name: string): PoolGroup | undefined {
    return this.#groups.get(name);
  }

  /** Call it after a count went down. */
  forget({ name, busy, idle, waiting }: PoolGroup): void {
    if (busy + idle + waiting === 0) this.#groups.delete(name);
  }
}
