import type { Cluster, SqlRow, SqlTransaction } from '../../../core/contracts/cluster.js';
import type { UserRecord, UserRecords } from '../../../core/contracts/user-records.js';
import type { Document } from '../../../core/disk/document.js';
import { problem } from '../../../core/problem.js';
import { orUnavailable } from '../database/database.js';
import type { CopiedUsers } from './node-copies.js';
import { changesAfter, nextRevision } from './revisions.js';

const topic = 'users';

interface PrincipalRow extends SqlRow {
  readonly username: string;
  readonly revision: string;
  readonly aliases: string;
  readonly disabled: boolean;
  readonly quota: string | null;
  readonly password_hash: string | null;
  readonly created_at: string;
  readonly removed: boolean;
}

const columns = 'username, revision, aliases, disabled, quota, password_hash, created_at, removed';

/**
 * The users that all nodes share. Each node has a copy in memory, so that a recipient is known at once, also while the
 * database is away; changes are made in the database, one after the other, and pulled by their revision.
 */
export class DatabaseUsers implements UserRecords {
  readonly source = 'the database of the cluster';
  readonly #cluster: Cluster;
  readonly #copy: Document<CopiedUsers>;
  readonly #added: (username: string) => Promise<unknown>;
  readonly #records = new Map<string, UserRecord>();
  readonly #byName = new Map<string, UserRecord>();
  #ordered: readonly UserRecord[] | undefined;
  /** The last revision in the copy; 0 before it was read. */
  #revision = 0;
  #isRead = false;
  #pulling: Promise<void> = Promise.resolve();

  /**
   * @param copy what this node knew when it stopped: it counts while the database is away
   * @param added called with the name of a new user
   */
  constructor(
    cluster: Cluster,
    copy: Document<CopiedUsers>,
    added: (username: string) => Promise<unknown> = () => Promise.resolve(),
  ) {
    this.#cluster = cluster;
    this.#added = added;
    this.#copy = copy;
    const { revision, users } = copy.data;
    for (const record of users) this.#add(record);
    this.#revision = revision ?? 0;
    this.#isRead = revision !== null;
    cluster.onRing(topic, () => void this.pull().catch(() => undefined));
  }

  list(): readonly UserRecord[] {
    this.#refuseUnread();
    this.#ordered ??= [...this.#records.values()].sort((one, other) => (orderOf(one) < orderOf(other) ? -1 : 1));
    return this.#ordered;
  }

  get count(): number {
    return this.#records.size;
  }

  get(username: string): UserRecord | undefined {
    this.#refuseUnread();
    return this.#records.get(username);
  }

  named(name: string): UserRecord | undefined {
    this.#refuseUnread();
    return this.#byName.get(name);
  }

  /** Without a copy no user can be called unknown. */
  #refuseUnread(): void {
    if (!this.#isRead) throw problem('unavailable', 'The users of the cluster have not been read yet.');
  }

