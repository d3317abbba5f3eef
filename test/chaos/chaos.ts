import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism, loadavg } from 'node:os';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { withTimeout } from '../../core/concurrency.js';
import { migrate } from '../../plugins/cluster/database/schema.js';
import { atEnd, type Ending } from '../support/ending.js';
import { Postgres } from '../support/postgres.js';
import { untilTrue } from '../support/until.js';
import { Disturbances, seeded } from './disturbances.js';
import { NodeProcess } from './node-process.js';
import { isTakenAway, leaseChanges, open, putIn, tables } from './one-table.js';
import { type Arrival, judge, type Verdict } from './verdict.js';

export interface ChaosOptions {
  readonly messages: number;
  readonly events: number;
  readonly seed: number;
  readonly fence: 'both' | 'none';
  /** Of whole servers whole seconds, two at least. */
  readonly sessionMs: number;
  /** The first node stops itself once while it sends, until its lease is another's. */
  readonly stopBeforeDot?: boolean;
}

export interface ChaosResult extends Verdict {
  readonly events: ReadonlyMap<string, number>;
  readonly seconds: number;
  /** What nodes said that ended by themselves. */
  readonly faults: readonly string[];
}

export const database = 'chaos';
export const nodeNames = ['mx1', 'mx2', 'mx3'];
/** Of the node of one table. */
const connectionsPerNode = 8;
/** Without a new outcome for so long the rest is stuck. */
export const maxWaitMs = 60_000;

/** What is enough for a machine that does nothing else, and more for a busy one. */
export function defaultSessionMs(): number {
  const load = (loadavg()[0] ?? 0) / availableParallelism();
  return Math.round(1500 * Math.min(3, Math.max(1, load)));
}

export const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

interface SinkProcess {
  readonly port: number;
  /** Ends it, when it has taken what is under way; the columns of its lines. */
  end(): Promise<readonly (readonly string[])[]>;
}

/** @param module of the sink, beside this one */
export async function startSink(test: Ending, module: string, waitMs: number): Promise<SinkProcess> {
  const child = spawn(process.execPath, [here(module), `${waitMs}`], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  const exit = once(child, 'exit');
  atEnd(test, async () => {
    child.kill('SIGKILL');
    await exit;
  });
  if (child.stdout === null) throw new Error('the sink has no output');
  const lines = createInterface({ input: child.stdout });
  const [port] = (await once(lines, 'line')) as [string];
  const arrivals: (readonly string[])[] = [];
  lines.on('line', (line) => arrivals.push(line.split('\t')));
  return {
    port: Number(port),
    async end() {
      const closed = once(lines, 'close');
      child.disconnect();
      await closed;
      return arrivals;
    },
  };
}

/** Statements of the run itself: undisturbed, but for a database that is away. */
export class Observer {
  readonly #url: string;
  #client: pg.Client | undefined;

  constructor(url: string) {
    this.#url = url;
  }

  /** Repeats the work until the database has done it. */
  async do<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const until = performance.now() + maxWaitMs;
    for (;;) {
      try {
        return await work((this.#client ??= await this.#connect()));
      } catch (error) {
        await this.close();
        if (performance.now() > until) throw error;
        await pause(100);
      }
    }
  }

  async close(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    await client?.end().catch(() => undefined);
  }

  async #connect(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.#url, application_name: 'chaos' });
    client.on('error', () => undefined);
    await client.connect();
    return client;
  }
}

/** Waits until nothing is left, or nothing moves. */
export async function drain(left: () => number | Promise<number>, stuckMs = maxWaitMs): Promise<void> {
  let rest = await left();
  for (let movedAt = performance.now(); rest > 0 && performance.now() - movedAt < stuckMs;) {
    await pause(200);
    const now = await left();
    if (now < rest) movedAt = performance.now();
    rest = now;
  }
}

/** Three nodes, a sink, and what can happen to them. */
export async function runChaos(test: Ending, options: ChaosOptions): Promise<ChaosResult> {
  const { messages, events, seed, fence, sessionMs } = options;
  const started = performance.now();
  const postgres = await Postgres.start(test, { durable: true, tcp: true });
  const observer = new Observer(await postgres.database(database));
  atEnd(test, () => observer.close());
  await observer.do(migrate);
  await observer.do((client) => client.query(tables));
  const ids = Array.from({ length: messages }, (_, nth) => `${nth}@chaos.example`);
  for (let nth = 0; nth < messages; nth += 1000) {
    await observer.do((client) => putIn(client, ids.slice(nth, nth + 1000)));
  }
  // So slow that there is mail under way in all of the events.
  const atOnce = nodeNames.length * connectionsPerNode;
  const sink = await startSink(test, './sink.js', (Math.max(1, events) * sessionMs * atOnce) / messages / 2);
  const nodes: NodeProcess[] = [];
  for (const [nth, name] of nodeNames.entries()) {
    const stops = options.stopBeforeDot === true && nth === 0 ? { stopBeforeDot: 20 } : {};
    const given = { module: here('./one-table-node.js'), name, sinkPort: sink.port, sessionMs, fence, ...stops };
    nodes.push(await NodeProcess.start(test, postgres, database, given));
  }
  const random = seeded(seed);
  const disturbances = new Disturbances({ nodes, postgres, database, sessionMs, random });
  const [first] = nodes;
  if (options.stopBeforeDot === true && first !== undefined) {
    const id = await withTimeout(maxWaitMs, first.stopping, 'the node has not stopped itself');
    await untilTrue('the lease is lost', () => observer.do((client) => isTakenAway(client, id)), maxWaitMs);
    first.signal('SIGCONT');
  }
  for (let nth = 0; nth < events; nth += 1) {
    await pause(sessionMs * (2 / 3 + (random() * 2) / 3));
    await disturbances.next();
  }
  await disturbances.end();
  await drain(async () => (await observer.do(open)).size);
  const waiting = await observer.do(open);
  for (const node of nodes) {
    await node.kill();
  }
  const arrivals = (await sink.end()).map(([id = '', node = '', token = '', at = '']): Arrival => ({
    id,
    node,
    token,
    at: Number(at),
  }));
  const leases = await observer.do(leaseChanges);
  return {
    ...judge({ ids, waiting, arrivals, leases }),
    events: disturbances.counts,
    faults: nodes.flatMap((node) => node.faults),
    seconds: (performance.now() - started) / 1000,
  };
}
