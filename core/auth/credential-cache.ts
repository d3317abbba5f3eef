import { hash, randomBytes } from 'node:crypto';
import type { Clock } from '../clock.js';

export interface CredentialCacheOptions {
  readonly ttlSeconds: number;
  /** Users remembered at most; beyond it the one remembered first is forgotten. */
  readonly max: number;
  readonly clock: Pick<Clock, 'monotonic'>;
}

interface Entry {
  readonly proof: string;
  /** Monotonic milliseconds. */
  readonly until: number;
}

/**
 * Remembers for a short time which password was right for a user, so that the next request needs no scrypt.
 *
 * It holds no password and no plain hash of one, only a digest under a key that dies with the process. It never says that a
 * password is wrong: that answer must cost as much as ever, else it would tell who has signed in lately.
 *
 * Whoever changes a password or disables a user calls `forget`.
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

  /** True when this password was right lately; undefined when that is not known and must be verified. */
  get(username: string, password: string): true | undefined {
    const entry = this.#entries.get(username);
    if (entry === undefined) return undefined;
    if (entry.until <= this.#options.clock.monotonic()) {
      this.#entries.delete(username);
      return undefined;
    }
    // Who does not know the key cannot choose what a digest begins with: how far two agree tells nothing.
    return entry.proof === this.#proof(username, password) ? true : undefined;
  }

  /** Call it only with a password that has just been verified. */
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
