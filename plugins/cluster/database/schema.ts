import { createHash } from 'node:crypto';
import type pg from 'pg';
import { problem } from '../../../core/problem.js';

/** One version of the tables. Released ones never change: a test has their hashes. */
interface SchemaVersion {
  /** The least version that a server must be able to work with, to run beside this one. */
  readonly leastReader: number;
  readonly script: string;
}

/** Of young bodies. The servers may empty them. */
export const ringTables = [0, 1, 2, 3, 4, 5, 6, 7].map((number) => `postern.body_${number}`);

const ringTable = (name: string, number: number): string =>
  `create table ${name} partition of postern.body for values in (${number})
  with (autovacuum_enabled = false, toast.autovacuum_enabled = false);`;

/** In their order, from version 1. */
export const schemaVersions: readonly SchemaVersion[] = [
  {
    leastReader: 1,
    script: `
create sequence postern.session_number;
-- A life of a node.
create table postern.session (
  key text primary key,
  node text not null,
  instance text not null,
  beat bigint not null default 0,
  dead boolean not null default false,
  draining boolean not null default false,
  report jsonb not null default '{}',
  joined_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Notices that were given come last.
create sequence postern.notice_turn;

-- An envelope of the relay queue. Times are milliseconds since the epoch. Columns that are searched have no NUL and no half of a
-- surrogate pair; what was accepted is in 'envelope'.
create table postern.entry (
  uid text collate "C" primary key,
  -- Of the acceptance that answers for it: may change while it is being accepted.
  birth text not null,
  revision int not null default 1,
  sender text,
  subject text not null,
  message_id text,
  size bigint not null,
  queued_at bigint not null,
  expires_at bigint not null,
  warn_at bigint,
  last_attempt bigint,
  finished_at bigint,
  hold text,
  hold_until bigint,
  discard_at bigint,
  counts_from bigint,
  ages_at bigint,
  pending text,
  crashes smallint not null default 0,
  notices text,
  notice_count int not null default 0,
  notice_turn bigint,
  history text not null default '[]',
  envelope text not null,
  -- Key of its message, and its table until it is needed no more: 0 to 7 in the ring, 8 behind it.
  body text not null,
  body_table smallint
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
-- With what is counted of all open entries: the table need not be read.
create index entry_queued on postern.entry (queued_at, uid) include (sender, size) where finished_at is null;
create index entry_sender on postern.entry (reverse(lower(sender)) collate "C") where finished_at is null;
create statistics postern.entry_sender_values on (reverse(lower(sender)) collate "C") from postern.entry;
create index entry_held on postern.entry (uid) where hold is not null and finished_at is null;
create index entry_finished on postern.entry (finished_at) where finished_at is not null;
create index entry_ages on postern.entry (ages_at, uid) where ages_at is not null;
create index entry_body_table on postern.entry (body_table, uid) where body_table < 8;
create index entry_notices on postern.entry (notice_turn nulls first, uid) where notices is not null;

-- States: 0 active, 1 deferred, 2 queued, 3 held, 4 bounced, 5 expired, 6 deleted, 7 delivered.
-- Lanes: 0 new, 1 retry, 2 suspect, 3 not released yet.
create table postern.recipient (
  uid text collate "C" not null,
  idx smallint not null,
  -- Of its entry.
  queued_at bigint not null,
  address text not null,
  destination text not null collate "C",
  state smallint not null,
  lane smallint not null,
  turn bigint not null,
  due bigint not null,
  attempts smallint not null default 0,
  manual boolean not null default false,
  token bigint,
  last_token bigint,
  session text,
  claimed_at bigint,
  code smallint,
  status text,
  reply text,
  host text,
  replied_at bigint,
  reason text not null default '',
  primary key (uid, idx)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create index recipient_new on postern.recipient (destination, turn) where state in (1, 2) and lane = 0;
create index recipient_retry on postern.recipient (destination, due) where state in (1, 2) and lane = 1;
create index recipient_suspect on postern.recipient (due) where state in (1, 2) and lane = 2;
create index recipient_session on postern.recipient (session) where session is not null;
create index recipient_held on postern.recipient (destination) where state = 3;
-- What operators look for, of mail that was tried before: mail that leaves at once is in none of them, or in one when it is done.
create index recipient_due on postern.recipient (due, uid) where state in (1, 2) and lane <> 3;
create index recipient_address on postern.recipient (reverse(lower(address)) collate "C")
  where state > 3 or (state in (1, 2) and lane = 1);
create index recipient_reason on postern.recipient (lower(reason)) where state in (1, 2) and lane = 1 and reason <> '';
-- The planner learns nothing of values from an index that has only some of the rows.
create statistics postern.recipient_address_values on (reverse(lower(address)) collate "C") from postern.recipient;
create statistics postern.recipient_reason_values on (lower(reason)) from postern.recipient;

-- Message bodies; the ring tables are truncated as a whole. The key starts with the id because the ring tables are never analyzed:
-- with table_number first, PostgreSQL scans the whole index for a few ids.
create table postern.body (
  table_number smallint not null,
  id text not null,
  part int not null,
  data bytea not null,
  primary key (id, part, table_number)
) partition by list (table_number);
alter table postern.body alter data set storage external;
${ringTables.map(ringTable).join('\n')}
create table postern.body_old partition of postern.body for values in (8);

-- The ring: empty tables were not opened, one is open, closed ones wait to be emptied.
create table postern.body_table (number smallint primary key, opened_at timestamptz, closed_at timestamptz);
create unique index body_table_open on postern.body_table ((true)) where opened_at is not null and closed_at is null;
insert into postern.body_table (number, opened_at)
  select number, case number when 0 then clock_timestamp() end from generate_series(0, 7) number;

-- Of the last change of users, and of owners of mailboxes. 'recent': a hundred before it, the newest first.
create table postern.revision (name text primary key, value bigint not null, recent bigint[] not null default '{}');
insert into postern.revision (name, value) values ('users', 0), ('mailbox-owners', 0);
-- Users. A removed one stays, so that the others learn of it.
create table postern.principal (
  username text primary key,
  revision bigint not null unique,
  aliases text not null,
  disabled boolean not null,
  quota bigint,
  password_hash text,
  created_at text not null,
  removed boolean not null
);
-- Names and aliases: each has one user.
create table postern.name (name text primary key, username text not null);
create index name_username on postern.name (username);

-- Which node has which mailbox. 'moving': the node to which it moves. 'leaves': a node that has still to remove its old copy.
create table postern.mailbox_owner (
  username text primary key,
  revision bigint not null,
  node text not null,
  moving text,
  leaves text,
  -- Why it does not move on.
  note text
);
create index mailbox_owner_revision on postern.mailbox_owner (revision);
create index mailbox_owner_node on postern.mailbox_owner (node);

-- Responses by Idempotency-Key.
create table postern.answer (key text primary key, at bigint not null, session text, claim text, answer text);
create index answer_at on postern.answer (at);

-- Browsers that are signed in. 'digest': SHA-256 of the token. Times are milliseconds since the epoch.
create table postern.sign_in (
  digest text primary key,
  id text not null,
  username text not null,
  role text not null,
  password_hash text not null,
  address text not null,
  browser text not null,
  since bigint not null,
  last_used bigint not null
);
create index sign_in_username on postern.sign_in (username);

-- Failed sign-ins of the last minutes: a crash may forget them.
create unlogged table postern.guess (
  name text not null,
  key text not null,
  node text not null,
  window_start bigint not null,
  count int not null,
  at bigint not null,
  primary key (name, key, node)
);
create index guess_at on postern.guess (at);

-- Parts of the limits of sites that sessions may use.
create table postern.share (
  site text not null,
  session text not null,
  connections int not null,
  wants boolean not null,
  primary key (site, session)
) with (fillfactor = 50);

-- Who does what one node does for all.
create table postern.duty (name text primary key, session text not null);

-- 'version': another one, by chance, with each change.
create table postern.document (name text primary key, version bigint not null, data text not null);

-- What is in the audit logs of the nodes. 'position': bytes that a node had written up to the end of the line.
create table postern.audit (
  node text not null collate "C",
  position bigint not null,
  at bigint not null,
  -- What is searched, in lower case.
  who text not null,
  address text not null,
  method text not null,
  path text not null,
  action text not null,
  done boolean not null,
  line text not null,
  primary key (node, position)
);
create index audit_at on postern.audit (at, node, position);
-- Up to where a node has copied its files.
create table postern.audit_copied (node text primary key, position bigint not null, place text not null);

-- Sets of configuration files; none ever changes.
create table postern.config_set (
  number bigint generated always as identity primary key,
  at bigint not null,
  author text,
  files text not null
);
-- The set in use. Each move to a set, also to the same one, has a number; a node that could not apply it stops the move.
create table postern.config_current (
  one boolean primary key default true check (one),
  number bigint not null references postern.config_set,
  move bigint not null,
  at bigint not null,
  author text,
  stopped_by text,
  stopped_why text
);
-- What the nodes made of the last move that they have begun: 'number' is what they have applied.
create table postern.config_node (
  node text primary key,
  number bigint,
  move bigint not null,
  state text not null,
  why text,
  session text not null
);
`,
  },
];

