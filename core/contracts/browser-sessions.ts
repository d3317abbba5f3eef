import type { Clock } from '../clock.js';
import type { Role } from './accounts.js';
import { service } from './service.js';

/** A browser that signed in with the page, as it is kept. */
export interface KeptSession {
  /** Names the session on pages; tells nothing about its token. */
  readonly id: string;
  /** SHA-256 of the token. */
  readonly digest: string;
  readonly username: string;
  readonly role: Role;
  /** Hash of the password at the sign-in. */
  readonly passwordHash: string;
  /** Where it signed in from. */
  readonly address: string;
  readonly browser: string;
  /** Milliseconds since the epoch, by the clock of the store. */
  readonly since: number;
  readonly lastUsed: number;
}

/** Beyond them sessions end, those unused longest first. */
export interface SessionBounds {
  readonly perAccount: number;
  readonly inAll: number;
  /** Older ones, and those not used since, end as well. */
  readonly sinceAfter: number;
  readonly usedAfter: number;
}

/**
 * Sessions of browsers that the servers of a cluster share. They lie in a file, unless a plugin provides this from the
 * start. Every call rejects with the problem `unavailable` when the store does not answer.
 */
export interface KeptSessions {
  readonly clock: Clock;
  /** Durable when it resolves. */
  add(session: KeptSession, bounds: SessionBounds): Promise<void>;
  /** Those that there are. */
  read(digests: readonly string[]): Promise<readonly KeptSession[]>;
  of(username: string): Promise<readonly KeptSession[]>;
  /** Durable when it resolves; other servers learn of it soon. */
  remove(digests: readonly string[]): Promise<void>;
  /** @param times of the last use, by digest */
  use(times: ReadonlyMap<string, number>): Promise<void>;
  /**
   * Called when sessions may have ended at another server, and at intervals, in case that was not heard.
   *
   * @param listener null: any of them may have
   * @returns the undo
   */
  watch(listener: (digests: readonly string[] | null) => void): () => void;
}
export const keptSessions = service<KeptSessions>('postern.kept-sessions');
