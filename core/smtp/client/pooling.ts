import type { CallOptions, Destination } from './destination.js';
import type { MessageResult, OutgoingMessage, SendOptions } from './message.js';
import type { ClientSession } from './session.js';

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

export const usualPoolLimits: PoolLimits = {
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

export interface LeaseOptions extends Omit<CallOptions, 'transcript' | 'identity' | 'clock'> {
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
