import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { pino } from 'pino';
import { systemClock } from '../core/clock.js';
import type { Lease } from '../core/contracts/relay-queue-store.js';
import { formatBytes } from '../core/text/format.js';
import { OutageLog } from '../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../plugins/client-queue/postgres/postgres-relay-queue.js';
import { ClusterNode } from '../plugins/cluster/node.js';
import { migrate } from '../plugins/cluster/database/schema.js';
import { newEntry, settlement } from '../test/kit/relay-queue/entries.js';
import { memoryMessage } from '../test/kit/relay-queue/harness.js';
import type { Ending } from '../test/support/ending.js';
import { Postgres } from '../test/support/postgres.js';
import { processorSeconds } from './processor-time.js';
import { median, printTable } from './table.js';

/** One second is a minute of the day: pauses of the ring, of retries and of housekeeping. Milliseconds. */
const ring = { openMs: 10_000, maxBytes: 2 ** 31, restMs: 5000, fewEntries: 33 };
const retryMs = 5000;
const housekeepingMs = 500;
/** Messages that may wait to be sent. */
const maxWaiting = 100;
const database = 'template';
const acceptors = 32;
const body = `Subject: of five kilobytes\r\n\r\n${`${'0123456789'.repeat(7)}\r\n`.repeat(70)}`;

/**
 * `npm run bench -- cluster-tables [--seconds 480] [--rate 200] [--hold]`: the tables of a cluster over a day, of which a
 * second is a minute. One message of 20 is deferred once, one of 200 for longer than the ring. `--hold` leaves a snapshot
 * open. Nothing is forced to the disk: sizes do not depend on it.
 */
export async function clusterTables(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seconds: { type: 'string', default: '480' },
      rate: { type: 'string', default: '200' },
      hold: { type: 'boolean', default: false },
    },
  });
  const releases: (() => void | Promise<void>)[] = [];
  const ending: Ending = { after: (release) => void releases.push(release) };
  try {
    const settings = { shared_buffers: '256MB', autovacuum_naptime: 10, max_wal_size: '4GB' };
    const server = await Postgres.start(ending, { settings, fill });
    const day = new Day(server, { seconds: Number(values.seconds), rate: Number(values.rate) });
    if (values.hold) await hold(server, ending);
    await day.run();
  } finally {
    for (const release of releases.toReversed()) await release();
  }
}

async function fill(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await migrate(client);
  await client.end();
}

/** As a report or a dump that somebody has forgotten. */
async function hold(server: Postgres, ending: Ending): Promise<void> {
  const client = new pg.Client(server.url(database));
  await client.connect();
  ending.after(() => client.end());
  await client.query('begin isolation level repeatable read');
  await client.query('select 1');
}

interface Load {
  readonly seconds: number;
  /** Messages a second. */
  readonly rate: number;
}

interface Claim {
  readonly at: number;
  readonly ms: number;
  readonly leases: number;
}

class Day {
  readonly #server: Postgres;
  readonly #load: Load;
  readonly #claims: Claim[] = [];
  readonly #looks: (Look & { readonly at: number })[] = [];
  #accepted = 0;
  #done = 0;
  #deferred = 0;

  constructor(server: Postgres, load: Load) {
    this.#server = server;
    this.#load = load;
  }

