import type { Clock } from '../clock.js';
import { service } from './service.js';

/** Values of columns as `pg` gives them: numbers as numbers, `bigint` as text. */
export type SqlRow = Readonly<Record<string, unknown>>;

/** One connection to the shared database, in a transaction. */
export interface SqlTransaction {
  /** One statement; its values are numbered parameters, never part of the text. */
  query<R extends SqlRow>(text: string, values?: readonly unknown[]): Promise<readonly R[]>;
}

/** Work that has connections of its own, so that none waits for another kind. */
export type SqlPurpose = 'accept' | 'claim' | 'settle' | 'pages' | 'bodies';

/** The database that the nodes share. Tables are in the schema `postern`; every name is written with it. */
export interface SharedDatabase {
  /** @throws Problem `unavailable` while there is no connection */
  query<R extends SqlRow>(purpose: SqlPurpose, text: string, values?: readonly unknown[]): Promise<readonly R[]>;
  /**
   * Commits when `work` resolves. A transaction that only collided with another one is repeated, so `work` changes
   * nothing but the database. @throws Problem `unavailable` while there is no connection
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
  /** Called when a session has begun, and when it has ended. Returns the undo. */
  onSession(listener: () => void): () => void;
  /**
   * The fence: whether that session still lives, so that what it has leased may be sent. `true` and `false` hold for
   * this turn of the event loop.
   */
  mayEnd(session: string): boolean | Promise<boolean>;
  /** Tells the other nodes soon, after a commit. Nobody may depend on it. */
  ring(topic: string, names: readonly string[]): void;
  /** What other nodes ring. `names` is null when there were too many. Returns the undo. */
  onRing(topic: string, listener: (names: readonly string[] | null) => void): () => void;
}
export const cluster = service<Cluster>('postern.cluster');
