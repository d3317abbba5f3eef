import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { pino } from 'pino';
import { systemClock } from '../core/clock.js';
import type { Cluster, SharedDatabase, SqlRow, SqlTransaction } from '../core/contracts/cluster.js';
import type { EntryFilter } from '../core/contracts/relay-queue.js';
import { envelopeText } from '../plugins/client-queue/postgres/entry-rows.js';
import { OutageLog } from '../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../plugins/client-queue/postgres/postgres-relay-queue.js';
import { ClusterNode } from '../plugins/cluster/node.js';
import { migrate } from '../plugins/cluster/schema.js';
import { seenAs } from '../test/plugins/cluster/cluster-fixture.js';
import { newEntry } from '../test/kit/relay-queue/entries.js';
import type { Ending } from '../test/support/ending.js';
import { Postgres } from '../test/support/postgres.js';
import { median, printTable } from './table.js';

const database = 'template';
const rounds = 5;
const insertedTogether = 50_000;

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

/** Every hundredth message is of one sender, every twentieth has a second recipient, every ten thousandth is held. */
export async function fill(url: string, entries: number): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await migrate(client);
  const began = performance.now();
  const now = systemClock.now();
  const { rest } = JSON.parse(envelopeText(newEntry(now))) as { readonly rest: string };
  const replied = { code: 451, status: '4.7.1', text: 'greylisted, try again later', host: 'mx.one.example', at: now };
  const attempt = {
    at: now,
    ms: 150,
    destination: 'one.example',
    host: 'mx.one.example[192.0.2.1]:25',
    tls: 'TLSv1.3',
    recipients: ['rcpt@one.example'],
    outcome: 'deferred',
    reply: replied,
  };
  const history = JSON.stringify([attempt, attempt, attempt]);
  for (let from = 0; from < entries; from += insertedTogether) {
    const to = Math.min(entries, from + insertedTogether) - 1;
    await client.query(filling, [from, to, now, entries, rest, history]);
  }
  await client.query('vacuum analyze');
  process.stdout.write(`${entries} entries in ${((performance.now() - began) / 1000).toFixed(0)} s\n\n`);
  await client.end();
}

const filling = `
  with made as materialized (
    select n, lpad(n::text, 10, '0') || substr(md5(n::text), 1, 10) as uid,
      case when n % 100 = 0 then 'batch@home.example'
        else 's' || n % 49999 || '@home' || n % 49999 % 997 || '.example' end as sender,
      case when n % 10 < 3 then 'large.example' else 'd' || (n::bigint * 7919) % 19999 || '.example' end as destination,
      $3::bigint - ((($4::bigint - n) * 432000000) / $4::bigint) as queued_at,
      $3::bigint + (hashint4(n) & 16383) * 1000 as due,
      case when n % 10 < 3 then 'greylisted, try again later' when n % 50000 = 49999 then 'rare'
        else 'reason number ' || n % 37 end as reply
    from generate_series($1::int, $2::int) n),
  entries as (
    insert into postern.entry (uid, birth, sender, subject, message_id, size, queued_at, expires_at, warn_at,
      last_attempt, ages_at, history, envelope, body, hold)
    select uid, uid, sender, 'Order ' || n || ' of your shop', '<' || uid || '@home.example>', 5000 + n % 1000, queued_at,
      queued_at + 864000000, null, queued_at + 60000, queued_at + 864000000, $6,
      json_build_object('sender', sender,
        'addresses', json_build_array(json_build_array('u' || n || '@' || destination, destination)), 'rest', $5::text),
      uid, case when n % 10000 = 9999 then 'wait' end
    from made)
  insert into postern.recipient (uid, idx, queued_at, address, destination, state, lane, turn, due, attempts, code, status, reply,
    host, replied_at, reason)
  select uid, idx, queued_at, 'u' || n || '@' || place, place, case when n % 10000 = 9999 then 3 else 1 end, 1, due, due, 3, 451,
    '4.7.1', reply, 'mx.' || place, queued_at + 60000, '451 4.7.1 ' || reply
  from made, lateral (select 0 as idx, destination as place
    union all select 1, 'd' || n % 19999 || '.example' where n % 20 = 7) r`;

type Question = readonly [what: string, aimMs: number | undefined, ask: () => Promise<unknown>];

function questions(queue: PostgresRelayQueue, now: () => number): readonly Question[] {
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
    ['statistics, counted anew', 2000, () => queue.housekeep(now())],
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

export async function ask(server: Postgres, entries: number, explained: string | undefined): Promise<void> {
  const log = pino({ level: 'warn' });
  const node = new ClusterNode({
    settings: {
      database: { hosts: [`${server.folder}:5432`], name: database, user: 'postgres', tls: 'off' },
      sessionSeconds: 30,
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
  const rows: string[][] = [];
  const delay = monitorEventLoopDelay({ resolution: 1 });
  for (const [what, aim, question] of questions(queue, () => node.clock.now())) {
    explains = explained !== undefined && what.includes(explained);
    if (explained !== undefined && !explains) continue;
    const times: number[] = [];
    delay.reset();
    delay.enable();
    let fault = '';
    for (let round = 0; round < rounds; round += 1) {
      const from = performance.now();
      await question().catch((error: unknown) => (fault = String(error)));
      times.push(performance.now() - from);
    }
    delay.disable();
    const ms = median(times);
    const least = Math.min(...times);
    rows.push([what, ms.toFixed(1), least.toFixed(1), `${aim ?? ''}`, (delay.max / 1e6).toFixed(0), fault]);
  }
  await queue.close();
  await node.leave();
  printTable(['', 'ms', 'least', 'aim', 'event loop', ''], rows);
}

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
