import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import pg from 'pg';
import type { Clock } from '../../../core/clock.js';
import { Semaphore } from '../../../core/concurrency.js';
import { sqlState } from '../../../core/contracts/cluster.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { DatabaseSettings } from '../options.js';

/** The wait for a free connection of a pool does not count: it may be busy for long. */
class TimedClient extends pg.Client {
  constructor(config: pg.ClientConfig) {
    // The pool hides the password from enumerations.
    super({ ...config, password: config.password, connectionTimeoutMillis: connectTimeoutMs });
  }
}

/** Connections of one kind to one server. */
interface Lane {
  readonly pool: pg.Pool;
  /** Rejects those who wait, when all connections are given up. */
  readonly givenUp: Promise<never>;
  readonly giveUp: () => Promise<void>;
}

/** What a connection is for, and the most that are open for it. */
const connections = { fence: 1, accept: 2, claim: 1, settle: 2, pages: 2, bodies: 1, listen: 1 } as const;
export type Purpose = keyof typeof connections;

const connectTimeoutMs = 3000;
/** For queries that are not about the session: a batch may be large. */
const workTimeoutMs = 4000;
/** Counts and searches of operators in a large queue. Longer ones would keep dead rows for too long. */
const pagesTimeoutMs = 11_000;
/** SQLSTATE of a statement that took too long. */
const statementTimeout = '57014';
/** SQLSTATE of a server that has no connection left for this node. */
const tooMany = '53300';
const firstPauseMs = 100;

interface DatabaseInput {
  readonly settings: DatabaseSettings;
  /** Shown in `pg_stat_activity`, followed by the purpose. */
  readonly applicationName: string;
  /** Milliseconds after which a silent query about the session has failed and its connection is closed. */
  readonly queryTimeoutMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Connections to the one server of the list that can be written. A connection that fails is closed, and the next query
 * opens another one, at the next server when this one refuses or only reads.
 */
export class Database {
  readonly #input: DatabaseInput;
  readonly #lanes = new Map<Purpose, Lane>();
  /** Names of prepared statements by their text. */
  readonly #statements = new Map<string, string>();
  #host = 0;
  #failures = 0;
  #notBefore = -Infinity;
  /** In a row, without a new connection between them. */
  #crowds = 0;
  #crowdedUntil = -Infinity;
  /** One is made beside that of the session: a server that has just started gets no rush. */
  readonly #making = new Semaphore(1);
  #closed = false;
  /** Why the last connection failed; undefined while all is well. */
  #fault: string | undefined;

  constructor(input: DatabaseInput) {
    this.#input = input;
  }

  /** Why there is no connection; undefined while there is one, or none was needed. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** The server in use, as it is configured. */
  get host(): string {
    return this.#input.settings.hosts[this.#host] ?? '';
  }

  /** One statement, with its values. @throws Problem `unavailable` when there is no connection */
  async query<R extends pg.QueryResultRow>(
    purpose: Purpose,
    text: string,
    values: readonly unknown[] = [],
  ): Promise<pg.QueryResult<R>> {
    return this.use(purpose, (client) => this.run<R>(client, purpose, text, values));
  }

  /** One statement of a transaction, with its values. What comes often is prepared once for each connection. */
  run<R extends pg.QueryResultRow>(
    client: pg.ClientBase,
    purpose: Purpose,
    text: string,
    values: readonly unknown[],
  ): Promise<pg.QueryResult<R>> {
    if (values.length === 0 || !isPrepared(purpose)) return client.query<R>(text, [...values]);
    const name = this.#statements.get(text) ?? `postern_${this.#statements.size}`;
    this.#statements.set(text, name);
    return client.query<R>({ name, text, values: [...values] });
  }

  /** Several statements on one connection, in a transaction. */
  transaction<T>(purpose: Purpose, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    return this.use(purpose, async (client) => {
      await client.query('begin');
      try {
        const done = await work(client);
        await commit(client);
        return done;
      } catch (error) {
        // A lost connection is closed, which ends it as well.
        if (isRefusedStatement(error)) await client.query('rollback').catch(() => undefined);
        throw error;
      }
    });
  }

  /** Work on one connection, which is closed when the work fails by more than a refused statement. */
  async use<T>(purpose: Purpose, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#connect(purpose);
    try {
      const done = await work(client);
      client.release();
      return done;
    } catch (error) {
      const isLost = !isRefusedStatement(error);
      client.release(isLost);
      if (isElsewhere(error)) this.#leave(error);
      throw error;
    }
  }

