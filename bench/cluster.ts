import { execFile } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import pg from 'pg';
import { pino } from 'pino';
import { systemClock } from '../core/clock.js';
import { OutageLog } from '../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../plugins/client-queue/postgres/postgres-relay-queue.js';
import { newEntry, settlement } from '../test/kit/relay-queue/entries.js';
import { memoryMessage } from '../test/kit/relay-queue/harness.js';
import { fillTables, nodeOf } from '../test/plugins/cluster/cluster-fixture.js';
import type { Ending } from '../test/support/ending.js';
import { findPeer } from '../test/support/peers.js';
import { Postgres } from '../test/support/postgres.js';
import { type Course, database, type Row, Sites } from './cluster-sites.js';
import { median, printTable } from './table.js';

const run = promisify(execFile);

const options = {
  quick: { type: 'boolean', default: false },
  only: { type: 'string', default: '' },
} as const;

const body = `Subject: of five kilobytes\r\n\r\n${`${'0123456789'.repeat(7)}\r\n`.repeat(70)}`;
const message = memoryMessage(body);
/** Messages that wait to be committed. */
const waiting = 64;
/** Messages of a claim. */
const together = 50;

const rows = {
  store: storeRow,
  claim: claimRows,
  smtp: (_: Course, sites: () => Promise<Sites>) => sites().then((all) => all.againstFiles()),
  nodes: (_: Course, sites: () => Promise<Sites>) => sites().then((all) => all.threeNodes()),
  fence: (_: Course, sites: () => Promise<Sites>) => sites().then((all) => all.fence()),
  latency: (_: Course, sites: () => Promise<Sites>) => sites().then((all) => all.latency()),
} satisfies Readonly<Record<string, (course: Course, sites: () => Promise<Sites>) => Promise<readonly Row[]>>>;

/**
 * `npm run bench -- cluster [--quick] [--only ROW]`: the speed of the queue in PostgreSQL against its aims, as ratios to peers
 * on the same machine; `ROW` is store, claim, smtp, nodes, fence or latency.
 */
export async function cluster(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const releases: (() => void | Promise<void>)[] = [() => rmSync(folder, { recursive: true, force: true })];
  const ending: Ending = { after: (release) => void releases.push(release) };
  try {
    const settings = { shared_buffers: '256MB', max_wal_size: '4GB', max_connections: 100 };
    const postgres = await Postgres.start(ending, { settings, fill: fillTables, durable: true });
    const size = values.quick
      ? { rounds: 3, messages: 2000, inFront: 100_000 }
      : { rounds: 5, messages: 5000, inFront: 300_000 };
    const course: Course = { postgres, folder, ending, ...size };
    let sites: Promise<Sites> | undefined;
    const found: Row[] = [];
    for (const [name, measure] of Object.entries(rows)) {
      if (values.only !== '' && values.only !== name) continue;
      for (const row of await measure(course, () => (sites ??= Sites.start(course)))) {
        found.push(row);
        process.stderr.write(`${name}: ${row.measure}: ${row.measured} (${row.figures})\n`);
      }
    }
    process.stdout.write(`5 KB, medians of ${size.rounds} rounds of ${size.messages} messages in turns.\n`);
    printTable(
      ['measure', 'aim', 'measured', 'figures'],
      found.map(({ measure, aim, measured, figures }) => [measure, aim, measured, figures]),
    );
  } finally {
    for (const release of releases.toReversed()) await release();
  }
}

interface Opened {
  readonly queue: PostgresRelayQueue;
  readonly close: () => Promise<void>;
}

async function openQueue({ postgres, folder }: Course, node: string): Promise<Opened> {
  const log = pino({ level: 'silent' });
  const cluster = nodeOf(postgres, { node, sessionMs: 30_000 });
  await cluster.join();
  const queue = new PostgresRelayQueue({
    cluster,
    log,
    outages: await OutageLog.open(join(folder, `outages-${node}`), { log }),
    bounds: { keepFinishedMs: 604_800_000, maxEntries: 1_000_000 },
    maxWaitMs: 30_000,
    random: () => 0,
  });
  const close = async (): Promise<void> => {
    await queue.close();
    await cluster.leave();
  };
  return { queue, close };
}

