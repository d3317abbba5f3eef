import pg from 'pg';
import type { Cluster } from '../../../core/contracts/cluster.js';
import { systemClock } from '../../../core/clock.js';
import { ClusterNode } from '../../../plugins/cluster/node.js';
import { migrate } from '../../../plugins/cluster/database/schema.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import type { Postgres } from '../../support/postgres.js';

/** Fills the database that all others are copies of. */
export async function fillTables(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await migrate(client);
  await client.end();
}

interface NodeWishes {
  readonly node?: string;
  readonly instance?: string;
  readonly sessionMs?: number;
  readonly clock?: typeof systemClock;
  /** Port of a proxy in front of the database. */
  readonly port?: number;
}

/** A node over the template database; joins when it is told to. */
export function nodeOf(server: Pick<Postgres, 'folder' | 'port'>, wishes: NodeWishes = {}) {
  const { node = 'mx1', instance = node, sessionMs = 2000, clock = systemClock, port } = wishes;
  const { log, sentences } = rememberingLog();
  const made = new ClusterNode({
    settings: {
      database: {
        hosts: [port === undefined ? `${server.folder}:${server.port || 5432}` : `127.0.0.1:${port}`],
        name: 'template',
        user: 'postgres',
        tls: 'off',
      },
      sessionSeconds: sessionMs / 1000,
      commitTimeoutSeconds: 30,
    },
    node,
    instance,
    clock,
    log,
    report: () => ({}),
  });
  return Object.assign(made, { sentences });
}

export const emptyTables =
  'truncate postern.entry, postern.recipient, postern.body, postern.session, postern.share, postern.duty, postern.document, postern.principal, postern.name, postern.answer, postern.sign_in, postern.guess, postern.mailbox_owner, postern.audit, postern.audit_copied, postern.config_node, postern.config_current, postern.config_set restart identity';

const remembered = ['revision', 'principal', 'name', 'mailbox_owner', 'document'];

/** The database forgets what was committed after this when the result is called, as after a failover that lost it. */
export async function forgettable(server: Postgres): Promise<() => Promise<void>> {
  const all = async (text: (table: string) => string): Promise<void> =>
    void (await server.psql(remembered.map(text).join('; '), 'template'));
  await all((table) => `create table public.${table} as table postern.${table}`);
  return () =>
    all((table) => {
      const filled = `insert into postern.${table} table public.${table}`;
      return `delete from postern.${table}; ${filled}; drop table public.${table}`;
    });
}

/** The node with other answers of its own: a clock of the test, for example. */
export function seenAs(node: ClusterNode, own: Partial<Cluster>): Cluster {
  return new Proxy<Cluster>(node, {
    get: (_, name: keyof Cluster) => {
      if (Object.hasOwn(own, name)) return own[name];
      const value = node[name] as unknown;
      return typeof value === 'function' ? (value.bind(node) as unknown) : value;
    },
  });
}
