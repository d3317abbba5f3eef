import { setTimeout as pause } from 'node:timers/promises';
import type { Clock } from '../../core/clock.js';
import type { Cluster, SharedDatabase, SqlPurpose, SqlRow, SqlTransaction } from '../../core/contracts/cluster.js';
import type { Log } from '../../core/log/log.js';
import { Database, isConflict } from './database.js';
import { Doorbell } from './doorbell.js';
import type { ClusterSettings } from './options.js';
import { complaintOf } from './schema.js';
import { Session } from './session.js';

const mostTries = 3;

interface NodeInput {
  readonly settings: ClusterSettings;
  readonly node: string;
  readonly instance: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly report: () => Readonly<Record<string, unknown>>;
}

/** This server as a node of the cluster. */
export class ClusterNode implements Cluster {
  readonly node: string;
  readonly database: SharedDatabase;
  readonly clock: Clock;
  readonly #connections: Database;
  readonly #session: Session;
  readonly #doorbell: Doorbell;

  constructor({ settings, node, instance, clock, log, report }: NodeInput) {
    const sessionMs = settings.sessionSeconds * 1000;
    this.node = node;
    this.#connections = new Database({
      settings: settings.database,
      applicationName: `postern/${node}`,
      queryTimeoutMs: Math.min(4000, sessionMs / 3),
      clock,
      log,
    });
    this.database = new RetryingDatabase(this.#connections);
    this.#session = new Session({ database: this.#connections, node, instance, sessionMs, clock, log, report });
    this.#doorbell = new Doorbell({ database: this.#connections, node, log });
    this.clock = {
      monotonic: () => clock.monotonic(),
      now: () => {
        const { clockOffset } = this.#session;
        return Math.round(clockOffset === undefined ? clock.now() : clock.monotonic() + clockOffset);
      },
    };
  }

  get session(): string | undefined {
    return this.#session.key;
  }

  /** How often this node had to stop. */
  get fenced(): number {
    return this.#session.fenced;
  }

  /** Why the database is away; undefined when it is not. */
  get fault(): string | undefined {
    return this.#connections.fault;
  }

  /** The server of the database in use. */
  get host(): string {
    return this.#connections.host;
  }

  /** Why this server cannot work with the tables that are there; undefined when it can, and while nobody knows. */
  async complaint(): Promise<string | undefined> {
    try {
      const rows = await this.database.query<{ version: number; least_reader: number }>(
        'pages',
        'select version, least_reader from postern.schema order by version desc limit 1',
      );
      return complaintOf(rows[0]);
    } catch (error) {
      const { code } = error as { readonly code?: unknown };
      return code === '42P01' || code === '3F000' ? complaintOf(undefined) : undefined;
    }
  }

  /** @throws a start error when another server has this name */
  async join(): Promise<void> {
    await this.#session.join();
    this.#doorbell.start();
  }

  async leave(): Promise<void> {
    await this.#session.leave();
    await this.#doorbell.stop();
    await this.#connections.close();
  }

  onSession(listener: () => void): () => void {
    return this.#session.onChange(listener);
  }

  mayEnd(session: string): boolean | Promise<boolean> {
    return this.#session.mayEnd(session);
  }

  ring(topic: string, names: readonly string[]): void {
    this.#doorbell.ring(topic, names);
  }

  onRing(topic: string, listener: (names: readonly string[] | null) => void): () => void {
    return this.#doorbell.on(topic, listener);
  }
}

/** Repeats transactions that have only collided with others. */
class RetryingDatabase implements SharedDatabase {
  readonly #connections: Database;

  constructor(connections: Database) {
    this.#connections = connections;
  }

  async query<R extends SqlRow>(purpose: SqlPurpose, text: string, values?: readonly unknown[]): Promise<readonly R[]> {
    return repeated(async () => (await this.#connections.query<R>(purpose, text, values)).rows);
  }

  async transaction<T>(purpose: SqlPurpose, work: (sql: SqlTransaction) => Promise<T>): Promise<T> {
    return repeated(() =>
      this.#connections.transaction(purpose, (client) =>
        work({
          query: async <R extends SqlRow>(text: string, values: readonly unknown[] = []) =>
            (await client.query<R>(text, [...values])).rows,
        }),
      ),
    );
  }
}

async function repeated<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (!isConflict(error) || tries >= mostTries) throw error;
      await pause(tries * 10, undefined, { ref: false });
    }
  }
}
