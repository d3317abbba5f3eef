import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import type pg from 'pg';
import { pino } from 'pino';
import { z } from 'zod';
import { answered, type Command, type CommandInput, type Terminal } from '../../core/cli/command.js';
import { withProgress } from '../../core/cli/terminal.js';
import { sqlState } from '../../core/contracts/cluster.js';
import { nodeIdOf } from '../../core/host/data-folder.js';
import { version } from '../../core/host/installation.js';
import { startError, usageError } from '../../core/problem.js';
import { formatBytes, formatNumber, pluralize, printable } from '../../core/text/format.js';
import { configAction, configUsage } from './configuration/config-command.js';
import { ClusterAnswer, readCluster } from './cluster-answer.js';
import { ClusterOptions, type ClusterSettings, type DatabaseSettings } from './options.js';
import { ownVersion } from './database/schema.js';
import type { LoadMove } from './queue-transfer.js';
import { type Ask, forgetNode, setDraining } from './database/server-state.js';

const usage = [
  'postern cluster init [--user NAME] [--print] [--json]   make roles and schema in the database, as a superuser; or print the SQL',
  'postern cluster migrate [--user NAME] [--json]          make the tables, or bring them to the version of this program',
  'postern cluster status [--json]                         nodes and database',
  'postern cluster drain NODE [--json]                     the node takes nothing more from the queue',
  'postern cluster undrain NODE [--json]                   it takes mail from the queue again',
  'postern cluster forget NODE [--json]                    a dead node is not listed any more',
  'postern cluster import-queue [--dry-run] [--json]       the mail of the queue in files goes into the database',
  'postern cluster export-queue [--dry-run] [--json]       back, when no node sends any more',
  'postern cluster move-mailbox USER NODE [--json]         the mailbox moves to that node; mail for it is queued meanwhile',
  ...configUsage,
] as const;

/** Empty on a server without a cluster. */
type Options = Partial<ClusterSettings>;
export type Input = CommandInput<Options>;

/**
 * `postern cluster …`. With a running server it asks that one, so that its audit trail has it.
 *
 * @param loadMove gives what knows both queues
 */
export const clusterCommand = (loadMove: LoadMove): Command<Options> => ({
  name: 'cluster',
  summary: 'Several servers with one queue: their database, nodes, queue, mailboxes and configuration',
  usage,
  flags: ['json', 'dry-run'],
  needsNoData: true,
  ownFlags: {
    user: { value: 'NAME', summary: 'role of the database: of init postgres, of migrate postern_owner by default' },
    print: { summary: 'prints the SQL of init, and changes nothing' },
  },
  async run(input) {
    const [word = '', ...words] = input.args;
    if (word === 'config') {
      const act = configAction(input, words);
      databaseOf(input);
      return act();
    }
    const action = Object.hasOwn(actions, word) ? actions[word] : undefined;
    if (action === undefined || words.length !== action.words) throw usageError(usage);
    const given = Object.keys(input.values);
    if (given.some((flag) => !(action.flags ?? []).includes(flag))) throw usageError(usage);
    if (input.flags?.has('dry-run') === true && action.mayBeDry !== true) throw usageError(usage);
    await action.run(input, words, loadMove);
  },
});

interface Action {
  /** Number of words after the action. */
  readonly words: number;
  readonly flags?: readonly string[];
  readonly mayBeDry?: true;
  run(input: Input, words: readonly string[], loadMove: LoadMove): Promise<void>;
}

const actions: Readonly<Record<string, Action>> = {
  init: { words: 0, flags: ['user', 'print'], run: init },
  migrate: { words: 0, flags: ['user'], run: migrateTables },
  status: { words: 0, run: status },
  drain: { words: 1, run: (input, [node = '']) => drain(input, node, true) },
  undrain: { words: 1, run: (input, [node = '']) => drain(input, node, false) },
  forget: { words: 1, run: (input, [node = '']) => forget(input, node) },
  'import-queue': { words: 0, mayBeDry: true, run: (input, _, loadMove) => transfer(input, 'import', loadMove) },
  'export-queue': { words: 0, mayBeDry: true, run: (input, _, loadMove) => transfer(input, 'export', loadMove) },
  'move-mailbox': { words: 2, run: (input, [user = '', node = '']) => move(input, user, node) },
};

