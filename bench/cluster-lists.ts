import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { pino } from 'pino';
import { systemClock } from '../core/clock.js';
import type { Cluster, SharedDatabase, SqlRow, SqlTransaction } from '../core/contracts/cluster.js';
import type { EntryFilter } from '../core/contracts/relay-queue.js';
import { EntryStatistics } from '../plugins/client-queue/postgres/entry-statistics.js';
import { OutageLog } from '../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../plugins/client-queue/postgres/postgres-relay-queue.js';
import { ClusterNode } from '../plugins/cluster/node.js';
import { migrate } from '../plugins/cluster/database/schema.js';
import { seenAs } from '../test/plugins/cluster/cluster-fixture.js';
import { fillEntries } from '../test/plugins/client-queue/postgres/filled-tables.js';
import type { Ending } from '../test/support/ending.js';
import { Postgres } from '../test/support/postgres.js';
import { processorSeconds } from './processor-time.js';
import { median, printTable } from './table.js';

const database = 'template';
const rounds = 5;

/**
 * `npm run bench -- cluster-lists [--entries 1000000] [--explain WORD]`: what operators wait for when that many entries
 * are deferred in the database of a cluster: 20,000 destinations, 30 % of the entries in one. `--explain` prints how the
 * database answers the questions whose names have that word.
 */
export async function clusterLists(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: { entries: { type: 'string', default: '1000000' }, explain: { type: 'string' } },
  });
  const releases: (() => void | Promise<void>)[] = [];
  const ending: Ending = { after: (release) => void releases.push(release) };
  const entries = Number(values.entries);
  try {
    const settings = { shared_buffers: '512MB', max_wal_size: '4GB' };
    const server = await Postgres.start(ending, { settings, fill: (url) => fill(url, entries) });
    await ask(server, entries, values.explain);
  } finally {
    for (const release of releases.toReversed()) await release();
  }
}

async function fill(url: string, entries: number): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await migrate(client);
  const began = performance.now();
  await fillEntries(client, entries, systemClock.now());
  process.stdout.write(`${entries} entries in ${((performance.now() - began) / 1000).toFixed(0)} s\n\n`);
  await client.end();
}

type Question = readonly [what: string, aimMs: number | undefined, ask: () => Promise<unknown>];

function questions(queue: PostgresRelayQueue, statistics: EntryStatistics, now: () => number): readonly Question[] {
  const list = (filter: EntryFilter, more: object = {}) => queue.list({ limit: 50, filter, ...more });
  let cursor: string | null = null;
  let dueCursor: string | null = null;
  const byDue = { sort: 'nextAttempt', order: 'asc' } as const;
  const retried = { sender: 'batch@home.example' };
  return [
    ['first page, newest first', 50, () => list({})],
    ['next page by cursor', 50, async () => (cursor = (await list({}, cursor === null ? {} : { cursor })).nextCursor)],
    ['page 1,000', 50, () => list({}, { page: 1000 })],
    ['by next attempt', 50, () => list({}, byDue)],
    ['by next attempt, the last first', 50, () => list({}, { sort: 'nextAttempt', order: 'desc' })],
    [
      'next page by next attempt',
      50,
      async () =>
        (dueCursor = (await list({}, dueCursor === null ? byDue : { ...byDue, cursor: dueCursor })).nextCursor),
    ],
    ['list of a small destination', 50, () => list({ destination: 'd77.example' })],
    ['list of the large destination', 50, () => list({ destination: 'large.example' })],
    ['the same by next attempt', 50, () => list({ destination: 'large.example' }, byDue)],
    ['list of a sender', 50, () => list({ sender: 's4242@home254.example' })],
    ['list of the sender with one of a hundred', 50, () => list(retried)],
    ['list of a domain of senders', 50, () => list({ sender: '@home82.example' })],
    ['list of a recipient', 50, () => list({ recipient: 'u4242@large.example' })],
    ['list of a domain of recipients', 50, () => list({ domain: 'd77.example' })],
    ['list of a rare reason', 50, () => list({ reason: '451 4.7.1 rare' })],
    ['list of a frequent reason', 50, () => list({ reason: '451 4.7.1 greylisted, try again later' })],
    ['list of held entries', 50, () => list({ state: ['held'] })],
    ['list of entries with five attempts', 50, () => list({ minAttempts: 5 })],
    ['count of all', 500, () => queue.count({})],
    ['count of the large destination', 500, () => queue.count({ destination: 'large.example' })],
    ['count of one day', 500, () => queue.count({ youngerThan: 86_400 })],
    ['statistics, counted anew', 2000, () => statistics.of(now())],
    ['statistics of the pages', 50, () => queue.statistics(now())],
    ['statistics of a small destination', 50, () => queue.statistics(now(), { destination: 'd77.example' })],
    ['statistics of the large destination', 2000, () => queue.statistics(now(), { destination: 'large.example' })],
    ['oldest entry of the dashboard', 50, () => list({}, { limit: 1, sort: 'queuedAt', order: 'asc' })],
    ['queue page', 50, () => Promise.all([list({}), queue.statistics(now())])],
    ['scan of a node', undefined, () => queue.catchUp(true)],
    [
      'retry of those of a sender',
      2000,
      () => queue.mutate({ filter: retried }, { operation: 'retry', at: now() + 3_600_000 }, now()),
    ],
    ['a word', undefined, () => list({ q: 'Order 4242' })],
    ['a word of the half', undefined, () => list({ q: 'reason number' })],
  ];
}

