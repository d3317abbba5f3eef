import { randomBytes } from 'node:crypto';
import { appendFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pluginCall } from '../../../core/cli/command-line.js';
import { systemClock } from '../../../core/clock.js';
import { attemptLimits } from '../../../core/contracts/cluster.js';
import type { OwnerCall } from '../../../core/contracts/server.js';
import { provide } from '../../../core/contracts/service.js';
import { exitStatusOf, isProblem, isStartError } from '../../../core/problem.js';
import { clusterCommand } from '../../../plugins/cluster/cluster-command.js';
import { clusterPlugin } from '../../../plugins/cluster/index.js';
import { ClusterNode } from '../../../plugins/cluster/node.js';
import { ClusterOptions, type ClusterSettings } from '../../../plugins/cluster/options.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { atEnd, type Ending } from '../../support/ending.js';
import type { Postgres } from '../../support/postgres.js';
import { configurationOf, openPluginSite, type PluginSite } from '../plugin-site.js';

export const loadMove = async () =>
  (await import('../../../plugins/client-queue/postgres/open-postgres-queue.js')).moveQueue;

export const superuserPassword = 'of the superuser';
export const appPassword = "of the 'servers'";

/** Over TCP everybody gives a password; over the socket nobody does. */
export async function wantPasswords(server: Postgres): Promise<void> {
  await server.psql(`alter role postgres password '${superuserPassword}'`);
  const lines = ['local all all trust', 'host all all 127.0.0.1/32 scram-sha-256'];
  await writeFile(join(server.folder, 'data', 'pg_hba.conf'), `${lines.join('\n')}\n`);
  await server.reload();
}

/** Offers TLS with this certificate. */
export async function offerTls(
  server: Postgres,
  { key, cert }: { readonly key: string; readonly cert: string },
): Promise<void> {
  const data = join(server.folder, 'data');
  await server.psql(`copy (values ('')) to '${data}/server.key'`);
  await writeFile(join(data, 'server.key'), key);
  await server.psql(`copy (values ('')) to program 'chmod 600 ${data}/server.key'`);
  await writeFile(join(data, 'server.crt'), cert, { mode: 0o644 });
  await appendFile(join(data, 'postgresql.conf'), 'ssl = on\n');
  await server.reload();
}

export const settingsOf = (database: object, rest: object = {}): ClusterSettings =>
  ClusterOptions.parse({ node: 'mx1', sessionSeconds: 2, database, ...rest });

interface Said {
  readonly status: 0 | 1 | 2;
  readonly output: string;
  readonly error: string;
}

interface Circumstances {
  readonly answers?: readonly string[];
  readonly owner?: OwnerCall;
  readonly data?: string;
}

/** `postern cluster …`, with what is typed. Without `owner` no server runs. */
export async function cluster(
  words: string,
  options: Partial<ClusterSettings>,
  { answers = [], owner, data = '/nowhere' }: Circumstances = {},
): Promise<Said> {
  const printed: string[] = [];
  const left = [...answers];
  const ask = (question: string): Promise<string> => {
    printed.push(question);
    return Promise.resolve(left.shift() ?? '');
  };
  const terminal = { interactive: true, print: (text: string) => void printed.push(`${text}\n`), ask, askSecret: ask };
  const configuration = { data, domains: ['example.org'], hostname: 'mx1' };
  try {
    const command = clusterCommand(loadMove);
    const call = pluginCall(command, ['cluster', ...words.split(' ')]);
    await command.run({ ...call, options, configuration, terminal, clock: systemClock, owner });
    return { status: 0, output: printed.join(''), error: '' };
  } catch (error) {
    if (!isStartError(error) && !isProblem(error)) throw error;
    return { status: exitStatusOf(error), output: printed.join(''), error: error.message };
  }
}

export function openClusterSite(test: Ending, options: object): Promise<PluginSite> {
  return openPluginSite(test, clusterPlugin(loadMove), {
    options,
    configuration: configurationOf([]),
    clock: systemClock,
    lent: [provide(attemptLimits, { add: () => () => undefined, all: () => new Map() })],
  });
}

/** Another node of the cluster, as the database sees it. It dies silently when the test ends, or before. */
export async function joined(
  test: Ending,
  settings: ReturnType<typeof settingsOf>,
  version = '0.0.1',
): Promise<ClusterNode> {
  const node = new ClusterNode({
    settings,
    node: settings.node ?? 'mx1',
    instance: randomBytes(8).toString('hex'),
    clock: systemClock,
    log: rememberingLog().log,
    report: () => ({ version }),
  });
  await node.join();
  atEnd(test, () => node.leave());
  return node;
}
