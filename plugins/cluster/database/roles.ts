import { createHash, createHmac, pbkdf2Sync } from 'node:crypto';
import pg from 'pg';
import { ringTables } from './schema.js';

const { escapeIdentifier, escapeLiteral } = pg;

/** Owns the tables. No server connects as this role. */
export const ownerRole = 'postern_owner';
/** For people and monitoring: addresses and subjects of the queue, but no bodies, documents, users, signed-in browsers, audit log and configuration. */
export const readRole = 'postern_read';

/** Nine nodes with ten connections each, below the usual `max_connections` of 100. */
const maxConnections = 90;

interface RolesInput {
  /** Name of the database. */
  readonly database: string;
  /** Role of the servers. */
  readonly app: string;
  /** Verifier of its password, as PostgreSQL keeps it; it has none otherwise. */
  readonly verifier?: string | undefined;
}

/** Statements of a superuser that make roles and schema, and may be repeated. */
export function rolesScript({ database, app, verifier }: RolesInput): string {
  const [base, role] = [escapeIdentifier(database), escapeIdentifier(app)];
  return `-- The owner of the tables, the role of the servers, and one that reads.
${roleText(ownerRole, 'login')}
${roleText(app, `login connection limit ${maxConnections}`)}
${roleText(readRole, 'login connection limit 10')}
${verifier === undefined ? `-- Give it a password: \\password ${app}` : `alter role ${role} password ${escapeLiteral(verifier)};`}
-- Statistics of other sessions: who holds an old snapshot, how far a standby is behind.
grant pg_read_all_stats to ${role};
-- No other role makes tables here.
revoke create, temporary on database ${base} from public;
revoke create on schema public from public;
grant connect on database ${base} to ${role}, ${ownerRole}, ${readRole};
create schema if not exists postern authorization ${ownerRole};
alter schema postern owner to ${ownerRole};
revoke all on schema postern from public;
grant usage on schema postern to ${role}, ${readRole};
`;
}

const roleText = (name: string, options: string): string => `do $$ begin
  if not exists (select from pg_roles where rolname = ${escapeLiteral(name)}) then create role ${escapeIdentifier(name)} ${options}; end if;
end $$;`;

/** What the servers and the readers may do with the tables. Statements of the owner, after each migration. */
export function grantsScript(app: string): string {
  const role = escapeIdentifier(app);
  return `
grant select, insert, update, delete on all tables in schema postern to ${role};
revoke insert, update, delete on postern.schema from ${role};
grant truncate on ${ringTables.join(', ')} to ${role};
revoke update on postern.config_set from ${role};
grant usage on all sequences in schema postern to ${role};
grant select on postern.schema, postern.session, postern.recipient, postern.duty to ${readRole};
grant select (uid, revision, sender, subject, message_id, size, queued_at, expires_at, last_attempt, finished_at, hold,
  hold_until, crashes) on postern.entry to ${readRole};
`;
}

const iterations = 4096;

/** What PostgreSQL keeps of a password (RFC 5803), so that the password itself reaches no log of it. */
export function scramVerifier(password: string, salt: Buffer): string {
  const salted = pbkdf2Sync(password.normalize('NFKC'), salt, iterations, 32, 'sha256');
  const keyOf = (label: string): Buffer => createHmac('sha256', salted).update(label).digest();
  const stored = createHash('sha256').update(keyOf('Client Key')).digest('base64');
  return `SCRAM-SHA-256$${iterations}:${salt.toString('base64')}$${stored}:${keyOf('Server Key').toString('base64')}`;
}
