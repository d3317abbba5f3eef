import { setTimeout as pause } from 'node:timers/promises';
import type { Clock } from '../../core/clock.js';
import type { Cluster, SharedDatabase, SqlPurpose, SqlRow, SqlTransaction } from '../../core/contracts/cluster.js';
import type { Log } from '../../core/log/log.js';
import { isProblem } from '../../core/problem.js';
import { connectionRefusal } from './database/connect.js';
import { Database, isConflict } from './database/database.js';
import { Doorbell } from './database/doorbell.js';
import type { ClusterSettings } from './options.js';
import { complaintOf, ownVersion } from './database/schema.js';
import { unsafeSettings } from './database/server-state.js';
import { NodeSession } from './session.js';

const maxTries = 3;
/** Longer than the first pause after a failed connection. */
const nextHostMs = 150;

interface NodeInput {
  readonly settings: Pick<ClusterSettings, 'database' | 'sessionSeconds' | 'commitTimeoutSeconds'>;
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
  readonly commitTimeoutMs: number;
  readonly #wall: Clock;
  readonly #user: string;
  readonly #hosts: number;
  readonly #connections: Database;
  readonly #session: NodeSession;
  readonly #doorbell: Doorbell;

  constructor({ settings, node, instance, clock, log, report }: NodeInput) {
    const sessionMs = settings.sessionSeconds * 1000;
    this.node = node;
    this.commitTimeoutMs = settings.commitTimeoutSeconds * 1000;
    this.#connections = new Database({
      settings: settings.database,
      applicationName: `postern/${node}`,
      queryTimeoutMs: Math.min(4000, sessionMs / 3),
      clock,
      log,
    });
    this.database = new RetryingDatabase(this.#connections);
    this.#wall = clock;
    this.#user = settings.database.user;
    this.#hosts = settings.database.hosts.length;
    this.#session = new NodeSession({
      database: this.#connections,
      node,
      instance,
      sessionMs,
      clock,
      log,
      report: () => ({
        ...report(),
        schema: ownVersion,
        fenced: this.fenced,
        clockAheadMs: this.clockAheadMs ?? null,
      }),
    });
    this.#doorbell = new Doorbell({ database: this.#connections, node, log });
    this.clock = {
      monotonic: () => clock.monotonic(),
      now: () => {
        const { clockOffset } = this.#session;
        return Math.round(clockOffset === undefined ? clock.now() : clock.monotonic() + clockOffset);
      },
    };
  }

  /** How far the clock of this machine is ahead of that of the database; undefined until it was asked. */
  get clockAheadMs(): number | undefined {
    return this.#session.clockOffset === undefined ? undefined : Math.round(this.#wall.now() - this.clock.now());
  }

  get session(): string | undefined {
    return this.#session.key;
  }

  get draining(): boolean {
    return this.#session.draining;
  }

  /** Milliseconds since the last answered beat; undefined without a session. */
  get beatAgeMs(): number | undefined {
    return this.#session.beatAgeMs;
  }

  /** Milliseconds since the database has answered a beat, or since the start. */
  get silentMs(): number {
    return this.#session.silentMs;
  }

  /** How often this node had to stop. */
  get fenced(): number {
    return this.#session.fenced;
  }

  /** When the database was found to have forgotten commits, by the clock of this machine; undefined when it has not. */
  get forgottenAt(): number | undefined {
    return this.#session.forgottenAt;
  }

  /** Why this server cannot work with the tables any more: a newer one has changed them. */
  get outdated(): string | undefined {
    return this.#session.outdated;
  }

  /** Why the database is away; undefined when it is not. */
  get fault(): string | undefined {
    return this.#connections.fault;
  }

  /** The server of the database in use. */
  get host(): string {
    return this.#connections.host;
  }

  /**
   * Why this server cannot work with the database: what an operator has to mend. Undefined when it can, and while the
   * database is only away.
   */
  async complaint(): Promise<string | undefined> {
    let refusal: string | undefined;
    for (let tries = 0; tries < this.#hosts; tries += 1) {
      if (tries > 0) await pause(nextHostMs);
      try {
        return (await unsafeSettings(this.database)) ?? (await this.#ofTables());
      } catch (error) {
        const cause = isProblem(error) ? error.cause : error;
        refusal ??= connectionRefusal(cause, { user: this.#user });
      }
    }
    return refusal;
  }

  async #ofTables(): Promise<string | undefined> {
    try {
      const rows = await this.database.query<{ version: number; least_reader: number }>(
        'pages',
        'select version, least_reader from postern.schema order by version desc limit 1',
      );
      return complaintOf(rows[0]);
    } catch (error) {
      const { code } = error as { readonly code?: unknown };
      if (code === '42P01' || code === '3F000') return complaintOf(undefined);
      throw error;
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

  endEarlierSessions(): Promise<void> {
    return this.#session.endEarlier();
  }

  onDraining(listener: () => void): () => void {
    return this.#session.onDraining(listener);
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

  /** Tells this node at once as well. */
  ringAll(topic: string, names: readonly string[]): void {
    this.#doorbell.ringAll(topic, names);
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
            (await this.#connections.run<R>(client, purpose, text, values)).rows,
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
      if (!isConflict(error) || tries >= maxTries) throw error;
      await pause(tries * 10, undefined, { ref: false });
    }
  }
}
