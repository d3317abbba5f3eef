import type { SharedDatabase, SqlRow, SqlTransaction } from '../../../core/contracts/cluster.js';

/** Tables whose changes are numbered, so that nodes read only what is new. */
const tables = { users: 'postern.principal', 'mailbox-owners': 'postern.mailbox_owner' } as const;
type Numbered = keyof typeof tables;

/**
 * Statement that takes the next revision. How much it adds is random: a database that has forgotten commits does not give
 * their revisions to other changes.
 */
export const takeRevision = (name: Numbered): string =>
  `update postern.revision set recent = (value || recent)[1:100], value = value + 1 + floor(random() * 10000000)::bigint
   where name = '${name}' returning value`;

/** Changes commit in the order of their revisions: who has one holds the row until then. */
export async function nextRevision(sql: SqlTransaction, name: Numbered): Promise<string> {
  const [row] = await sql.query<{ value: string }>(takeRevision(name));
  if (row === undefined) throw new Error(noRevisions);
  return row.value;
}

const noRevisions = 'the table of revisions is empty';

interface Changes<R> {
  readonly rows: readonly R[];
  /** The rows are all that there are: what was known before does not count. */
  readonly isAll: boolean;
  /** Up to which the rows go. */
  readonly revision: number;
}

interface Found {
  readonly last: string;
  readonly known: boolean;
  readonly found: boolean;
}

/**
 * Rows that have changed after a revision, in their order. All of them when that revision is none of the last hundred: the
 * database has forgotten commits, an older one was restored, or much has changed.
 */
export async function changesAfter<R extends SqlRow>(
  database: SharedDatabase,
  name: Numbered,
  columns: string,
  revision: number,
): Promise<Changes<R>> {
  // One statement, so that the rows are of the same moment and the same server as the revisions.
  const after = (from: number): Promise<readonly (R & Found)[]> =>
    database.query<R & Found>(
      'pages',
      `select ${columns}, last, known, username is not null as found
       from (select value as last, $1 = any(value || recent) as known from postern.revision where name = '${name}') r
       left join ${tables[name]} on revision > $1 order by revision`,
      [from],
    );
  let rows = await after(revision);
  const isAll = revision > 0 && rows[0]?.known === false;
  if (isAll) rows = await after(0);
  const [first] = rows;
  if (first === undefined) throw new Error(noRevisions);
  return { rows: rows.filter(({ found }) => found), isAll, revision: Number(first.last) };
}