async function ask(server: Postgres, entries: number, explained: string | undefined): Promise<void> {
  const log = pino({ level: 'warn' });
  const node = new ClusterNode({
    settings: {
      database: { hosts: [`${server.folder}:5432`], name: database, user: 'postgres', tls: 'off' },
      sessionSeconds: 30,
      commitTimeoutSeconds: 30,
    },
    node: 'bench',
    instance: 'bench',
    clock: systemClock,
    log,
    report: () => ({}),
  });
  await node.join();
  let explains = false;
  const cluster: Cluster = seenAs(node, { database: explaining(node.database, () => explains) });
  const queue = new PostgresRelayQueue({
    cluster,
    outages: await OutageLog.open(join(server.folder, 'outages'), { log }),
    log,
    bounds: { keepFinishedMs: 604_800_000, maxEntries: 2 * entries },
    maxWaitMs: 30_000,
    random: () => 0,
  });
  await queue.catchUp(true);
  await queue.housekeep(node.clock.now());
  const rows: string[][] = [];
  const delay = monitorEventLoopDelay({ resolution: 1 });
  for (const [what, aim, question] of questions(queue, new EntryStatistics(cluster), () => node.clock.now())) {
    explains = explained !== undefined && what.includes(explained);
    if (explained !== undefined && !explains) continue;
    const times: number[] = [];
    const before = [process.cpuUsage(), await databaseSeconds(server)] as const;
    delay.reset();
    delay.enable();
    let fault = '';
    for (let round = 0; round < rounds; round += 1) {
      const from = performance.now();
      await question().catch((error: unknown) => (fault = `: ${String(error)}`));
      times.push(performance.now() - from);
    }
    delay.disable();
    const ms = median(times);
    const own = process.cpuUsage(before[0]);
    const used = [((await databaseSeconds(server)) - before[1]) * 1000, (own.user + own.system) / 1000];
    const figures = [ms.toFixed(1), Math.min(...times).toFixed(1), ...used.map((one) => (one / rounds).toFixed(0))];
    rows.push([`${what}${fault}`, `${aim ?? ''}`, ...figures, (delay.max / 1e6).toFixed(0)]);
  }
  await queue.close();
  await node.leave();
  printTable(['', 'aim', 'ms', 'least', 'PostgreSQL', 'node', 'event loop'], rows);
}

/** Processor time of all processes of the server, those that have ended included. */
async function databaseSeconds(server: Postgres): Promise<number> {
  const [main = ''] = (await readFile(join(server.folder, 'data/postmaster.pid'), 'utf8')).split('\n');
  const ended = (await readFile(`/proc/${main}/stat`, 'latin1')).replace(/^.*\) /s, '').split(' ');
  const living = await server.psql('select pid from pg_stat_activity');
  const seconds = living.split('\n').map((pid) => processorSeconds(Number(pid)));
  return sum([...seconds.filter((one) => !Number.isNaN(one)), Number(ended[13]) / 100, Number(ended[14]) / 100]);
}

const sum = (values: readonly number[]): number => values.reduce((total, one) => total + one, 0);

/** Prints the plan of each statement before it is carried out. */
function explaining(real: SharedDatabase, isOn: () => boolean): SharedDatabase {
  const explain = async (sql: SqlTransaction, text: string, values: readonly unknown[]): Promise<void> => {
    if (!isOn() || !/^\s*(?:select|with)/.test(text)) return;
    const plan = await sql.query<SqlRow & { 'QUERY PLAN': string }>(`explain (analyze, buffers) ${text}`, values);
    process.stdout.write(`${text}\n${plan.map((row) => row['QUERY PLAN']).join('\n')}\n\n`);
  };
  return {
    query: async (purpose, text, values = []) => {
      await explain({ query: (...given) => real.query(purpose, ...given) }, text, values);
      return real.query(purpose, text, values);
    },
    transaction: (purpose, work) =>
      real.transaction(purpose, (sql) =>
        work({
          query: async (text, values = []) => {
            await explain(sql, text, values);
            return sql.query(text, values);
          },
        }),
      ),
  };
}
