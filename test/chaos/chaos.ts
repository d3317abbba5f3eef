import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { schemaVersions } from '../../plugins/cluster/schema.js';
import { atEnd, type Ending } from '../support/ending.js';
import { Postgres } from '../support/postgres.js';
import { Disturbances, seeded } from './disturbances.js';
import { NodeProcess } from './node-process.js';
import { isTakenAway, leaseChanges, open, putIn, tables } from './one-table.js';
import { type Arrival, judge, type Verdict } from './verdict.js';

export interface ChaosOptions {
  readonly messages: number;
  readonly events: number;
  readonly seed: number;
  readonly fence: 'both' | 'none';
  readonly sessionMs: number;
  /** The first node stops itself once in front of a dot, until the others have its lease. */
  readonly stopBeforeDot?: boolean;
  /** Told what happens. */
  readonly say?: (line: string) => void;
}

export interface ChaosResult extends Verdict {
  readonly events: ReadonlyMap<string, number>;
  readonly seconds: number;
}

const database = 'chaos';
const nodeNames = ['mx1', 'mx2', 'mx3'];
/** Without a new outcome for so long the rest is stuck. */
const patienceMs = 60_000;
const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

interface SinkProcess {
  readonly port: number;
  /** Ends it, when it has taken what is under way. */
  end(): Promise<readonly Arrival[]>;
}

async function startSink(test: Ending): Promise<SinkProcess> {
  const child = spawn(process.execPath, [here('./sink.js')], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
  const exit = once(child, 'exit');
  atEnd(test, async () => {
    child.kill('SIGKILL');
    await exit;
  });
  if (child.stdout === null) throw new Error('the sink has no output');
  const lines = createInterface({ input: child.stdout });
  const [port] = (await once(lines, 'line')) as [string];
  const arrivals: Arrival[] = [];
  lines.on('line', (line) => {
    const [id = '', node = '', token = '', at = ''] = line.split('\t');
    arrivals.push({ id, node, token, at: Number(at) });
  });
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
class Observer {
  readonly #url: string;
  #client: pg.Client | undefined;

  constructor(url: string) {
    this.#url = url;
  }

  /** Repeats the work until the database has done it. */
  async do<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const until = performance.now() + patienceMs;
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

/** Puts the messages in, spread over about the time of the events. */
async function feed(observer: Observer, ids: readonly string[], overMs: number): Promise<void> {
  const started = performance.now();
  for (let given = 0; given < ids.length;) {
    const due = Math.min(ids.length, Math.ceil(((performance.now() - started) / overMs + 0.02) * ids.length));
    const some = ids.slice(given, Math.min(due, given + 1000));
    if (some.length > 0) await observer.do((client) => putIn(client, some));
    given += some.length;
    await pause(50);
  }
}

/** Waits until nothing waits any more, or nothing moves. */
async function drain(observer: Observer): Promise<ReadonlySet<string>> {
  let rest = await observer.do(open);
  for (let movedAt = performance.now(); rest.size > 0 && performance.now() - movedAt < patienceMs;) {
    await pause(200);
    const now = await observer.do(open);
    if (now.size < rest.size) movedAt = performance.now();
    rest = now;
  }
  return rest;
}

/** Three nodes, a sink, and what can happen to them. */
export async function runChaos(test: Ending, options: ChaosOptions): Promise<ChaosResult> {
  const { messages, events, seed, fence, sessionMs, say = () => undefined } = options;
  const started = performance.now();
  const postgres = await Postgres.start(test, { durable: true, tcp: true });
  const observer = new Observer(await postgres.database(database));
  atEnd(test, () => observer.close());
  for (const script of [...schemaVersions.map(({ script }) => script), tables]) {
    await observer.do((client) => client.query(script));
  }
  const sink = await startSink(test);
  const nodes: NodeProcess[] = [];
  for (const [nth, name] of nodeNames.entries()) {
    const stops = options.stopBeforeDot === true && nth === 0 ? { stopBeforeDot: 20 } : {};
    const given = { module: here('./one-table-node.js'), name, sinkPort: sink.port, sessionMs, fence, ...stops };
    nodes.push(await NodeProcess.start(test, postgres, database, given));
  }
  const random = seeded(seed);
  const disturbances = new Disturbances({ nodes, postgres, database, sessionMs, random });
  /** One or two thirds to four thirds of a session. */
  const gapMs = (): number => sessionMs * (2 / 3 + (random() * 2) / 3);

  const ids = Array.from({ length: messages }, (_, nth) => `${nth}@chaos.example`);
  const feeding = feed(observer, ids, Math.max(1, events) * sessionMs);
  const [first] = nodes;
  if (options.stopBeforeDot === true && first !== undefined) {
    const id = await first.stopping;
    while (!(await observer.do((client) => isTakenAway(client, id)))) await pause(50);
    first.signal('SIGCONT');
  }
  for (let nth = 0; nth < events; nth += 1) {
    await pause(gapMs());
    await disturbances.next();
  }
  await disturbances.end();
  await feeding;
  const waiting = await drain(observer);
  for (const node of nodes) {
    await node.kill();
    for (const fault of node.faults) say(fault);
  }
  const arrivals = await sink.end();
  const leases = await observer.do(leaseChanges);
  return {
    ...judge({ ids, waiting, arrivals, leases }),
    events: disturbances.counts,
    seconds: (performance.now() - started) / 1000,
  };
}