  async #connect(purpose: Purpose): Promise<pg.PoolClient> {
    if (this.#closed) throw problem('unavailable', 'The server stops.');
    const { clock } = this.#input;
    if (clock.monotonic() < this.#notBefore) throw problem('unavailable', { detail: away, cause: this.#fault });
    const lane = this.#openLane(purpose);
    const { pool } = lane;
    const isCrowded = clock.monotonic() < this.#crowdedUntil;
    if (isCrowded && pool.totalCount === 0) throw problem('unavailable', { detail: away, cause: crowded });
    pool.options.max = isCrowded ? pool.totalCount : connections[purpose];
    const connecting = purpose === 'fence' ? pool.connect() : this.#checkOut(pool);
    try {
      const client = await Promise.race([connecting, lane.givenUp]);
      this.#failures = 0;
      this.#fault = undefined;
      return client;
    } catch (cause) {
      void connecting.then((late) => late.release(true)).catch(() => undefined);
      // There is nothing wrong with the server, and the connections that are open have to do.
      if (sqlState(cause) === tooMany) {
        this.#crowd(purpose);
        if (pool.totalCount > 0 && !pool.ending) return this.#connect(purpose);
      } else if (this.#lanes.get(purpose) === lane) this.#leave(cause);
      throw problem('unavailable', { detail: away, cause });
    }
  }

  async #checkOut(pool: pg.Pool): Promise<pg.PoolClient> {
    const makesOne = (): boolean => pool.idleCount === 0 && pool.totalCount < pool.options.max;
    if (!makesOne()) return pool.connect();
    await this.#making.acquire();
    if (!makesOne()) {
      // It waits for a connection of this lane, for ever when the lane is given up: other lanes must not wait with it.
      this.#making.release();
      return pool.connect();
    }
    try {
      return await pool.connect();
    } finally {
      this.#making.release();
    }
  }

  /** Others have all connections of the server: no new one is tried for a while. */
  #crowd(purpose: Purpose): void {
    const { log, clock, queryTimeoutMs } = this.#input;
    if (this.#crowds === 0) log.warn({ purpose }, 'the database has too few connections for this node');
    const pause = Math.min(queryTimeoutMs, firstPauseMs * 2 ** this.#crowds);
    this.#crowds += 1;
    this.#crowdedUntil = clock.monotonic() + byChance(pause);
  }

  /** Closes all connections; the next ones are made to the next server, after a pause that grows. */
  #leave(cause: unknown): void {
    const { log, clock, settings, queryTimeoutMs } = this.#input;
    const message = cause instanceof Error ? cause.message : String(cause);
    if (this.#fault === undefined) log.error({ err: cause, host: this.host }, 'the database of the cluster is away');
    this.#fault = message;
    this.#host = (this.#host + 1) % settings.hosts.length;
    this.#failures += 1;
    const rounds = Math.floor((this.#failures - 1) / settings.hosts.length);
    // A node that comes back late is dead to those that came back at once.
    const pause = Math.min(queryTimeoutMs, firstPauseMs * 2 ** rounds);
    this.#notBefore = clock.monotonic() + byChance(pause);
    for (const lane of this.#lanes.values()) void lane.giveUp();
    this.#lanes.clear();
  }

  /** @throws Problem `unavailable` when a file of the certificates cannot be read */
  #openLane(purpose: Purpose): Lane {
    try {
      return this.#lane(purpose);
    } catch (cause) {
      this.#leave(cause);
      throw problem('unavailable', { detail: away, cause });
    }
  }

  #lane(purpose: Purpose): Lane {
    const known = this.#lanes.get(purpose);
    if (known !== undefined) return known;
    const { settings, applicationName, queryTimeoutMs, log } = this.#input;
    const timeoutMs = { fence: queryTimeoutMs, pages: pagesTimeoutMs }[purpose as string] ?? workTimeoutMs;
    const pool = new pg.Pool({
      ...databaseAddress(this.host, settings),
      database: settings.name,
      user: settings.user,
      ...(settings.password !== undefined && { password: settings.password }),
      application_name: `${applicationName}/${purpose}`,
      max: connections[purpose],
      Client: TimedClient as unknown as new () => pg.ClientBase,
      query_timeout: timeoutMs,
      // Else the server would finish statements that no client waits for. A commit that is cancelled may have happened.
      ...(purpose !== 'accept' && { statement_timeout: Math.round(timeoutMs * 0.9) }),
      idleTimeoutMillis: 0,
      keepAlive: true,
      verify: refuseReadOnly(purpose),
    });
    // One that is lost while it is in use, between two statements: the next statement fails.
    pool.on('connect', (client) => {
      this.#crowds = 0;
      client.on('error', () => undefined);
    });
    // Of an idle connection; the next query opens another one.
    pool.on('error', (error) => log.warn({ err: error, purpose }, 'a connection to the database was lost'));
    let reject: (error: Error) => void = () => undefined;
    const givenUp = new Promise<never>((_, fail) => (reject = fail));
    givenUp.catch(() => undefined);
    const giveUp = (): Promise<void> => {
      reject(new Error('the connections are given up'));
      return pool.end().catch(() => undefined);
    };
    const lane = { pool, givenUp, giveUp };
    this.#lanes.set(purpose, lane);
    return lane;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#lanes.values()].map((lane) => lane.giveUp()));
    this.#lanes.clear();
  }
}

/** Half of it at least. */
const byChance = (ms: number): number => randomInt(Math.ceil(ms / 2), Math.floor(ms) + 1);

/**
 * A commit whose wait for the synchronous standby was cancelled succeeds with a warning, though it is on one server alone.
 */
async function commit(client: pg.ClientBase): Promise<void> {
  const warnings: string[] = [];
  const note = ({ message = '' }: { readonly message?: string | undefined }): void => void warnings.push(message);
  client.on('notice', note);
  try {
    await client.query('commit');
  } finally {
    client.off('notice', note);
  }
  if (warnings.length > 0) throw new Error(`the database has warned at a commit: ${warnings.join(' ')}`);
}

const away = 'The database of the cluster does not answer.';
const crowded = new Error('The database has too few connections.');

/** Work that has the same few statements again and again; pages make theirs of filters. */
const isPrepared = (purpose: Purpose): boolean => purpose !== 'pages' && purpose !== 'listen';

/**
 * A plan that is made once is right for tables of any size: it goes by an index, also when the tables are empty when it is
 * made.
 */
const byIndex = 'set enable_seqscan = off; set plan_cache_mode = force_generic_plan; ';

/** A check before a table is emptied, for example, has to see what others have committed since the transaction began. */
const prepare =
  "set search_path = ''; set idle_in_transaction_session_timeout = '15s'; set jit = off; set default_transaction_isolation = 'read committed'; select pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' as read_only";

/** A standby, or a server that was made read-only, is not the one. */
const refuseReadOnly =
  (purpose: Purpose) =>
  (client: pg.PoolClient, done: (error?: Error) => void): void => {
    isWritable(client, isPrepared(purpose) ? byIndex + prepare : prepare).then(
      (yes) => done(yes ? undefined : new Error('the server of the database cannot be written')),
      (error: unknown) => done(error as Error),
    );
  };

async function isWritable(client: pg.PoolClient, text: string): Promise<boolean> {
  const results = (await client.query(text)) as unknown as readonly pg.QueryResult<{ read_only: boolean }>[];
  return results.at(-1)?.rows[0]?.read_only === false;
}

/** Where and how to connect to one of the servers. Reads the files of the certificates. */
export function databaseAddress(host: string, { tls }: DatabaseSettings): pg.ClientConfig {
  if (host.startsWith('/')) {
    const [, folder = host, port = '5432'] = /^(.*?)(?::(\d+))?$/.exec(host) ?? [];
    return { host: folder, port: Number(port), ssl: false };
  }
  const [, name = '', port = '5432'] = /^\[?(.*?)\]?(?::(\d+))?$/.exec(host) ?? [];
  if (tls === 'off') return { host: name, port: Number(port), ssl: false };
  const file = (path: string | undefined): Buffer | undefined => (path === undefined ? undefined : readFileSync(path));
  const { ca, cert, key } = tls;
  return {
    host: name,
    port: Number(port),
    enableChannelBinding: true,
    ssl: {
      rejectUnauthorized: true,
      ca: file(ca),
      cert: file(cert),
      key: file(key),
      host: name,
      ...(isIP(name) === 0 && { servername: name }),
    },
  };
}

/** The server answered: the connection is well, and nothing of the transaction was done. */
function isRefusedStatement(error: unknown): boolean {
  const state = sqlState(error);
  if (state === statementTimeout) return true;
  return isProblem(error) || (state !== undefined && !/^(08|57|25006)/.test(state));
}

/** No answer, or none in time: whether the statement was refused is not known. */
export function isUnanswered(error: unknown): boolean {
  const state = sqlState(error);
  return state === undefined || state === statementTimeout || /^(08|57|25006)/.test(state);
}

/** A connection that was lost is a Problem `unavailable`, as one that cannot be made. */
export function orUnavailable<T>(asking: Promise<T>): Promise<T> {
  return asking.catch((cause: unknown) => {
    throw isProblem(cause) || !isUnanswered(cause) ? cause : problem('unavailable', { detail: away, cause });
  });
}

/** The server cannot be written any more. */
const isElsewhere = (error: unknown): boolean => sqlState(error) === '25006';

/** A conflict with another transaction: the same may succeed when it is tried again. */
export const isConflict = (error: unknown): boolean => ['40001', '40P01', '55P03'].includes(sqlState(error) ?? '');
