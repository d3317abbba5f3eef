import { isIP } from 'node:net';
import type { Clock } from '../../core/clock.js';
import type { HopFinder, NextHop } from '../../core/dns/next-hop.js';
import type { SmtpSession } from '../../core/pipeline/transaction.js';
import type { CallOptions, ClientIdentity, RemoteServer } from '../../core/smtp/client/remote-server.js';
import {
  clientFailure,
  type ClientFailure,
  type FailureKind,
  isAtMessage,
  isClientFailure,
  localFailure,
  timeoutFailure,
} from '../../core/smtp/client/failure.js';
import { openSession } from '../../core/smtp/client/opening.js';
import { ClientPool, type PooledSession } from '../../core/smtp/client/pool.js';
import type { ClientSession } from '../../core/smtp/client/session.js';
import { type BreakerOptions, readHost, type UpstreamSettings } from './settings.js';

export interface UpstreamDeps {
  readonly finder: Pick<HopFinder, 'forHosts'>;
  readonly helloName: string;
  readonly clock: Clock;
}

export interface Call {
  readonly signal: AbortSignal;
  /** Key of a client that may use only half of the connections to a host, so that it cannot keep others out. */
  readonly holder?: string;
  /** Owner of the connection, where each client has its own. */
  readonly client?: { readonly session: SmtpSession; readonly identity: ClientIdentity };
}

/** One server of an upstream: its addresses, idle connections, and its circuit breaker. */
export class UpstreamHost {
  readonly name: string;
  readonly port: number;
  readonly breaker: Breaker;
  readonly #settings: UpstreamSettings;
  readonly #deps: UpstreamDeps;
  readonly #pool: ClientPool;
  readonly #identified = new IdentifiedSessions();
  readonly #servers = new Map<string, RemoteServer>();

  constructor(written: string, settings: UpstreamSettings, deps: UpstreamDeps) {
    const { host, port } = readHost(written);
    this.name = host;
    this.port = port ?? settings.port;
    this.breaker = new Breaker(settings.breaker, deps.clock);
    this.#settings = settings;
    this.#deps = deps;
    const { connections, idleMs } = settings;
    const limits = { connections: connections * 2, connectionsEach: connections, waiting: 10_000, idleMs };
    this.#pool = new ClientPool(limits, deps.clock);
  }

  /** A connection for one message. Rejects with a `ClientFailure`, which the breaker counts if it is the server's. */
  async lease(call: Call): Promise<PooledSession> {
    let failure: ClientFailure | undefined;
    const addresses = await this.#addresses(call.signal);
    if (isClientFailure(addresses)) failure = addresses;
    else {
      for (const hop of addresses) {
        try {
          return await this.#leaseAt(this.#server(hop), call);
        } catch (error) {
          if (!isClientFailure(error)) throw error;
          if (failure === undefined || !isOurs(error)) failure = error;
          if (call.signal.aborted) break;
        }
      }
    }
    failure ??= noAddress(this.name);
    const overdue = call.signal.aborted && failure.kind === 'local' ? timeoutFailure(failure.step) : failure;
    if (isOfClient(failure)) this.breaker.succeeded('envelope');
    else if (!isOurs(failure)) this.breaker.failed(overdue);
    throw overdue;
  }

  /** Result of a message; `undefined` after a complete dialogue. A refusal is an answer, a 421 is none. */
  heard(failure: ClientFailure | undefined): void {
    if (failure === undefined) this.breaker.succeeded('message');
    else if (brokenKinds.has(failure.kind)) this.breaker.failed(failure);
    else if (failure.kind === 'capability' || (failure.kind === 'reply' && failure.code !== 421))
      this.breaker.succeeded(isAtMessage(failure) ? 'message' : 'envelope');
  }

  /** Closes the connections that belong to this client. */
  forget(session: SmtpSession): void {
    this.#identified.forget(session);
  }

  async close(): Promise<void> {
    this.#identified.close();
    await this.#pool.close();
  }

  #leaseAt(server: RemoteServer, { client, holder, signal }: Call): Promise<PooledSession> {
    const { deadlines, connections } = this.#settings;
    const share = holder === undefined ? {} : { group: holder, most: Math.ceil(connections / 2) };
    if (client === undefined) return this.#pool.lease(server, { deadlines, signal, ...share });
    const own = { identity: client.identity, chunking: false, clock: this.#deps.clock };
    const options: CallOptions = { deadlines, signal, ...own };
    return this.#identified.lease(client, server, { connections, ...share }, () => openSession(server, options));
  }

  async #addresses(signal: AbortSignal): Promise<readonly NextHop[] | ClientFailure> {
    if (isIP(this.name) !== 0) return [{ host: this.name, address: this.name, preference: 0 }];
    // Configured by the operator, so it may be in a private network.
    const search = await this.#deps.finder.forHosts([this.name], { allowPrivate: true, signal });
    if (search.outcome === 'found') return search.hops;
    const { status, text } = search;
    return clientFailure({ kind: 'connect', step: 'connect', code: 451, status: temporary(status), text });
  }

  #server({ host, address }: NextHop): RemoteServer {
    const known = this.#servers.get(address);
    if (known !== undefined) return known;
    const { protocol, extensions = true, tls, auth } = this.#settings;
    const about = { protocol, extensions, tls, helloName: this.#deps.helloName };
    const made = { address, host, port: this.port, ...about, ...(auth !== undefined && { auth }) };
    if (this.#servers.size > 100) this.#servers.clear();
    this.#servers.set(address, made);
    return made;
  }
}

/** The server's answer shows a fault. */
export const brokenKinds: ReadonlySet<FailureKind> = new Set(['connect', 'timeout', 'closed', 'protocol', 'tls']);