/** @throws start error without a cluster */
function databaseOf({ options: { database } }: Input): DatabaseSettings {
  if (database !== undefined) return database;
  throw startError('There is no cluster: name a database in plugins.cluster.database. See docs/cluster.md');
}

const userOf = ({ values: { user } }: Input, otherwise: string): string =>
  typeof user === 'string' ? user : otherwise;

async function init(input: Input): Promise<void> {
  const { terminal, options, values } = input;
  const { rolesScript, scramVerifier } = await import('./database/roles.js');
  if (values['print'] === true) {
    const { name = 'postern', user: app = 'postern_app' } = options.database ?? {};
    const sql = rolesScript({ database: name, app }).trimEnd();
    say(input, { sql }, ...sql.split('\n'));
    return;
  }
  const settings = databaseOf(input);
  const { name, user: app, password } = settings;
  const user = userOf(input, 'postgres');
  if (user === app)
    throw startError(`${app} is the role of the servers: init needs another one, a superuser (--user).`);
  let typed: Promise<string> | undefined;
  const boss: As = { settings, user, askPassword: () => (typed ??= answer(terminal, user)) };
  const made = await ensureDatabase(input, boss);
  const verifier = password === undefined ? undefined : scramVerifier(password, randomBytes(16));
  await connected(input, boss, async (_, { client }) => {
    await client.query(rolesScript({ database: name, app, verifier }));
  });
  say(
    input,
    { database: name, made, roles: ['postern_owner', app, 'postern_read'], password: password !== undefined },
    ...(made ? [`The database ${name} was made.`] : []),
    `The roles postern_owner, ${app} and postern_read are there, and the schema postern in the database ${name}.`,
    ...(password === undefined ? [`${app} was given no password: plugins.cluster.database.password is not set.`] : []),
    'Next: postern cluster migrate',
  );
}

/** Lines for people, or the same as JSON. */
function say({ terminal, flags }: Input, answer: object, ...lines: readonly string[]): void {
  if (flags?.has('json') === true) terminal.print(JSON.stringify(answer, null, 2));
  else for (const line of lines) terminal.print(printable(line));
}

/** Whether it was made now. */
async function ensureDatabase(input: Input, boss: As): Promise<boolean> {
  try {
    await connected(input, boss, () => Promise.resolve());
    return false;
  } catch (error) {
    if (sqlState(error) !== '3D000') throw error;
  }
  await connected(input, { ...boss, database: 'postgres' }, async (_, { client }) => {
    await client.query(
      `create database ${client.escapeIdentifier(boss.settings.name)} encoding 'UTF8' template template0`,
    );
  });
  return true;
}

async function migrateTables(input: Input): Promise<void> {
  const settings = databaseOf(input);
  const [{ migrate }, { grantsScript, ownerRole }] = await Promise.all([
    import('./database/schema.js'),
    import('./database/roles.js'),
  ]);
  const user = userOf(input, ownerRole);
  const applied = await connected(input, { settings, user }, async (_, { client }) => {
    if (user !== ownerRole) await client.query(`set role ${ownerRole}`);
    const done = await migrate(client);
    await client.query(grantsScript(settings.user));
    return done;
  });
  say(
    input,
    { version: ownVersion, applied },
    applied.length === 0
      ? `The tables have version ${ownVersion}: nothing was to be done.`
      : `The tables have version ${ownVersion} now.`,
  );
}

interface As {
  readonly settings: DatabaseSettings;
  readonly user: string;
  readonly password?: string | undefined;
  readonly askPassword?: () => Promise<string>;
  readonly database?: string;
}

