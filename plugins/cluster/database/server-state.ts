import type { SharedDatabase, SqlRow } from '../../../core/contracts/cluster.js';
import type { ClusterSettings } from '../options.js';

/** One statement to the database that the nodes share. */
export type Ask = <R extends SqlRow>(text: string, values?: readonly unknown[]) => Promise<readonly R[]>;

export const askFor =
  (database: Pick<SharedDatabase, 'query'>): Ask =>
  (text, values) =>
    database.query('pages', text, values);

const oldestVersion = 140_000;

/** Why no mail may be kept there; undefined when it may. */
export async function unsafeSettings(database: Pick<SharedDatabase, 'query'>): Promise<string | undefined> {
  const [row] = await askFor(database)<Settings>(settingsText);
  return row && unsafe(row);
}

export interface Settings extends SqlRow {
  readonly number: number;
  readonly version: string;
  readonly fsync: string;
  readonly pages: string;
  readonly commit: string;
  readonly synchronous: string;
}

export const settingsText = `select current_setting('server_version_num')::int as number,
  current_setting('server_version') as version, current_setting('fsync') as fsync,
  current_setting('full_page_writes') as pages, current_setting('synchronous_commit') as commit,
  current_setting('synchronous_standby_names') as synchronous`;

export function unsafe({ number, version, fsync, pages, commit }: Settings): string | undefined {
  if (number < oldestVersion) return `The database is PostgreSQL ${version}; 14 is the oldest that is supported.`;
  const off = [fsync === 'off' && 'fsync', pages === 'off' && 'full_page_writes'].filter((name) => name !== false);
  if (off.length > 0)
    return `The database runs with ${off.join(' and ')} off: it would lose mail when its machine fails. Turn that on in postgresql.conf.`;
  if (commit === 'off')
    return 'The database runs with synchronous_commit off: it would lose the last mail when it fails. Turn that on in postgresql.conf.';
  return undefined;
}

/** What a node tells the others about its mailboxes, in the report of its session. */
export interface MailboxReport {
  readonly mode: ClusterSettings['mailboxes'];
  /** Whether it takes mail for domains. */
  readonly takesMail: boolean;
  /** `host:port` at which the others reach it. */
  readonly address?: string;
  /** Addresses of its pages. */
  readonly pages?: readonly string[];
}

export interface NodeState {
  readonly node: string;
  readonly session: string;
  /** `silent`: no beat for a while, but no node has declared it dead. */
  readonly state: 'up' | 'draining' | 'silent' | 'dead';
  readonly draining: boolean;
  /** Of Postern. */
  readonly version: string | null;
  /** Newest version of the tables that it knows. */
  readonly schema: number | null;
  readonly joinedAt: string;
  readonly beatAgeSeconds: number | null;
  /** How far the clock of its machine is ahead of that of the database. */
  readonly clockAheadSeconds: number | null;
  /** Recipients that it is sending to, or is about to. */
  readonly leases: number;
  /** How often its process has lost a session. */
  readonly fenced: number | null;
  readonly mailboxes: MailboxReport | undefined;
  /** Mailboxes that it has, where nodes divide them. */
  readonly mailboxCount: number;
}

/** Clocks that differ by more are reported. Seconds. */
export const clockPlaySeconds = 5;

interface SessionRow extends SqlRow {
  readonly key: string;
  readonly node: string;
  readonly dead: boolean;
  readonly draining: boolean;
  readonly joined_at: Date;
  readonly report: {
    readonly version?: string;
    readonly schema?: number;
    readonly fenced?: number;
    readonly clockAheadMs?: number | null;
    readonly mailboxes?: MailboxReport;
  };
  readonly beat_age: number | null;
  readonly leases: number;
  readonly mailbox_count: number;
}

