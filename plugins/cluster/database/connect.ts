import pg from 'pg';
import { type SqlRow, sqlState } from '../../../core/contracts/cluster.js';
import { startError } from '../../../core/problem.js';
import { databaseAddress } from './database.js';
import type { DatabaseSettings } from '../options.js';
import type { Ask } from './server-state.js';

const connectTimeoutMs = 5000;
const queryTimeoutMs = 15_000;

/** Errors of a certificate that no authority we know has signed, or that is not valid now. */
const untrusted = /^(?:DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_|CERT_)/;

/** Of the client, when it has none. */
const asksPassword = /password must be a (?:non-empty )?string/;

const wantsPassword = (error: unknown): boolean => {
  const { code, message = '' } = error as { readonly code?: string; readonly message?: string };
  return code === '28P01' || asksPassword.test(message);
};

/** What an operator has to mend; undefined for a database that is only away. */
export function connectionRefusal(error: unknown, { user }: Pick<DatabaseSettings, 'user'>): string | undefined {
  const { code, message, path } = error as {
    readonly code?: string;
    readonly message?: string;
    readonly path?: string;
  };
  const text = message ?? '';
  if (code === '28P01')
    return `The database refuses the password of ${user}. See plugins.cluster.database.password; postern cluster init sets it.`;
  if (code === '28000' && text.includes('does not exist'))
    return `The database has no role ${user}. Make it: postern cluster init`;
  if (code === '28000') return `The database refuses the role ${user}: ${text}. See pg_hba.conf of the database.`;
  if (code === '3D000') return `The ${text}. Make it: postern cluster init`;
  if (code === '42501')
    return `The role ${user} has not all of its rights: ${text}. Give them: postern cluster init, then postern cluster migrate`;
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `The certificate of the database is for another name: ${text}. Use that name in plugins.cluster.database.hosts.`;
  if (untrusted.test(code ?? ''))
    return `The certificate of the database is not trusted: ${text}. Name its authority in plugins.cluster.database.tls.ca.`;
  if (/does not support SSL/.test(text))
    return 'The database offers no TLS. Turn on ssl in postgresql.conf; plugins.cluster.database.tls may be off on this machine only.';
  if (asksPassword.test(text))
    return `The database asks for the password of ${user}: set plugins.cluster.database.password.`;
  if (path !== undefined) return `The file ${path} of plugins.cluster.database.tls cannot be read (${code}).`;
  return undefined;
}

interface Connecting {
  readonly settings: DatabaseSettings;
  readonly user: string;
  /** `PGPASSWORD` of the environment if absent. */
  readonly password?: string | undefined;
  /** Asks for it when the server wants another one. */
  readonly askPassword?: (() => Promise<string>) | undefined;
  /** Another one than in the settings. */
  readonly database?: string;
}

/** Asks on one connection. */
export const askOn =
  (client: pg.Client): Ask =>
  async <R extends SqlRow>(text: string, values: readonly unknown[] = []) =>
    (await client.query<R>(text, [...values])).rows;

/** A connection of a command. The caller closes it. */
export interface Connected {
  readonly client: pg.Client;
  readonly host: string;
}

/**
 * One connection to the first server that can be written.
 *
 * @throws start error with a sentence; the error of PostgreSQL when there is no such database
 */
export async function connectTo({ askPassword, ...wanted }: Connecting): Promise<Connected> {
  const complaints: string[] = [];
  let { password } = wanted;
  let mayAsk = askPassword !== undefined;
  for (const host of wanted.settings.hosts) {
    try {
      const client = await opened(host, { ...wanted, password }).catch(async (error: unknown) => {
        if (!mayAsk || !wantsPassword(error)) throw error;
        mayAsk = false;
        password = await askPassword?.();
        return opened(host, { ...wanted, password });
      });
      if (client !== undefined) return { client, host };
      complaints.push(`${host} is a standby.`);
    } catch (error) {
      if (sqlState(error) === '3D000') throw error;
      complaints.push(connectionRefusal(error, wanted) ?? `${host} does not answer: ${wordsOf(error)}.`);
    }
  }
  throw startError([...new Set(complaints)].join('\n'));
}

/** Undefined for a standby. */
async function opened(
  host: string,
  { settings, user, password, database }: Connecting,
): Promise<pg.Client | undefined> {
  const client = new pg.Client({
    ...databaseAddress(host, settings),
    database: database ?? settings.name,
    user,
    ...(password !== undefined && { password }),
    application_name: 'postern/command',
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: queryTimeoutMs,
  });
  // Of a connection that is lost between two statements: the next statement fails.
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query<{ standby: boolean }>('select pg_is_in_recovery() as standby');
    if (rows[0]?.standby === false) return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
  await client.end();
  return undefined;
}

function wordsOf(error: unknown): string {
  const { message, code } = error as { readonly message?: string; readonly code?: string };
  return message !== undefined && message !== '' ? message : (code ?? String(error));
}
