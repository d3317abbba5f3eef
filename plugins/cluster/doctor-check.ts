import { advice, type DoctorCheck, type Finding, fine, skipped, trouble } from '../../core/contracts/doctor-check.js';
import { isStartError } from '../../core/problem.js';
import { dividedMail, livingNodes } from './mailboxes/node-directory.js';
import type { ClusterSettings, DatabaseSettings } from './options.js';
import { complaintOf, ownVersion } from './database/schema.js';
import {
  type Ask,
  clockPlaySeconds,
  readOldestSnapshot,
  readStandbys,
  type Settings,
  settingsText,
  unsafe,
} from './database/server-state.js';

/** A snapshot that is older keeps vacuum away for long. Seconds. */
const oldSnapshotSeconds = 600;

/** The database of the cluster, asked as the role of the servers. */
export const clusterCheck: DoctorCheck<Partial<ClusterSettings>> = {
  group: 'Cluster',
  name: 'cluster',
  async run({ options: { database: settings }, clock }) {
    if (settings === undefined) return [skipped('There is no cluster: plugins.cluster.database is not set.')];
    const { askOn, connectTo } = await import('./database/connect.js');
    const { user, password, tls, hosts } = settings;
    try {
      const { client, host } = await connectTo({ settings, user, password });
      try {
        const ask = askOn(client);
        const before = clock.now();
        const [row] = await ask<Settings & { now: number }>(
          `select s.*, extract(epoch from clock_timestamp())::float8 * 1000 as now from (${settingsText}) s`,
        );
        const middle = (before + clock.now()) / 2;
        return [
          ...serverFindings(host, row),
          ...(await tableFindings(ask)),
          ...(await roleFindings(ask, settings)),
          ...(await standbyFindings(ask, row)),
          ...(await snapshotFindings(ask)),
          ...(await mailboxFindings(ask)),
          clockFinding((middle - (row?.now ?? middle)) / 1000),
          ...(tls === 'off' || hosts.every((one) => one.startsWith('/'))
            ? []
            : [fine('The connection to the database is under TLS, with a checked certificate.')]),
        ];
      } finally {
        await client.end();
      }
    } catch (error) {
      const is = isStartError(error)
        ? error.message
        : `The database ${settings.name} cannot be asked: ${(error as Error).message}.`;
      return [trouble(is, 'See docs/cluster.md. Without the database no mail for others is accepted or sent.')];
    }
  },
};

function serverFindings(host: string, row: Settings | undefined): readonly Finding[] {
  const complaint = row && unsafe(row);
  if (complaint !== undefined) return [trouble(complaint, 'A server does not start with it.')];
  return [fine(`The database at ${host} answers and can be written: PostgreSQL ${row?.version}.`)];
}

async function tableFindings(ask: Ask): Promise<readonly Finding[]> {
  const make = 'Make them: postern cluster init, then postern cluster migrate.';
  try {
    const rows = await ask<{ version: number; least_reader: number }>(
      'select version, least_reader from postern.schema order by version desc limit 1',
    );
    const complaint = complaintOf(rows[0]);
    if (complaint !== undefined) return [trouble(complaint, 'A server does not start with it.')];
    return [fine(`The tables have version ${rows[0]?.version}; this program knows version ${ownVersion}.`)];
  } catch (error) {
    const { code, message } = error as { readonly code?: unknown; readonly message: string };
    if (code === '42P01' || code === '3F000') return [trouble('The tables of the cluster are missing.', make)];
    return [trouble(`The tables of the cluster cannot be read: ${message}.`, make)];
  }
}

async function roleFindings(ask: Ask, { user }: DatabaseSettings): Promise<readonly Finding[]> {
  const [row] = await ask<{ superuser: boolean; creates: boolean; owns: boolean; stats: boolean }>(`
    select rolsuper as superuser,
      has_database_privilege(current_database(), 'create') or coalesce(has_schema_privilege(to_regnamespace('postern')::oid, 'create'), false)
        as creates,
      exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'postern' and pg_has_role(c.relowner, 'usage')) as owns,
      pg_has_role('pg_read_all_stats', 'usage') as stats
    from pg_roles where rolname = current_user`);
  const todo = 'Give the servers a role that owns nothing: postern cluster init makes one.';
  const much = [
    row?.superuser === true && 'is a superuser',
    row?.superuser !== true && row?.owns === true && 'owns tables',
    row?.superuser !== true && row?.creates === true && 'may make tables',
  ].filter((word) => word !== false && word !== undefined);
  if (much.length > 0) return [advice(`The role ${user} ${much.join(' and ')}.`, todo)];
  if (row?.stats === false)
    return [
      advice(
        `The role ${user} cannot see how old the snapshots of others are, and how far a standby is behind.`,
        `Run: grant pg_read_all_stats to ${user}`,
      ),
    ];
  return [fine(`The role ${user} can change rows and no table.`)];
}

async function standbyFindings(ask: Ask, row: Settings | undefined): Promise<readonly Finding[]> {
  const standbys = await readStandbys(ask);
  if (row?.synchronous === '' || row?.commit === 'local')
    return [
      advice(
        'A commit waits for no standby: when the machine of the database is lost, so is mail that was acknowledged last.',
        'Have a synchronous standby (synchronous_standby_names), and a manager that keeps the old server from being written.',
      ),
    ];
  const held = standbys.filter(({ mode }) => mode === 'sync' || mode === 'quorum');
  if (held.length === 0)
    return [
      trouble(
        'A commit waits for a standby, and none is there: no mail is accepted for others.',
        'Start the standby, or change synchronous_standby_names.',
      ),
    ];
  return [fine(`A commit waits for a standby: ${held.map(({ name }) => name).join(', ')}.`)];
}

async function mailboxFindings(ask: Ask): Promise<readonly Finding[]> {
  // Without tables there is no node either, and another finding says so.
  const why = dividedMail(await livingNodes(ask).catch(() => []));
  return why === undefined ? [] : [trouble(why, 'See docs/cluster.md, "Mailboxes".')];
}

async function snapshotFindings(ask: Ask): Promise<readonly Finding[]> {
  const oldest = await readOldestSnapshot(ask);
  if (oldest === null || (oldest.seconds ?? 0) < oldSnapshotSeconds)
    return [fine('No old snapshot keeps vacuum away.')];
  return [
    advice(
      `A snapshot is ${oldest.seconds} s old: ${oldest.holder}. Dead rows stay until it ends, and the queue becomes slower.`,
      'End that transaction; set idle_in_transaction_session_timeout for the role.',
    ),
  ];
}

function clockFinding(ahead: number): Finding {
  const seconds = Math.round(ahead * 10) / 10;
  if (Math.abs(seconds) <= clockPlaySeconds) return fine('The clock of this machine agrees with that of the database.');
  return advice(
    `The clock of this machine is ${Math.abs(seconds)} s ${seconds > 0 ? 'ahead of' : 'behind'} that of the database.`,
    'Run a time service on both. The queue goes by the clock of the database.',
  );
}