/** Works on one connection. A password comes from the settings, from PGPASSWORD, or is asked for. */
async function connected<T>(
  { terminal }: Input,
  as: As,
  work: (ask: Ask, on: { readonly client: pg.Client; readonly host: string }) => Promise<T>,
): Promise<T> {
  const { askOn, connectTo, connectionRefusal } = await import('./database/connect.js');
  const askPassword = as.askPassword ?? ((): Promise<string> => answer(terminal, as.user));
  const on = await connectTo({ ...as, askPassword: as.password === undefined ? askPassword : undefined });
  try {
    return await work(askOn(on.client), on);
  } catch (error) {
    const { code } = error as { readonly code?: unknown };
    if (code === '42P01' || code === '3F000')
      throw startError(
        'The tables of the cluster are missing. Make them: postern cluster init, then postern cluster migrate',
      );
    if (typeof code !== 'string') throw error;
    throw startError(connectionRefusal(error, as) ?? `The database refused: ${(error as Error).message}.`, error);
  } finally {
    await on.client.end().catch(() => undefined);
  }
}

async function answer(terminal: Terminal, user: string): Promise<string> {
  const password = await terminal.askSecret(`Password of ${user} in the database: `);
  if (password === '')
    throw startError(`The database asks for the password of ${user}. Give it in PGPASSWORD, or here.`);
  return password;
}

/** As the role of the servers. */
const asServer = (input: Input): As => {
  const settings = databaseOf(input);
  return { settings, user: settings.user, password: settings.password };
};

async function status(input: Input): Promise<void> {
  const { owner, options } = input;
  databaseOf(input);
  const state =
    owner === undefined
      ? await connected(input, asServer(input), (ask, { host }) =>
          readCluster({ ask, host, node: options.node ?? '', sessionSeconds: options.sessionSeconds ?? 30 }),
        )
      : answered(await owner('GET', '/cluster'), ClusterAnswer);
  say(input, state, ...linesOf(state));
}

function linesOf(answer: ClusterAnswer): readonly string[] {
  const { configured, fault, nodes, differs, divided, database, configuration } = answer;
  if (!configured) return ['The running server is alone: it was started without plugins.cluster.database.'];
  if (fault !== null) return [`The database does not answer: ${fault}.`];
  return [
    ...nodes.map(nodeLine),
    ...(nodes.length === 0 ? ['No node has joined yet.'] : []),
    ...differs.map((key) => `The living nodes have different values of: ${key}.`),
    ...(divided === null ? [] : [divided]),
    ...(configuration === null ? [] : configurationLines(configuration)),
    ...(database === null ? [] : databaseLines(database)),
  ];
}

function nodeLine(one: ClusterAnswer['nodes'][number]): string {
  const facts = [
    `version ${one.version ?? 'unknown'}`,
    one.beatAgeSeconds !== null && `beat ${one.beatAgeSeconds} s ago`,
    pluralize(one.leases, 'lease'),
    one.mailboxes === 'owner' && pluralize(one.mailboxCount, 'mailbox', 'mailboxes'),
    one.state !== 'draining' && one.draining && 'draining',
    one.clockIsOff && one.state !== 'dead' && `clock ${one.clockAheadSeconds} s ahead`,
    one.configuration.state !== 'none' && `set ${one.configuration.set ?? 'none'} ${one.configuration.state}`,
    (one.fenced ?? 0) > 0 && `fenced ${one.fenced} times`,
  ];
  return `${one.node}  ${one.state}  ${facts.filter((fact) => fact !== false).join(', ')}`;
}

const configurationLines = ({ set, stopped }: NonNullable<ClusterAnswer['configuration']>): readonly string[] => [
  `Set ${set} of the configuration is in use.`,
  ...(stopped === null ? [] : [`It is stopped, and no other node applies it. ${stopped.node}: ${stopped.why}`]),
];

function databaseLines(database: NonNullable<ClusterAnswer['database']>): readonly string[] {
  const { host, version, schema, synchronous, standbys, tables, oldestSnapshot, slots } = database;
  const size = tables.reduce((sum, one) => sum + one.bytes, 0);
  const dead = tables.reduce((sum, one) => sum + one.deadRows, 0);
  return [
    `Database ${host}: PostgreSQL ${version}, tables of version ${schema ?? 'unknown'}, ${formatBytes(size)}, ${pluralize(dead, 'dead row')}.`,
    `A commit ${synchronous ? 'waits for a standby' : 'waits for no standby'}.`,
    ...standbys.map((one) => `Standby ${one.name}: ${one.mode ?? 'unknown'}, ${one.lagSeconds ?? 0} s behind.`),
    ...(oldestSnapshot === null
      ? []
      : [
          `Oldest snapshot: ${oldestSnapshot.seconds === null ? '' : `${oldestSnapshot.seconds} s, `}${oldestSnapshot.holder}.`,
        ]),
    ...slots.filter(({ active }) => !active).map(({ name }) => `The replication slot ${name} is not in use.`),
  ];
}