/** The version that this server works with. */
export const ownVersion = schemaVersions.length;

const hashOf = (script: string): string => createHash('sha256').update(script).digest('hex');

/** Two that migrate at once wait for each other. */
const lockKey = 7_305_719_001;

interface Applied {
  readonly version: number;
  readonly least_reader: number;
  readonly script_hash: string;
}

/**
 * Brings the tables to the newest version, in one transaction for each.
 *
 * @param client connected as the owner of the tables
 * @returns the versions that were applied now
 * @throws Problem `conflict` when a version that is there differs from what this server knows of it
 */
export async function migrate(client: pg.ClientBase): Promise<readonly number[]> {
  await client.query('select pg_advisory_lock($1)', [lockKey]);
  try {
    // The owner of the schema need not be allowed to make one.
    const { rowCount: made } = await client.query("select from pg_namespace where nspname = 'postern'");
    if (made === 0) await client.query('create schema postern');
    await client.query(`
      create table if not exists postern.schema (
        version int primary key,
        least_reader int not null,
        script_hash text not null,
        applied_at timestamptz not null default clock_timestamp()
      )`);
    const { rows } = await client.query<Applied>(
      'select version, least_reader, script_hash from postern.schema order by version',
    );
    refuseOthers(rows);
    const applied: number[] = [];
    for (let version = rows.length + 1; version <= ownVersion; version += 1) {
      await apply(client, version);
      applied.push(version);
    }
    return applied;
  } finally {
    await client.query('select pg_advisory_unlock($1)', [lockKey]);
  }
}

