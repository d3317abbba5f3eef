import type { Clock } from '../../../core/clock.js';
import type { KeptSession, KeptSessions, SessionBounds } from '../../../core/contracts/browser-sessions.js';
import type { Cluster, SqlRow } from '../../../core/contracts/cluster.js';
import { orUnavailable } from '../database/database.js';

const topic = 'browser-sessions';

interface SignInRow extends SqlRow {
  readonly digest: string;
  readonly id: string;
  readonly username: string;
  readonly role: KeptSession['role'];
  readonly password_hash: string;
  readonly address: string;
  readonly browser: string;
  readonly since: string;
  readonly last_used: string;
}

type Listener = (digests: readonly string[] | null) => void;

/** Sessions of browsers that all nodes share. */
export class DatabaseSessions implements KeptSessions {
  readonly clock: Clock;
  readonly #cluster: Cluster;
  readonly #listeners = new Set<Listener>();

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.clock = cluster.clock;
    cluster.onRing(topic, (digests) => this.#tell(digests));
  }

  async add(session: KeptSession, { perAccount, inAll, sinceAfter, usedAfter }: SessionBounds): Promise<void> {
    const { digest, id, username, role, passwordHash, address, browser, since, lastUsed } = session;
    const adding = this.#cluster.database.transaction('pages', async (sql) => {
      await sql.query(
        `insert into postern.sign_in (digest, id, username, role, password_hash, address, browser, since, last_used)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
        [digest, id, username, role, passwordHash, address, browser, since, lastUsed],
      );
      return sql.query<{ digest: string }>(
        `delete from postern.sign_in where digest in (
           select digest from (
             select digest, username, since, last_used,
               row_number() over (order by last_used desc, since desc) as nth,
               row_number() over (partition by username order by last_used desc, since desc) as nth_of_account
             from postern.sign_in) s
           where digest <> $1
             and (nth > $2 or (username = $3 and nth_of_account > $4) or since < $5 or last_used < $6)) returning digest`,
        [digest, inAll, username, perAccount, sinceAfter, usedAfter],
      );
    });
    const ended = (await orUnavailable(adding)).map((row) => row.digest);
    if (ended.length === 0) return;
    this.#cluster.ring(topic, ended);
    this.#tell(ended);
  }

  read(digests: readonly string[]): Promise<readonly KeptSession[]> {
    return this.#select('digest = any($1::text[])', digests);
  }

  of(username: string): Promise<readonly KeptSession[]> {
    return this.#select('username = $1', username);
  }

  async #select(condition: string, value: unknown): Promise<readonly KeptSession[]> {
    const asking = this.#cluster.database.query<SignInRow>(
      'pages',
      `select * from postern.sign_in where ${condition}`,
      [value],
    );
    return (await orUnavailable(asking)).map(({ password_hash: passwordHash, since, last_used: used, ...row }) => ({
      ...row,
      passwordHash,
      since: Number(since),
      lastUsed: Number(used),
    }));
  }

  async remove(digests: readonly string[]): Promise<void> {
    const { database } = this.#cluster;
    await orUnavailable(
      database.query('pages', 'delete from postern.sign_in where digest = any($1::text[])', [digests]),
    );
    this.#cluster.ring(topic, digests);
  }

  async use(times: ReadonlyMap<string, number>): Promise<void> {
    const { database } = this.#cluster;
    await orUnavailable(
      database.query(
        'pages',
        `update postern.sign_in s set last_used = greatest(s.last_used, u.at)
         from unnest($1::text[], $2::bigint[]) as u(digest, at) where s.digest = u.digest`,
        [[...times.keys()], [...times.values()].map(Math.floor)],
      ),
    );
  }

  watch(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Finds what ended and was not announced. Called at intervals. */
  look(): void {
    this.#tell(null);
  }

  #tell(digests: readonly string[] | null): void {
    for (const listener of this.#listeners) listener(digests);
  }
}