/** The newest session of each node, those forgotten left out. */
export async function readNodes(ask: Ask, sessionSeconds: number): Promise<readonly NodeState[]> {
  const rows = await ask<SessionRow>(`
    select distinct on (s.node) s.key, s.node, s.dead, s.draining, s.joined_at, s.report,
      extract(epoch from clock_timestamp())::float8 - (s.report ->> 'beatAt')::float8 / 1000 as beat_age,
      coalesce(l.count, 0)::int as leases, coalesce(m.count, 0)::int as mailbox_count
    from postern.session s
    left join (select node, count(*) from postern.mailbox_owner group by node) m on m.node = s.node
    left join (select session, count(*) from postern.recipient where session is not null and state = 0 group by session) l
      on l.session = s.key
    order by s.node, s.dead, s.joined_at desc`);
  return rows
    .filter(({ report }) => !('forgotten' in report))
    .map(
      ({
        key,
        node,
        dead,
        draining,
        joined_at: joined,
        report,
        beat_age: age,
        leases,
        mailbox_count: mailboxCount,
      }) => {
        const isSilent = age !== null && age > sessionSeconds / 2;
        return {
          node,
          session: key,
          state: dead ? 'dead' : isSilent ? 'silent' : draining ? 'draining' : 'up',
          draining,
          version: report.version ?? null,
          schema: report.schema ?? null,
          joinedAt: joined.toISOString(),
          beatAgeSeconds: age === null ? null : Math.max(0, round(age)),
          clockAheadSeconds: typeof report.clockAheadMs === 'number' ? round(report.clockAheadMs / 1000) : null,
          leases,
          fenced: report.fenced ?? null,
          mailboxes: report.mailboxes,
          mailboxCount,
        };
      },
    );
}

const round = (seconds: number): number => Math.round(seconds * 10) / 10;

/** What living nodes have different values of. */
export function differences(nodes: readonly NodeState[]): readonly ('version' | 'schema')[] {
  const living = nodes.filter(({ state }) => state !== 'dead');
  return (['version', 'schema'] as const).filter((key) => new Set(living.map((node) => node[key])).size > 1);
}

export interface Snapshot {
  readonly seconds: number | null;
  readonly transactions: number;
  /** Who has it: name of the application, role, process. */
  readonly holder: string;
}

/** What keeps vacuum away: the oldest snapshot in use but our own question. Seconds need the role pg_read_all_stats. */
export async function readOldestSnapshot(ask: Ask): Promise<Snapshot | null> {
  const [row] = await ask<{ holder: string; seconds: number | null; transactions: number }>(`
    select * from (
      select coalesce(nullif(application_name, ''), 'a client') || ' (' || coalesce(usename, '?') || ', process ' || pid || ')' as holder,
        extract(epoch from clock_timestamp() - xact_start)::float8 as seconds, age(backend_xmin) as transactions
      from pg_stat_activity
      where backend_xmin is not null and pid <> pg_backend_pid() and (datname = current_database() or datname is null)
        and coalesce(backend_type, '') <> 'autovacuum worker'
      union all
      select 'prepared transaction ' || gid, extract(epoch from clock_timestamp() - prepared)::float8, age(transaction)
      from pg_prepared_xacts where database = current_database()
      union all
      select 'replication slot ' || slot_name, null, age(xmin) from pg_replication_slots where xmin is not null
    ) held order by transactions desc, seconds desc nulls last limit 1`);
  return row === undefined ? null : { ...row, seconds: row.seconds === null ? null : Math.max(0, round(row.seconds)) };
}

export interface TableState {
  readonly table: string;
  readonly bytes: number;
  readonly rows: number;
  readonly deadRows: number;
}

/** Sizes with indexes; rows as the statistics of the database estimate them. */
export async function readTables(ask: Ask): Promise<readonly TableState[]> {
  const rows = await ask<{ table: string; bytes: string; rows: string; dead: string }>(`
    select s.relname as table, pg_total_relation_size(relid) as bytes, n_live_tup as rows, n_dead_tup as dead
    from pg_stat_user_tables s join pg_class c on c.oid = relid and c.relkind = 'r'
    where schemaname = 'postern' order by 2 desc, 1`);
  return rows.map(({ table, bytes, rows: live, dead }) => ({
    table,
    bytes: Number(bytes),
    rows: Number(live),
    deadRows: Number(dead),
  }));
}

export interface StandbyState {
  readonly name: string;
  readonly state: string | null;
  /** `async`, `sync`, `quorum` or `potential`. */
  readonly mode: string | null;
  readonly lagSeconds: number | null;
  readonly lagBytes: number | null;
}

export async function readStandbys(ask: Ask): Promise<readonly StandbyState[]> {
  const rows = await ask<{ name: string; state: string; mode: string; seconds: number | null; bytes: string | null }>(`
    select application_name as name, state, sync_state as mode, extract(epoch from replay_lag)::float8 as seconds,
      pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) as bytes
    from pg_stat_replication order by application_name`);
  return rows.map(({ name, state, mode, seconds, bytes }) => ({
    name,
    state,
    mode,
    lagSeconds: seconds === null ? null : round(seconds),
    lagBytes: bytes === null ? null : Number(bytes),
  }));
}