const Changed = z.object({ state: z.string() });

async function drain(input: Input, node: string, draining: boolean): Promise<void> {
  const { owner } = input;
  databaseOf(input);
  if (owner !== undefined)
    answered(await owner('POST', `/cluster/${draining ? 'drain' : 'undrain'}`, { node }), Changed);
  else if (!(await connected(input, asServer(input), (ask) => setDraining(ask, node, draining))))
    throw startError(`No node that lives calls itself ${node}.`);
  say(
    input,
    { node, draining },
    draining
      ? `${node} takes nothing more from the queue. It may be stopped when it has no leases: postern cluster status`
      : `${node} takes mail from the queue again.`,
  );
}

async function forget(input: Input, node: string): Promise<void> {
  const { owner } = input;
  databaseOf(input);
  if (owner !== undefined) answered(await owner('POST', '/cluster/forget', { node }), Changed);
  else {
    const done = await connected(input, asServer(input), (ask) => forgetNode(ask, node));
    if (done === 'alive') throw startError(`${node} is not dead. Stop it first.`);
    if (done === 'unknown') throw startError(`No node calls itself ${node}.`);
  }
  say(input, { node, forgotten: true }, `${node} is not listed until it joins again.`);
}

const transferred = {
  import: 'from the files into the database',
  export: 'from the database into files',
} as const;

async function transfer(input: Input, direction: 'import' | 'export', loadMove: LoadMove): Promise<void> {
  const { configuration, options, owner, clock } = input;
  const { data, hostname } = configuration;
  databaseOf(input);
  if (owner !== undefined) throw startError(`A server runs over the data folder ${data}. Stop it, and repeat this.`);
  if (!existsSync(data)) throw startError(`There is no data folder ${data}. Name it with --data or --config.`);
  const dryRun = input.flags?.has('dry-run') === true;
  const settings = ClusterOptions.parse(options);
  const { node = hostname } = settings;
  const log = pino({ level: 'silent' });
  const instance = await nodeIdOf(data);
  const { transferQueue } = await import('./node-services.js');
  const counts = await withProgress('Looking at the queue', (show) => {
    const progress = (done: number, total: number): void =>
      show(`${formatNumber(done)} of ${pluralize(total, 'entry', 'entries')} done`);
    return transferQueue({
      settings,
      log,
      node,
      instance,
      version,
      clock,
      data,
      direction,
      dryRun,
      loadMove,
      progress,
    });
  });
  const { moved, there, left } = counts;
  say(
    input,
    { direction, dryRun, ...counts },
    `${pluralize(moved, 'entry', 'entries')} ${dryRun ? 'would go' : 'went'} ${transferred[direction]}.`,
    ...(there > 0 ? [`${pluralize(there, 'entry was', 'entries were')} there from an earlier run.`] : []),
    ...left.map(({ uid, reason }) => `  ${uid}: ${reason}`),
  );
  if (left.length > 0 && !dryRun)
    throw startError(
      `${pluralize(left.length, 'entry stays', 'entries stay')} where ${left.length === 1 ? 'it was' : 'they were'}.`,
    );
}

async function move(input: Input, username: string, node: string): Promise<void> {
  const { owner, terminal } = input;
  databaseOf(input);
  const { movesInDatabase, movesOfServer, moveMailbox } = await import('./mailboxes/move-command.js');
  const waits = (line: string) => {
    if (input.flags?.has('json') !== true) terminal.print(printable(line));
  };
  const wish = { username, node, say: waits };
  const state =
    owner === undefined
      ? await connected(input, asServer(input), (ask) => moveMailbox(movesInDatabase(ask), wish))
      : await moveMailbox(movesOfServer(owner), wish);
  say(input, state, `${username} is on ${node}.`);
}