/** The connection was aborted, so it says nothing about the server. */
const isOurs = ({ kind, step }: ClientFailure): boolean => kind === 'local' && step === 'connect';

/** A server that answers XCLIENT, or hangs up on it, refuses that client alone. */
const isOfClient = ({ kind, step }: ClientFailure): boolean =>
  step === 'xclient' && (kind === 'reply' || kind === 'closed');

const temporary = (status: string): string => `4${status.slice(1)}`;

const noAddress = (host: string): ClientFailure => localFailure('hello', `${host} has no address`);

export const tlsWords = {
  never: 'without TLS',
  opportunistic: 'with TLS when it is offered',
  require: 'with TLS or not at all',
  implicit: 'with TLS from the first byte',
} as const;

/** `open`: no calls; `half-open`: the next call is a trial. */
export type BreakerState = 'closed' | 'open' | 'half-open';

/** Skips a server that does not answer, so that clients do not wait for it. */
class Breaker {
  readonly #options: BreakerOptions;
  readonly #clock: Clock;
  #failed = 0;
  /** Monotonic time of the next try; undefined while it is closed. */
  #until: number | undefined;
  #failure: ClientFailure | undefined;

  constructor(options: BreakerOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  get state(): BreakerState {
    if (this.#until === undefined) return 'closed';
    return this.#clock.monotonic() < this.#until ? 'open' : 'half-open';
  }

  /** Failure of the last call, if it failed. */
  get failure(): ClientFailure | undefined {
    return this.#failure;
  }

  /** Milliseconds until the next trial; 0 for now. */
  get waitMs(): number {
    return this.#until === undefined ? 0 : Math.max(0, this.#until - this.#clock.monotonic());
  }

  /** True when a call is allowed: in the half-open state only one, then the next pause begins. */
  admits(): boolean {
    const { state } = this;
    if (state === 'half-open') this.#until = this.#clock.monotonic() + this.#options.pauseMs;
    return state !== 'open';
  }

  /** A server that hangs at each message may answer all commands before it, so those answers do not reset the count. */
  succeeded(at: 'envelope' | 'message'): void {
    if (at === 'envelope' && this.#failure !== undefined && isAtMessage(this.#failure)) return;
    this.#failed = 0;
    this.#until = undefined;
    this.#failure = undefined;
  }

  failed(failure: ClientFailure): void {
    this.#failed += 1;
    this.#failure = failure;
    if (this.#failed >= this.#options.failures) this.#until = this.#clock.monotonic() + this.#options.pauseMs;
  }
}

/** A connection on which the server knows the client's identity. */
interface Identified {
  readonly key: string;
  /** Of the client. */
  readonly group: string | undefined;
  readonly session: ClientSession;
}

/** Connections that each belong to one client: reused while it stays connected with the same identity. */
class IdentifiedSessions {
  /** Undefined: the client is gone. */
  readonly #kept = new WeakMap<SmtpSession, Identified | undefined>();
  /** Idle ones only: they are found without their clients. */
  readonly #idle = new Set<Identified>();
  /** Groups of the open ones and of those that are being opened. */
  readonly #open: (string | undefined)[] = [];
  #closed = false;

  async lease(
    client: { readonly session: SmtpSession; readonly identity: ClientIdentity },
    { address }: RemoteServer,
    { connections, group, most = Infinity }: { connections: number; group?: string; most?: number },
    open: () => Promise<ClientSession>,
  ): Promise<PooledSession> {
    const key = JSON.stringify([address, client.identity]);
    const kept = this.#take(client.session, key);
    if (kept !== undefined) return this.#lent(client.session, kept, true);
    const isOver = (): boolean => this.#open.filter((one) => one === group).length >= most;
    if (isOver()) this.#leaveOldest(({ group: one }) => one === group);
    if (this.#open.length >= connections) this.#leaveOldest(() => true);
    if (isOver() || this.#open.length >= connections) {
      throw localFailure('connect', 'Too many messages wait for a connection');
    }
    this.#open.push(group);
    try {
      return this.#lent(client.session, { key, group, session: await open() }, false);
    } catch (error) {
      this.#uncount(group);
      throw error;
    }
  }

  forget(client: SmtpSession): void {
    const kept = this.#kept.get(client);
    this.#kept.set(client, undefined);
    if (kept !== undefined && this.#idle.delete(kept)) this.#leave(kept);
  }

  /** After closing, no connection is kept; those in use close on return. */
  close(): void {
    this.#closed = true;
    for (const kept of this.#idle) this.#leave(kept);
    this.#idle.clear();
  }

  #take(client: SmtpSession, key: string): Identified | undefined {
    const kept = this.#kept.get(client);
    if (kept === undefined) return undefined;
    this.#kept.delete(client);
    if (!this.#idle.delete(kept)) return undefined;
    if (kept.key === key && kept.session.reusable) return kept;
    this.#leave(kept);
    return undefined;
  }

  #lent(client: SmtpSession, identified: Identified, reused: boolean): PooledSession {
    let out = true;
    const release = (): void => {
      if (!out) return;
      out = false;
      // Its client is gone, or has another identity.
      const isInVain = this.#closed || this.#kept.has(client);
      if (!identified.session.reusable || isInVain) return this.#leave(identified);
      this.#kept.set(client, identified);
      this.#idle.add(identified);
    };
    return { session: identified.session, reused, release };
  }

  #leaveOldest(suits: (one: Identified) => boolean): void {
    const oldest = [...this.#idle].find(suits);
    if (oldest === undefined) return;
    this.#idle.delete(oldest);
    this.#leave(oldest);
  }

  #leave({ group, session }: Identified): void {
    this.#uncount(group);
    if (session.failure === undefined) void session.quit();
  }

  #uncount(group: string | undefined): void {
    this.#open.splice(this.#open.indexOf(group), 1);
  }
}
