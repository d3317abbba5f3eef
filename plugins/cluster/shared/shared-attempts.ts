import type { AttemptLimits, Cluster, CountedAttempts } from '../../../core/contracts/cluster.js';

/** Keys that are written at a time. */
const most = 1000;

/**
 * Failed sign-ins, counted over all nodes: each decides by its own count and those of the others, which are a second
 * old.
 */
export class SharedAttempts {
  readonly #cluster: Cluster;
  readonly #limits: AttemptLimits;
  /** When this node has read the counts of others last, by the clock of the database. */
  #readAt = 0;

  constructor(cluster: Cluster, limits: AttemptLimits) {
    this.#cluster = cluster;
    this.#limits = limits;
  }

  /** Called every second. */
  async exchange(): Promise<void> {
    for (const [name, counts] of this.#limits.all()) {
      const changes = counts.changes(most);
      if (changes.length > 0) await this.#write(name, changes);
    }
    await this.#read();
  }

  /** Between the monotonic clock of this node and the time of the database. */
  get #offset(): number {
    const { clock } = this.#cluster;
    return clock.now() - clock.monotonic();
  }

  async #write(name: string, changes: readonly ({ readonly key: string } & CountedAttempts)[]): Promise<void> {
    const { database, node, clock } = this.#cluster;
    const offset = this.#offset;
    await database.query(
      'pages',
      `insert into postern.guess (name, key, node, window_start, count, at)
       select $1, u.key, $2, u.window_start, u.count, $3
       from unnest($4::text[], $5::bigint[], $6::int[]) as u(key, window_start, count)
       on conflict (name, key, node) do update set window_start = excluded.window_start, count = excluded.count, at = excluded.at`,
      [
        name,
        node,
        clock.now(),
        changes.map(({ key }) => Buffer.from(key).toString('base64')),
        changes.map(({ window }) => Math.round(window + offset)),
        changes.map(({ count }) => count),
      ],
    );
  }

  async #read(): Promise<void> {
    const { database, node, clock } = this.#cluster;
    // What was written while this node read last is read again.
    const readAt = clock.now() - 2000;
    const rows = await database.query<{ name: string; key: string; window_start: string; count: number }>(
      'pages',
      `select g.name, g.key, g.window_start, g.count from postern.guess g
       where g.node <> $1 and (g.name, g.key) in (select name, key from postern.guess where at > $2 and node <> $1)
       limit 10000`,
      [node, this.#readAt],
    );
    this.#readAt = readAt;
    const offset = this.#offset;
    const byKey = new Map<string, { name: string; key: string; counts: CountedAttempts[] }>();
    for (const { name, key, window_start: window, count } of rows) {
      const found = byKey.get(`${name} ${key}`) ?? { name, key, counts: [] };
      byKey.set(`${name} ${key}`, found);
      found.counts.push({ window: Number(window) - offset, count });
    }
    const limits = this.#limits.all();
    for (const { name, key, counts } of byKey.values()) {
      limits.get(name)?.merge(Buffer.from(key, 'base64').toString(), counts);
    }
  }

  /** Forgets windows that are over for all. Called at intervals. */
  async forget(): Promise<void> {
    const { database, clock } = this.#cluster;
    const longest = Math.max(0, ...Array.from(this.#limits.all().values(), ({ windowSeconds }) => windowSeconds));
    await database.query('pages', 'delete from postern.guess where at <= $1', [clock.now() - 2 * longest * 1000]);
  }
}
