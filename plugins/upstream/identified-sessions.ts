import type { ClientIdentity, Destination } from '../../core/smtp/client/destination.js';
import { localFailure } from '../../core/smtp/client/failure.js';
import type { PooledSession } from '../../core/smtp/client/pool.js';
import type { ClientSession } from '../../core/smtp/client/session.js';
import type { SmtpSession } from '../../core/pipeline/transaction.js';

/** A connection on which the server knows the client's identity. */
interface Identified {
  readonly key: string;
  readonly session: ClientSession;
}

/** Connections that each belong to one client: reused while it stays connected with the same identity. */
export class IdentifiedSessions {
  /** Undefined: the client is gone. */
  readonly #kept = new WeakMap<SmtpSession, Identified | undefined>();
  /** Idle ones only: they are found without their clients. */
  readonly #idle = new Set<Identified>();
  #open = 0;
  #closed = false;

  async lease(
    client: { readonly session: SmtpSession; readonly identity: ClientIdentity },
    { address }: Destination,
    most: number,
    open: () => Promise<ClientSession>,
  ): Promise<PooledSession> {
    const key = JSON.stringify([address, client.identity]);
    const kept = this.#take(client.session, key);
    if (kept !== undefined) return this.#lent(client.session, { key, session: kept }, true);
    if (this.#open >= most) throw localFailure('connect', 'Too many messages wait for a connection');
    this.#open += 1;
    try {
      return this.#lent(client.session, { key, session: await open() }, false);
    } catch (error) {
      this.#open -= 1;
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

  #take(client: SmtpSession, key: string): ClientSession | undefined {
    const kept = this.#kept.get(client);
    if (kept === undefined) return undefined;
    this.#kept.delete(client);
    if (!this.#idle.delete(kept)) return undefined;
    if (kept.key === key && kept.session.reusable) return kept.session;
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

  #leave({ session }: Identified): void {
    this.#open -= 1;
    if (session.failure === undefined) void session.quit();
  }
}