async function accept(queue: PostgresRelayQueue, count: number): Promise<void> {
  let left = count;
  const one = async (): Promise<void> => {
    while ((left -= 1) >= 0) {
      const to = [`a@d${left % 100}.example`];
      const prepared = await queue.prepare(newEntry(systemClock.now(), { to }), message);
      await prepared.commit();
      prepared.release();
    }
  };
  await Promise.all(Array.from({ length: waiting }, one));
  await queue.offer();
}

/** Claims, reads and settles until nothing is left; how many. */
async function drain(queues: readonly PostgresRelayQueue[], count: number): Promise<void> {
  let left = count;
  const one = async (queue: PostgresRelayQueue): Promise<void> => {
    while (left > 0) {
      const now = systemClock.now();
      const room = (destination: string): number => (destination.startsWith('blocked') ? 0 : 100);
      const leases = await queue.claim({ now, limit: together, leaseMs: 600_000, room });
      left -= leases.length;
      if (leases.length === 0) await queue.catchUp(true);
      await Promise.all(
        leases.map(async (lease) => {
          await queue.bytes(lease.uid);
          await queue.settle(lease, settlement(lease, 'delivered', { at: now }));
        }),
      );
    }
  };
  await Promise.all(queues.map(one));
}

const rateOf = async (count: number, work: () => Promise<unknown>): Promise<number> => {
  const began = performance.now();
  await work();
  return (count / (performance.now() - began)) * 1000;
};

const rates = (all: readonly number[]): string => `${median(all).toFixed(0)}/s`;

async function storeRow(course: Course): Promise<readonly Row[]> {
  const { postgres, folder, rounds, messages } = course;
  await postgres.psql(
    `create table raw (id uuid primary key, data bytea); alter table raw alter data set storage external;
     create table raw_body as select convert_to(repeat('0123456789', 500), 'UTF8') as data`,
    database,
  );
  const script = join(folder, 'raw.sql');
  writeFileSync(script, 'insert into raw select gen_random_uuid(), data from generate_series(1, 50), raw_body;\n');
  const where = ['-h', postgres.folder, '-p', '5432', '-U', 'postgres', database];
  const batches = Math.ceil(messages / 200);
  const raw = (): Promise<unknown> =>
    run(join(dirname(realpathSync(findPeer('postgres') ?? '')), 'pgbench'), [
      '-n',
      '-c',
      '4',
      '-j',
      '1',
      '-t',
      `${batches}`,
      '-f',
      script,
      ...where,
    ]);
  const { queue, close } = await openQueue(course, 'store');
  const [ours, theirs]: [number[], number[]] = [[], []];
  for (let round = 0; round <= rounds; round += 1) {
    const theirRate = await rateOf(batches * 200, raw);
    const ourRate = await rateOf(messages, () => accept(queue, messages));
    if (round === 0) continue;
    ours.push(ourRate);
    theirs.push(theirRate);
  }
  await drain([queue], (rounds + 1) * messages);
  await close();
  return [
    {
      measure: 'the store alone, 64 waiting, of raw INSERT with 50 rows a transaction',
      aim: '0.5',
      measured: (median(ours) / median(theirs)).toFixed(2),
      figures: `${rates(ours)}; raw ${rates(theirs)}, without the way of the body to the database`,
    },
  ];
}

/** A queue of one table, as it is usually made. */
class NaiveQueue {
  readonly #clients: pg.Client[] = [];

  static async open({ postgres }: Course): Promise<NaiveQueue> {
    await postgres.psql(
      `create table if not exists naive (id bigserial primary key, destination text not null, data bytea not null);
       alter table naive alter data set storage external`,
      database,
    );
    const naive = new NaiveQueue();
    for (let nth = 0; nth < 3; nth += 1) {
      const client = new pg.Client(postgres.url(database));
      await client.connect();
      naive.#clients.push(client);
    }
    return naive;
  }

