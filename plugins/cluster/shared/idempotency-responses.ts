import type { Cluster } from '../../../core/contracts/cluster.js';
import type { KeptAnswer, KeptAnswers } from '../../../core/contracts/http-records.js';
import { problem } from '../../../core/problem.js';
import type { Log } from '../../../core/log/log.js';

const keptMs = 24 * 3_600_000;

/** Responses by Idempotency-Key, whichever node was asked. A claim ends with the session of its node. */
export class DatabaseAnswers implements KeptAnswers {
  readonly #cluster: Cluster;
  readonly #log: Log;

  constructor(cluster: Cluster, log: Log) {
    this.#cluster = cluster;
    this.#log = log;
  }

  async claim(key: string): Promise<(() => Promise<void>) | undefined> {
    const { database, clock, session } = this.#cluster;
    if (session === undefined) throw problem('unavailable', 'This node has no session in the cluster now.');
    const claim = `${session} ${(claims += 1)}`;
    const rows = await database.query(
      'pages',
      `insert into postern.answer (key, at, session, claim) values ($1, $2, $3, $4)
       on conflict (key) do update set session = excluded.session, claim = excluded.claim
       where postern.answer.claim is null
         or not exists (select 1 from postern.session s where s.key = postern.answer.session and not s.dead)
       returning 1`,
      [key, clock.now(), session, claim],
    );
    if (rows.length === 0) return undefined;
    return async () => {
      await database
        .query('pages', 'update postern.answer set claim = null, session = null where key = $1 and claim = $2', [
          key,
          claim,
        ])
        .catch((error: unknown) => this.#log.warn({ err: error }, 'the key of a request is still taken'));
    };
  }

  async find(key: string): Promise<KeptAnswer | undefined> {
    const { database, clock } = this.#cluster;
    const [row] = await database.query<{ answer: string }>(
      'pages',
      'select answer from postern.answer where key = $1 and answer is not null and at > $2',
      [key, clock.now() - keptMs],
    );
    return row === undefined ? undefined : (JSON.parse(row.answer) as KeptAnswer);
  }

  async keep(key: string, answer: KeptAnswer): Promise<void> {
    const { database, clock } = this.#cluster;
    await database
      .query('pages', 'update postern.answer set answer = $2, at = $3 where key = $1', [
        key,
        JSON.stringify(answer),
        clock.now(),
      ])
      .catch((error: unknown) => this.#log.warn({ err: error }, 'the answer to a request is not kept'));
  }

  /** Forgets what is older than a day. Called at intervals. */
  async forget(): Promise<void> {
    const { database, clock } = this.#cluster;
    await database.query('pages', 'delete from postern.answer where at <= $1', [clock.now() - keptMs]);
  }
}

let claims = 0;