export interface SlotState {
  readonly name: string;
  readonly kind: string;
  readonly active: boolean;
  /** Of the log that the server keeps for it. */
  readonly keptBytes: number | null;
}

async function readSlots(ask: Ask): Promise<readonly SlotState[]> {
  const rows = await ask<{ name: string; kind: string; active: boolean; bytes: string | null }>(`
    select slot_name as name, slot_type as kind, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) as bytes
    from pg_replication_slots order by slot_name`);
  return rows.map(({ bytes, ...row }) => ({ ...row, keptBytes: bytes === null ? null : Number(bytes) }));
}

export interface DatabaseState {
  readonly host: string;
  /** Of PostgreSQL. */
  readonly version: string;
  /** Version of the tables. */
  readonly schema: number | null;
  /** Whether a commit waits for a standby. */
  readonly synchronous: boolean;
  readonly standbys: readonly StandbyState[];
  readonly tables: readonly TableState[];
  /** New messages go to this one of them. */
  readonly presentBodyTable: string | null;
  readonly oldestSnapshot: Snapshot | null;
  readonly slots: readonly SlotState[];
}

export async function readDatabase(ask: Ask, host: string): Promise<DatabaseState> {
  const [settings] = await ask<Settings>(settingsText);
  const [schema] = await ask<{ version: number }>('select max(version) as version from postern.schema');
  const [present] = await ask<{ table: string }>(
    `select 'body_' || number as table from postern.body_table where opened_at is not null and closed_at is null`,
  );
  return {
    host,
    version: settings?.version ?? '',
    schema: schema?.version ?? null,
    synchronous: (settings?.synchronous ?? '') !== '' && !['local', 'off'].includes(settings?.commit ?? ''),
    standbys: await readStandbys(ask),
    tables: await readTables(ask),
    presentBodyTable: present?.table ?? null,
    oldestSnapshot: await readOldestSnapshot(ask),
    slots: await readSlots(ask),
  };
}

/** Gives a node the wish to be drained; it reads that with its next beat. Returns whether such a node lives. */
export async function setDraining(ask: Ask, node: string, draining: boolean): Promise<boolean> {
  const changed = await ask('update postern.session set draining = $2 where node = $1 and not dead returning key', [
    node,
    draining,
  ]);
  return changed.length > 0;
}

/**
 * Removes dead sessions: those without a beat for 30 days, and the oldest beyond 1,000. Not those that leases name, which
 * are taken by their session, and not one that committed something a moment ago. A key is never used again: it is counted.
 * The last session of a node with mailboxes stays, so that the node is listed.
 */
export async function removeOldSessions(ask: Ask): Promise<void> {
  await ask(`
    with old as materialized (
      select key from (
        select s.*, row_number() over (order by joined_at desc) as nth,
          row_number() over (partition by node order by dead, joined_at desc) as nth_of_node,
          to_timestamp(coalesce((report ->> 'beatAt')::float8 / 1000, extract(epoch from joined_at)::float8)) as last_beat
        from postern.session s) s
      where dead and (last_beat < now() - interval '30 days' or (nth > 1000 and last_beat < now() - interval '1 hour'))
        and not exists (select from postern.recipient r where r.session = s.key)
        and (nth_of_node > 1 or not exists (select from postern.mailbox_owner o where o.node = s.node))
      limit 1000),
    shares as (delete from postern.share where session in (select key from old))
    delete from postern.session where key in (select key from old) and dead`);
}

/** Leaves a dead node out of lists. Its rows stay for a while: a claim of it may commit late. */
export async function forgetNode(ask: Ask, node: string): Promise<'done' | 'unknown' | 'alive'> {
  const [row] = await ask<{ known: boolean; alive: boolean }>(
    `select count(*) > 0 as known, count(*) filter (where not dead) > 0 as alive from postern.session
     where node = $1 and not report ? 'forgotten'`,
    [node],
  );
  if (row?.alive === true) return 'alive';
  if (row?.known !== true) return 'unknown';
  await ask(`update postern.session set report = report || '{"forgotten": true}' where node = $1 and dead`, [node]);
  return 'done';
}