  async accept(count: number, destination = 'd.example'): Promise<void> {
    const text = 'insert into naive (destination, data) select $2, $3 from generate_series(1, $1)';
    await this.#clients[0]?.query(text, [count, destination, destination === 'd.example' ? Buffer.from(body) : '']);
  }

  async drain(workers: number, count: number): Promise<void> {
    let left = count;
    const one = async (client: pg.Client): Promise<void> => {
      while (left > 0) {
        await client.query('begin');
        const { rows: found } = await client.query<{ id: string }>(
          `select id, destination, data from naive where destination <> all($1) order by id limit $2
           for update skip locked`,
          [['blocked.example'], together],
        );
        await client.query('delete from naive where id = any($1)', [found.map(({ id }) => id)]);
        await client.query('commit');
        left -= found.length;
      }
    };
    await Promise.all(this.#clients.slice(0, workers).map(one));
  }

  async close(): Promise<void> {
    for (const client of this.#clients) await client.end();
  }
}

async function claimRows(course: Course): Promise<readonly Row[]> {
  const { postgres, rounds, messages, inFront } = course;
  const opened = [await openQueue(course, 'a'), await openQueue(course, 'b'), await openQueue(course, 'c')];
  const queues = opened.map(({ queue }) => queue);
  const naive = await NaiveQueue.open(course);
  const compare = async (measure: string, aim: string, workers: number): Promise<Row> => {
    const [ours, theirs]: [number[], number[]] = [[], []];
    for (let round = 0; round <= rounds; round += 1) {
      await naive.accept(messages);
      theirs.push(await rateOf(messages, () => naive.drain(workers, messages)));
      if (queues[0] !== undefined) await accept(queues[0], messages);
      for (const queue of queues) await queue.catchUp(true);
      ours.push(await rateOf(messages, () => drain(queues.slice(0, workers), messages)));
    }
    const [our, their] = [ours.slice(1), theirs.slice(1)];
    const figures = `${rates(our)}; naive ${rates(their)}`;
    return { measure, aim, measured: (median(our) / median(their)).toFixed(2), figures };
  };
  const found: Row[] = [];
  for (const workers of [1, 2, 3]) {
    const title = `claim, read and settle, ${workers} of them in one process, of a naive SKIP LOCKED queue`;
    found.push(await compare(title, '0.3', workers));
  }
  const holder = new pg.Client(postgres.url(database));
  await holder.connect();
  await holder.query('begin isolation level repeatable read; select 1');
  // What is dead from now on stays.
  await naive.accept(inFront, 'dead.example');
  await postgres.psql('delete from naive', database);
  await fill(postgres, inFront, "'d' || n % 100 || '.example'");
  await postgres.psql('delete from postern.recipient where turn < 1000000', database);
  found.push(await compare(`the same, 1, with ${inFront} dead rows that a snapshot holds`, '> 5', 1));
  await holder.end();
  await postgres.psql('vacuum naive', database);
  await postgres.psql('vacuum postern.recipient', database);
  await naive.accept(inFront, 'blocked.example');
  await fill(postgres, inFront, "'blocked.example'");
  found.push(await compare(`the same, 1, behind ${inFront} of a destination that gets nothing`, '> 5', 1));
  await postgres.psql('delete from postern.recipient where turn < 1000000', database);
  await naive.close();
  for (const { close } of opened) await close();
  return found;
}

/** New mail that is due before all other. */
async function fill(postgres: Postgres, count: number, destination: string): Promise<void> {
  await postgres.psql(
    `insert into postern.recipient (uid, idx, address, destination, state, lane, turn, due, queued_at)
     select 'front' || n, 0, 'a@front.example', ${destination}, 2, 0, n, 0, 0 from generate_series(1, ${count}) n`,
    database,
  );
}
