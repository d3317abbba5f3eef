import { hash, randomBytes } from 'node:crypto';
import type { Clock } from '../clock.js';

export interface CredentialCacheOptions {
  readonly ttlSeconds: number;
  /** Users remembered at most; the oldest entry is evicted first. */
  readonly max: number;
  readonly clock: Pick<Clock, 'monotonic'>;
}

interface Entry {
  readonly proof: string;
  /** Monotonic milliseconds. */
  readonly until: number;
}

/**
 * Remembers for a short time that a password was correct, so that the next request needs no scrypt.
 *
 * Stores a keyed digest only; the key exists in this process alone. Never says that a password is wrong: that answer
 * must take as long as ever, or the time would tell who signed in lately.
 *
 * Call `forget` when a password changes or a user is disabled.
 */
export class CredentialCache {
  readonly #options: CredentialCacheOptions;
  readonly #key = randomBytes(32).toString('base64');
  readonly #entries = new Map<string, Entry>();

  constructor(options: CredentialCacheOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** True when this password was correct recently; undefined when it must be verified. */
  get(username: string, password: string): true | undefined {
    const entry = this.#entries.get(username);
    if (entry === undefined) return undefined;
    if (entry.until <= this.#options.clock.monotonic()) {
      this.#entries.delete(username);
      return undefined;
    }
    // Without the key, a client cannot choose how a digest begins: the time of the comparison tells nothing.
    return entry.proof === this.#proof(username, password) ? true : undefined;
  }

  /** Call it only after the password was verified. */
  remember(username: string, password: string): void {
    const { ttlSeconds, max, clock } = this.#options;
    this.#entries.delete(username);
    this.#entries.set(username, {
      proof: this.#proof(username, password),
      until: clock.monotonic() + ttlSeconds * 1000,
    });
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= max) break;
      this.#entries.delete(oldest);
    }
  }

  forget(username: string): void {
    this.#entries.delete(username);
  }

  #proof(username: string, password: string): string {
    return hash('sha256', `${this.#key}${JSON.stringify([username, password])}`, 'base64');
  }
}
