import type { Cluster, Duties } from '../../../core/contracts/cluster.js';

/** Work that one node does for all: it stays with a node until that is dead or drains. */
export class NodeDuties implements Duties {
  readonly #cluster: Cluster;
  readonly #asked = new Set<string>();
  #own: { readonly session: string; readonly names: ReadonlySet<string> } | undefined;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  has(name: string): boolean {
    this.#asked.add(name);
    const { session, draining } = this.#cluster;
    return !draining && this.#own?.session === session && this.#own?.names.has(name) === true;
  }

  /** Takes the duties that no living node has. Called at intervals. */
  async take(): Promise<void> {
    const { session, draining, database } = this.#cluster;
    if (session === undefined || this.#asked.size === 0) return;
    if (draining) {
      this.#own = undefined;
      await database.query('settle', 'delete from postern.duty where session = $1 and name = any($2::text[])', [
        session,
        [...this.#asked],
      ]);
      return;
    }
    await database.query(
      'settle',
      `insert into postern.duty (name, session) select unnest($1::text[]), $2
       on conflict (name) do update set session = excluded.session
       where not exists (select 1 from postern.session s where s.key = postern.duty.session and not s.dead and not s.draining)`,
      [[...this.#asked].sort(), session],
    );
    const rows = await database.query<{ name: string }>('settle', 'select name from postern.duty where session = $1', [
      session,
    ]);
    this.#own = { session, names: new Set(rows.map(({ name }) => name)) };
  }
}
