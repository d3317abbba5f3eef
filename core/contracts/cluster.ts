import { service } from './service.js';

/**
 * What the servers of a cluster share. A plugin provides these services; without one, a server is alone: documents are
 * files, all duties are its own, and limits are not divided.
 */

/** A text with a name, replaced as a whole. */
export interface StoredDocument {
  /** For messages: the path of a file, for example. */
  readonly place: string;
  /** Undefined while there is none. */
  read(): Promise<{ readonly text: string; readonly version: number } | undefined>;
  /**
   * Durable when it resolves with the new version. Resolves with undefined, and changes nothing, when the present
   * version is another one.
   *
   * @param version the one that was read; undefined where there was no document
   */
  replace(text: string, version: number | undefined): Promise<number | undefined>;
  /** Called after another server has changed it. Returns the undo. */
  watch(listener: () => void): () => void;
}

/** Small documents. */
export interface Documents {
  /** @param name `destinations`, `mta-sts` */
  get(name: string): StoredDocument;
}
export const documents = service<Documents>('postern.documents');

/** Limits of a site, or of a destination within its site. */
export interface PaceLimits {
  /** `Infinity` where there is no limit. */
  readonly maxConnections: number;
  readonly ratePerMinute: number | undefined;
  readonly suspended: boolean;
}

/** The parts of limits that the servers of a cluster may use. */
export interface SiteShares {
  /**
   * What this server may use now. Called for each claim and attempt, and changes nothing. Less than before ends nothing
   * that runs.
   *
   * @param site `site:mx.example.org`, or a destination with limits: `example.org`
   * @param limits of all servers together
   */
  of(site: string, limits: PaceLimits): PaceLimits;
  /**
   * What this server uses; called after each change of it. A connection may stay open without work for `idleSeconds` of
   * client-queue.
   *
   * @param use `waiting`: there is mail that would use more
   */
  use(site: string, limits: PaceLimits, use: { readonly running: number; readonly waiting: boolean }): void;
  /** Called after the share of a site has changed. Returns the undo. */
  onChange(listener: (site: string) => void): () => void;
}
export const siteShares = service<SiteShares>('postern.site-shares');

/** A server that is alone may use all. */
export const undividedShares: SiteShares = {
  of: (_, limits) => limits,
  use: () => undefined,
  onChange: () => () => undefined,
};

/**
 * Work that one server of a cluster does for all: `queue.housekeeping`, `queue.notices`. Two servers may have a duty for
 * a moment: the work may be done twice.
 */
export interface Duties {
  /** Asked before each round of the work. */
  has(name: string): boolean;
}
export const duties = service<Duties>('postern.duties');

/** Attempts in a window of time. */
export interface CountedAttempts {
  /** When the window began, by `clock.monotonic()` of this process. */
  readonly window: number;
  readonly count: number;
}

/** What a limit of failed sign-ins has counted. */
export interface AttemptCounts {
  readonly windowSeconds: number;
  /**
   * Keys that were counted here since the last call, with their present windows; the first call has all. A count of 0 is
   * a success: what was counted before is forgotten. What `merge` has added is not in it.
   */
  changes(max: number): readonly ({ readonly key: string } & CountedAttempts)[];
  /** Replaces what other servers have counted for the key. */
  merge(key: string, counts: readonly CountedAttempts[]): void;
}

/** The limits of failed sign-ins of this server: `http`, `http-clients`, `smtp`, `users`. */
export interface AttemptLimits {
  /** @param counts the present one: a reload may begin anew. Returns the undo. */
  add(name: string, counts: () => AttemptCounts): () => void;
  all(): ReadonlyMap<string, AttemptCounts>;
}
export const attemptLimits = service<AttemptLimits>('postern.attempt-limits');