  async run(): Promise<void> {
    const node = new ClusterNode({
      settings: {
        database: { hosts: [`${this.#server.folder}:5432`], name: database, user: 'postgres', tls: 'off' },
        sessionSeconds: 30,
        commitTimeoutSeconds: 30,
      },
      node: 'bench',
      instance: 'bench',
      clock: systemClock,
      log: pino({ level: 'warn' }),
      report: () => ({}),
    });
    await node.join();
    const queue = new PostgresRelayQueue({
      cluster: node,
      outages: await OutageLog.open(join(this.#server.folder, 'outages'), { log: pino({ level: 'warn' }) }),
      log: pino({ level: 'warn' }),
      bounds: { keepFinishedMs: 604_800_000, maxEntries: 1_000_000 },
      maxWaitMs: 30_000,
      random: () => 0,
      ring,
    });
    const begun = performance.now();
    const isOver = (): boolean => this.#elapsed(begun) >= this.#load.seconds;
    const every = async (ms: number, work: () => Promise<unknown>): Promise<void> => {
      for (; !isOver(); await pause(ms)) await work();
    };
    await Promise.all([
      every(housekeepingMs, () => queue.housekeep(node.clock.now())),
      every(2000, async () => this.#looks.push({ at: this.#elapsed(begun), ...(await look(this.#server)) })),
      every(0, () => this.#send(queue, { now: node.clock.now(), begun })),
      ...Array.from({ length: acceptors }, () => every(0, () => this.#accept(queue, begun))),
    ]);
    await queue.close();
    await node.leave();
    this.#print();
  }

  #elapsed(begun: number): number {
    return (performance.now() - begun) / 1000;
  }

  async #accept(queue: PostgresRelayQueue, begun: number): Promise<void> {
    if (this.#accepted >= this.#elapsed(begun) * this.#load.rate || this.#accepted - this.#done > maxWaiting) {
      await pause(10);
      return;
    }
    const nth = (this.#accepted += 1);
    const prepared = await queue.prepare(newEntry(systemClock.now(), { to: [`a@d${nth % 500}.example`] }), message);
    await prepared.commit();
    prepared.release();
  }

  async #send(queue: PostgresRelayQueue, { now, begun }: { now: number; begun: number }): Promise<void> {
    await queue.catchUp();
    const asked = performance.now();
    const leases = await queue.claim({ now, limit: 100, leaseMs: 600_000, room: () => 10 });
    if (leases.length === 0) await pause(10);
    else this.#claims.push({ at: this.#elapsed(begun), ms: performance.now() - asked, leases: leases.length });
    await Promise.all(
      leases.map(async (lease) => {
        await queue.bytes(lease.uid);
        await queue.settle(lease, this.#outcome(lease, now));
      }),
    );
  }

  #outcome(lease: Lease, now: number): ReturnType<typeof settlement> {
    const isNew = lease.recipients[0]?.attempts === 0;
    const nth = (this.#deferred += isNew ? 1 : 0);
    // It is tried again after the run.
    const waits = isNew && nth % 200 === 0;
    if (!isNew || nth % 20 !== 0 || waits) this.#done += 1;
    if (waits) return settlement(lease, 'deferred', { at: now, nextAttempt: now + 86_400_000 });
    if (isNew && nth % 20 === 0) return settlement(lease, 'deferred', { at: now, nextAttempt: now + retryMs });
    return settlement(lease, 'delivered', { at: now });
  }

  #print(): void {
    const { seconds } = this.#load;
    const claimsOf = (from: number, to: number): string => {
      const isIn = ({ at }: { readonly at: number }): boolean => at >= from * seconds && at < to * seconds;
      const those = this.#claims.filter(isIn);
      const looks = this.#looks.filter((one) => isIn(one) && !Number.isNaN(one.claimSeconds));
      const used = (looks.at(-1)?.claimSeconds ?? 0) - (looks[0]?.claimSeconds ?? 0);
      const leases = those
        .filter(({ at }) => at >= (looks[0]?.at ?? 0) && at < (looks.at(-1)?.at ?? 0))
        .reduce((sum, one) => sum + one.leases, 0);
      return `${((used / leases) * 1e6).toFixed(0)} µs; ${median(those.map(({ ms }) => ms)).toFixed(0)} ms`;
    };
    const later = this.#looks.slice(Math.floor(this.#looks.length / 10));
    const most = (of: (one: Look) => number): number => Math.max(...later.map(of));
    const last = this.#looks.at(-1);
    process.stdout.write(`${this.#done} messages, ${Math.round(this.#done / seconds)} a second\n\n`);
    printTable(
      ['', 'measured'],
      [
        [
          'tables of the ring with bodies, at most; median',
          `${most((one) => one.ring)}; ${median(later.map((one) => one.ring))}`,
        ],
        ['bytes in the ring, at most', formatBytes(most((one) => one.ringBytes))],
        ...['body_old', 'recipient', 'entry'].flatMap((name) => [
          [`${name}, at most`, formatBytes(most((one) => one.bytes.get(name) ?? 0))],
          [`${name}, dead rows at the end`, `${last?.dead.get(name) ?? 0}`],
        ]),
        ['processor time of PostgreSQL for a claimed message; median of a claim: first fifth', claimsOf(0, 0.2)],
        ['middle', claimsOf(0.4, 0.6)],
        ['last fifth', claimsOf(0.8, 1)],
      ],
    );
  }
}

const message = memoryMessage(body);

interface Look {
  /** Tables of the ring that are not empty. */
  readonly ring: number;
  readonly ringBytes: number;
  readonly bytes: ReadonlyMap<string, number>;
  readonly dead: ReadonlyMap<string, number>;
  /** Processor time of the connection that claims. */
  readonly claimSeconds: number;
}

async function look(server: Postgres): Promise<Look> {
  const text = await server.psql(
    `select relname, pg_relation_size(relid), pg_total_relation_size(relid), n_dead_tup from pg_stat_user_tables
     where schemaname = 'postern'`,
    database,
  );
  const rows = text.split('\n').map((line) => {
    const [name = '', heap, bytes, dead] = line.split('|');
    return { name, heap: Number(heap), bytes: Number(bytes), dead: Number(dead) };
  });
  const pid = await server.psql("select pid from pg_stat_activity where application_name = 'postern/bench/claim'");
  const used = rows.filter(({ name, heap }) => /^body_\d$/.test(name) && heap > 0);
  return {
    ring: used.length,
    ringBytes: used.reduce((sum, { bytes }) => sum + bytes, 0),
    bytes: new Map(rows.map(({ name, bytes }) => [name, bytes])),
    dead: new Map(rows.map(({ name, dead }) => [name, dead])),
    claimSeconds: processorSeconds(Number(pid)),
  };
}
