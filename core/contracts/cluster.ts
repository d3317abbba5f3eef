import type { Clock } from '../clock.js';
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
  /** @param name `destinations`, `mta-sts`, `http-accounts` */
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
   * What this server uses; called after each change of it, and every few seconds at least while mail waits and nothing
   * runs.
   *
   * @param use `waiting`: there is mail that would use more. `idleMs`: a connection stays open so long without work
   */
  use(
    site: string,
    limits: PaceLimits,
    use: { readonly running: number; readonly waiting: boolean; readonly idleMs: number },
  ): void;
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

/** Values of columns as `pg` gives them: numbers as numbers, `bigint` as text. */
export type SqlRow = Readonly<Record<string, unknown>>;

/** One connection to the shared database, in a transaction. */
export interface SqlTransaction {
  /** One statement; its values are numbered parameters, never part of the text. */
  query<R extends SqlRow>(text: string, values?: readonly unknown[]): Promise<readonly R[]>;
}

/** A kind of work. Each has its own connections, so that no kind waits for another. */
export type SqlPurpose = 'accept' | 'claim' | 'settle' | 'pages' | 'bodies';

/** The database that the nodes share. Tables are in the schema `postern`; every name is written with it. */
export interface SharedDatabase {
  /** @throws Problem `unavailable` while there is no connection */
  query<R extends SqlRow>(purpose: SqlPurpose, text: string, values?: readonly unknown[]): Promise<readonly R[]>;
  /**
   * Commits when `work` resolves. A transaction that only collided with another one is repeated, so `work` changes
   * only the database. @throws Problem `unavailable` while there is no connection
   */
  transaction<T>(purpose: SqlPurpose, work: (sql: SqlTransaction) => Promise<T>): Promise<T>;
}

/** This node among those that share the database. */
export interface Cluster {
  readonly node: string;
  readonly database: SharedDatabase;
  /** The time of the database, so that all nodes have one. */
  readonly clock: Clock;
  /** Of the session of this node; undefined while it has none. Leases belong to it. */
  readonly session: string | undefined;
  /** Why this server has no part in the cluster until another version of it is installed; undefined when it has. */
  readonly outdated: string | undefined;
  /**
   * Ends what this server has left of its earlier sessions, so that all nodes take their leases. Called when what came of
   * these leases is written; until then such a session lives as long as one that is silent. Does nothing without a session.
   */
  endEarlierSessions(): Promise<void>;
  /** How long a message waits for a database that is away. Milliseconds. */
  readonly commitTimeoutMs: number;
  /** An operator wants this node to end its work: it claims nothing, and others have its duties and shares. */
  readonly draining: boolean;
  /** Called when `draining` has changed. Returns the undo. */
  onDraining(listener: () => void): () => void;
  /** Called when a session has begun, and when it has ended. Returns the undo. */
  onSession(listener: () => void): () => void;
  /**
   * The fence: whether that session still lives, so that what it has leased may be sent. `true` and `false` hold for
   * this turn of the event loop.
   */
  mayEnd(session: string): boolean | Promise<boolean>;
  /** Tells the other nodes soon, after a commit. Do not depend on it. */
  ring(topic: string, names: readonly string[]): void;
  /** What other nodes ring. `names` is null when there were too many. Returns the undo. */
  onRing(topic: string, listener: (names: readonly string[] | null) => void): () => void;
}
export const cluster = service<Cluster>('postern.cluster');

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

/** How entries of the relay queue go from one place to the other. */
export interface QueueMove {
  /** `import`: from the files of the data folder into the database. `export`: back. */
  readonly direction: 'import' | 'export';
  /** The data folder, which the caller has locked. */
  readonly data: string;
  /** This server, which has joined. */
  readonly cluster: Cluster;
  readonly clock: Clock;
  /** Only counts. */
  readonly dryRun: boolean;
  readonly progress: (done: number, total: number) => void;
}

/** Counts of entries. */
export interface MovedEntries {
  /** That were looked at. */
  readonly entries: number;
  readonly moved: number;
  /** That an earlier run had moved. */
  readonly there: number;
  /** That stay where they were. */
  readonly left: readonly { readonly uid: string; readonly reason: string }[];
}

export type MoveQueue = (move: QueueMove) => Promise<MovedEntries>;

/** SQLSTATE of an error of the database; undefined for another error, such as `EPIPE`. */
export function sqlState(error: unknown): string | undefined {
  const { code } = error as { readonly code?: unknown };
  return typeof code === 'string' && /^[0-9FHPX][0-9A-Z]{4}$/.test(code) ? code : undefined;
}