function refuseOthers(applied: readonly Applied[]): void {
  for (const { version, script_hash: hash } of applied) {
    const known = schemaVersions[version - 1];
    if (known === undefined || hashOf(known.script) === hash) continue;
    throw problem(
      'conflict',
      `Version ${version} of the tables is not the one that this server knows. Nothing was changed.`,
    );
  }
}

async function apply(client: pg.ClientBase, version: number): Promise<void> {
  const { script, leastReader } = schemaVersions[version - 1] ?? { script: '', leastReader: version };
  await client.query('begin');
  try {
    await client.query(script);
    await client.query('insert into postern.schema (version, least_reader, script_hash) values ($1, $2, $3)', [
      version,
      leastReader,
      hashOf(script),
    ]);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}

/** Why this server cannot work with those tables; undefined when it can. */
export function complaintOf(
  newest: { readonly version: number; readonly least_reader: number } | undefined,
): string | undefined {
  if (newest === undefined) return 'The tables of the cluster are missing. Make them: postern cluster migrate';
  const { version, least_reader: least } = newest;
  if (version < ownVersion)
    return `The tables of the cluster have version ${version}, this server needs ${ownVersion}. Bring them there: postern cluster migrate`;
  if (least > ownVersion)
    return `The tables of the cluster have version ${version}, which needs a newer server. This one knows version ${ownVersion}.`;
  return undefined;
}
