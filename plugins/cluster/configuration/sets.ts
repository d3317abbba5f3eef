import type { SharedDatabase, SqlRow } from '../../../core/contracts/cluster.js';
import { problem } from '../../../core/problem.js';

type Ask = <R extends SqlRow>(text: string, values?: readonly unknown[]) => Promise<readonly R[]>;

/** Sets that are kept besides those in use. */
const maxSets = 100;

export interface SetFile {
  readonly name: string;
  readonly text: string;
}

export interface ConfigurationSet {
  readonly number: number;
  readonly at: string;
  readonly by: string | null;
  readonly files: readonly SetFile[];
}

/** The set in use. */
export interface CurrentSet {
  readonly number: number;
  readonly at: string;
  readonly by: string | null;
  /** The node that could not apply it, so that the others do not. */
  readonly stopped: { readonly node: string; readonly why: string } | null;
}

export interface NodeSet {
  readonly node: string;
  /** Applied last; null before. */
  readonly number: number | null;
  /** `none`: it does not apply sets. */
  readonly state: 'waiting' | 'applying' | 'checking' | 'applied' | 'refused' | 'failed' | 'stopped' | 'none';
  readonly why: string | null;
}

export interface SetsState {
  readonly current: CurrentSet | null;
  /** Those that live. */
  readonly nodes: readonly NodeSet[];
}

interface SetRow extends SqlRow {
  readonly number: string;
  readonly at: string;
  readonly author: string | null;
  readonly files: string;
}

const setOf = ({ number, at, author, files }: SetRow): ConfigurationSet => ({
  number: Number(number),
  at: new Date(Number(at)).toISOString(),
  by: author,
  files: JSON.parse(files) as readonly SetFile[],
});

/** Sets of configuration files that the nodes share. */
export class ConfigurationSets {
  readonly #database: SharedDatabase;
  readonly #ask: Ask;
  readonly #now: () => number;

  /** @param now by the clock of the database */
  constructor(database: SharedDatabase, now: () => number) {
    this.#database = database;
    this.#ask = (text, values) => database.query('pages', text, values);
    this.#now = now;
  }

  /** Keeps a new set, which no node applies yet. Returns its number. */
  async add(files: readonly SetFile[], by: string | null): Promise<number> {
    return this.#database.transaction('pages', async (sql) => {
      const [row] = await sql.query<{ number: string }>(
        'insert into postern.config_set (at, author, files) values ($1, $2, $3) returning number',
        [this.#now(), by, JSON.stringify(files)],
      );
      await sql.query(
        `delete from postern.config_set s where number not in (select number from postern.config_set order by number desc limit $1)
         and not exists (select from postern.config_current where number = s.number)
         and not exists (select from postern.config_node where number = s.number)`,
        [maxSets],
      );
      return Number(row?.number);
    });
  }

  /** With the names of their files; the newest first. */
  async list(): Promise<readonly (Omit<ConfigurationSet, 'files'> & { readonly files: readonly string[] })[]> {
    const rows = await this.#ask<SetRow & { readonly names: readonly string[] }>(
      `select number, at, author, '[]' as files,
         array(select file ->> 'name' from json_array_elements(files::json) with ordinality as f(file, nth) order by nth) as names
       from postern.config_set order by number desc`,
    );
    return rows.map((row) => ({ ...setOf(row), files: row.names }));
  }

  /** @throws Problem `not-found` */
  async get(number: number): Promise<ConfigurationSet> {
    const [row] = await this.#ask<SetRow>('select * from postern.config_set where number = $1', [number]);
    if (row === undefined) throw problem('not-found', `There is no set ${number}.`);
    return setOf(row);
  }

  /** All nodes apply it, one after the other. @throws Problem `not-found` */
  async use(number: number, by: string | null): Promise<void> {
    const [row] = await this.#ask(
      `insert into postern.config_current (number, move, at, author)
         select number, 1, $2, $3 from postern.config_set where number = $1
       on conflict (one) do update set number = excluded.number, move = postern.config_current.move + 1,
         at = excluded.at, author = excluded.author, stopped_by = null, stopped_why = null
       returning move`,
      [number, this.#now(), by],
    );
    if (row === undefined) throw problem('not-found', `There is no set ${number}.`);
  }

  async state(): Promise<SetsState> {
    return readSets(this.#ask);
  }
}

interface CurrentRow extends SqlRow {
  readonly number: string;
  readonly move: string;
  readonly at: string;
  readonly author: string | null;
  readonly stopped_by: string | null;
  readonly stopped_why: string | null;
}

interface NodeRow extends SqlRow {
  readonly node: string;
  readonly number: string | null;
  readonly move: string | null;
  readonly state: NodeSet['state'] | null;
  readonly why: string | null;
}

export async function readSets(ask: Ask): Promise<SetsState> {
  const [current] = await ask<CurrentRow>('select * from postern.config_current');
  const rows = await ask<NodeRow>(`
    select n.node, c.number, c.move, c.state, c.why from (select distinct node from postern.session where not dead) n
    left join postern.config_node c on c.node = n.node order by n.node`);
  return {
    current: current === undefined ? null : currentOf(current),
    nodes: rows.map((row) => nodeOf(row, current)),
  };
}

const currentOf = ({ number, at, author, stopped_by: node, stopped_why: why }: CurrentRow): CurrentSet => ({
  number: Number(number),
  at: new Date(Number(at)).toISOString(),
  by: author,
  stopped: node === null ? null : { node, why: why ?? '' },
});

function nodeOf({ node, number, move, state, why }: NodeRow, current: CurrentRow | undefined): NodeSet {
  const applied = number === null ? null : Number(number);
  if (state === null) return { node, number: null, state: 'none', why: null };
  if (move === current?.move) return { node, number: applied, state, why };
  return { node, number: applied, state: current?.stopped_by === null ? 'waiting' : 'stopped', why: null };
}