  async add(record: UserRecord): Promise<void> {
    await this.#update(async (sql) => {
      await refuseTaken(sql, record);
      return record;
    });
    // Otherwise its first mail does it.
    await this.#added(record.username).catch(() => undefined);
  }

  async change(username: string, change: (record: UserRecord) => UserRecord): Promise<UserRecord> {
    return this.#update(async (sql) => {
      const changed = change(await currentOf(sql, username));
      await sql.query('delete from postern.name where username = $1', [username]);
      await refuseTaken(sql, changed);
      return changed;
    });
  }

  async remove(username: string, check?: (record: UserRecord) => void): Promise<void> {
    await this.#transaction(async (sql) => {
      const revision = await nextRevision(sql, 'users');
      const record = await currentOf(sql, username);
      check?.(record);
      await sql.query('delete from postern.name where username = $1', [username]);
      await sql.query(
        'update postern.principal set removed = true, revision = $2, password_hash = null where username = $1',
        [username, revision],
      );
    });
    await this.#changed();
  }

  async begin(ofFile: () => Promise<readonly UserRecord[]>): Promise<number> {
    if (this.#revision > 0) return 0;
    const records = await ofFile();
    const count = await this.#transaction(async (sql) => {
      const [row] = await sql.query<{ value: string }>(
        "select value from postern.revision where name = 'users' for update",
      );
      if (row?.value !== '0') return 0;
      for (const record of records) await write(sql, record, await nextRevision(sql, 'users'));
      return records.length;
    });
    await this.#changed();
    return count;
  }

  /** Reads what has changed since the last time. Also called at intervals. */
  pull(): Promise<void> {
    const pulled = orUnavailable(this.#pulling.then(() => this.#pull()));
    this.#pulling = pulled.catch(() => undefined);
    return pulled;
  }

  async #pull(): Promise<void> {
    const { database } = this.#cluster;
    const changes = await changesAfter<PrincipalRow>(database, 'users', columns, this.#revision);
    if (changes.isAll) {
      this.#records.clear();
      this.#byName.clear();
    }
    for (const row of changes.rows) this.#take(row);
    if (changes.isAll || changes.rows.length > 0) this.#ordered = undefined;
    this.#revision = changes.revision;
    this.#isRead = true;
  }

  /** Keeps what is known for the next start. Called at intervals, and at the end. */
  async save(): Promise<void> {
    if (!this.#isRead || this.#copy.data.revision === this.#revision) return;
    const users = this.list().map((record) => ({ ...record, aliases: [...record.aliases] }));
    await this.#copy.update(() => ({ revision: this.#revision, users }));
  }

  #take(row: PrincipalRow): void {
    const before = this.#records.get(row.username);
    for (const name of namesOf(before)) if (this.#byName.get(name) === before) this.#byName.delete(name);
    this.#records.delete(row.username);
    if (!row.removed) this.#add(recordOf(row));
  }

  #add(record: UserRecord): void {
    this.#records.set(record.username, record);
    for (const name of namesOf(record)) this.#byName.set(name, record);
  }

  #transaction<T>(work: (sql: SqlTransaction) => Promise<T>): Promise<T> {
    return orUnavailable(this.#cluster.database.transaction('pages', work));
  }

  async #update(work: (sql: SqlTransaction) => Promise<UserRecord>): Promise<UserRecord> {
    const updating = this.#transaction(async (sql) => {
      const revision = await nextRevision(sql, 'users');
      const changed = await work(sql);
      await write(sql, changed, revision);
      return changed;
    });
    const record = await updating.catch(async (error: unknown) => {
      // Who is refused sees what is in the way.
      await this.pull().catch(() => undefined);
      throw error;
    });
    await this.#changed();
    return record;
  }

  /** The change is in force here when this resolves, and soon everywhere. */
  async #changed(): Promise<void> {
    this.#cluster.ring(topic, []);
    await this.pull();
  }
}

async function currentOf(sql: SqlTransaction, username: string): Promise<UserRecord> {
  const [row] = await sql.query<PrincipalRow>(
    `select ${columns} from postern.principal where username = $1 and not removed`,
    [username],
  );
  if (row === undefined) throw problem('not-found', `There is no user ${username}.`);
  return recordOf(row);
}

async function refuseTaken(sql: SqlTransaction, record: UserRecord): Promise<void> {
  const [taken] = await sql.query<{ name: string; username: string }>(
    'select name, username from postern.name where name = any($1::text[]) limit 1',
    [namesOf(record)],
  );
  if (taken === undefined) return;
  const whose = taken.name === taken.username ? 'is a user' : `leads to ${taken.username}`;
  throw problem('conflict', `${taken.name} is taken: it ${whose}.`);
}

async function write(sql: SqlTransaction, record: UserRecord, revision: string): Promise<void> {
  const { username, passwordHash, aliases, quota, disabled, createdAt } = record;
  await sql.query(
    `insert into postern.principal (${columns}) values ($1, $2, $3, $4, $5, $6, $7, false)
     on conflict (username) do update set revision = excluded.revision, aliases = excluded.aliases,
       disabled = excluded.disabled, quota = excluded.quota, password_hash = excluded.password_hash,
       created_at = excluded.created_at, removed = false`,
    [username, revision, JSON.stringify(aliases), disabled, quota, passwordHash, createdAt],
  );
  await sql.query('insert into postern.name (name, username) select unnest($1::text[]), $2', [
    namesOf(record),
    username,
  ]);
}

const recordOf = (row: PrincipalRow): UserRecord => ({
  username: row.username,
  passwordHash: row.password_hash,
  aliases: JSON.parse(row.aliases) as readonly string[],
  quota: row.quota === null ? null : Number(row.quota),
  disabled: row.disabled,
  createdAt: row.created_at,
});

const namesOf = (record: UserRecord | undefined): readonly string[] =>
  record === undefined ? [] : [record.username, ...record.aliases];

/** By domain, then by local part. */
function orderOf({ username }: UserRecord): string {
  const at = username.lastIndexOf('@');
  return `${username.slice(at + 1)} ${username.slice(0, at)}`;
}
