import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Ending } from '../test/support/ending.js';
import type { Postgres } from '../test/support/postgres.js';
import { SmtpSink } from '../test/support/smtp-sink.js';
import { familySeconds } from './family-time.js';
import { stopChild } from './peer.js';
import { processorSeconds } from './processor-time.js';
import { arrived, type RelaySink, startRelaySink } from './relay-sink.js';
import { chooseSender, type Sender } from './sender.js';
import { messageOf, Session } from './senders.js';
import { authorization } from './site.js';
import { median } from './table.js';

/** A line of the table. */
export interface Row {
  readonly measure: string;
  readonly aim: string;
  readonly measured: string;
  readonly figures: string;
}

export interface Course {
  readonly postgres: Postgres;
  readonly folder: string;
  readonly rounds: number;
  /** Messages of a round. */
  readonly messages: number;
  /** Dead or due messages that claims must not look at one by one. */
  readonly inFront: number;
  readonly ending: Ending;
}

export const database = 'template';
const sessions = 50;
const bytes = 5000;
const sessionSeconds = 10;
/** Until each node has read that it is to drain, or not: it beats six times in a session. */
const beatMs = (sessionSeconds * 1000) / 6 + 500;
/** What is done behind the last message belongs to it. */
const afterwardsMs = 500;

/** A server as a child. */
interface Server {
  readonly name: string;
  readonly child: ChildProcess;
  readonly http: number;
  readonly smtp: number;
}

/** Per second, and µs of processor for a message. */
interface Phase {
  readonly rate: number;
  readonly node: number;
  readonly postgres: number;
}

interface Round {
  readonly accept: Phase;
  readonly drain: Phase;
}

const of = (all: readonly Round[], phase: keyof Round, figure: keyof Phase): number =>
  median(all.map((one) => one[phase][figure]));
const both = (all: readonly Round[], figure: 'node' | 'postgres'): number =>
  median(all.map(({ accept, drain }) => accept[figure] + drain[figure]));
const figuresOf = (title: string, all: readonly Round[], phase: keyof Round): string =>
  `${title} ${of(all, phase, 'rate').toFixed(0)}/s, node ${of(all, phase, 'node').toFixed(0)} µs, PostgreSQL ${of(all, phase, 'postgres').toFixed(0)} µs`;

/** Whole servers: what goes through SMTP. */
export class Sites {
  readonly #course: Course;
  readonly #sink: RelaySink;
  readonly #own: SmtpSink;
  readonly #sender: Sender;
  readonly #postmaster: number;
  readonly #servers: Server[] = [];

  private constructor(course: Course, sink: RelaySink, own: SmtpSink, sender: Sender) {
    this.#course = course;
    this.#sink = sink;
    this.#own = own;
    this.#sender = sender;
    const file = join(course.postgres.folder, 'data', 'postmaster.pid');
    this.#postmaster = Number(readFileSync(file, 'latin1').split('\n')[0]);
  }

  static async start(course: Course): Promise<Sites> {
    const own = await SmtpSink.start(course.ending, { forgetText: true });
    const sites = new Sites(course, await startRelaySink(), own, await chooseSender());
    course.ending.after(() => sites.#sink.stop());
    course.ending.after(() => sites.#stop(sites.#servers));
    return sites;
  }

  async #start(name: string, kind: 'files' | 'cluster', fence = 'fenced'): Promise<Server> {
    const folder = join(this.#course.folder, name);
    mkdirSync(folder, { mode: 0o700 });
    const route = { mx: ['127.0.0.1'], tls: 'never' };
    const hosts = [this.#course.postgres.folder];
    const cluster = { node: name, database: { hosts, name: database, user: 'postgres', tls: 'off' }, sessionSeconds };
    const routes = {
      sink: { ...route, port: this.#sink.port },
      own: { ...route, port: this.#own.port, domains: ['own.example'] },
    };
    writeFileSync(
      join(folder, 'postern.json5'),
      JSON.stringify({
        hostname: `${name}.example`,
        domains: ['bench.example'],
        http: { port: 0 },
        smtp: { listeners: [{ mode: 'mx', port: 0 }], relayNetworks: ['127.0.0.0/8'] },
        plugins: {
          'client-queue': { routes, defaultRoute: 'sink' },
          ...(kind === 'cluster' && { cluster }),
        },
      }),
    );
    const script = fileURLToPath(new URL('./cluster-site.js', import.meta.url));
    const profile = process.env['BENCH_PROFILE'] === name ? ['--cpu-prof', `--cpu-prof-dir=${process.cwd()}`] : [];
    const child = fork(script, [folder, fence], { execArgv: profile, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const [ports] = (await once(child, 'message')) as [{ readonly http: number; readonly smtp: number }];
    const server = { name, child, ...ports };
    this.#servers.push(server);
    return server;
  }

  async #stop(servers: readonly Server[]): Promise<void> {
    for (const { child } of servers) await stopChild(child);
  }

  /** Only these nodes of the cluster send. */
  async #let(servers: readonly Server[]): Promise<void> {
    const names = servers.map(({ name }) => `'${name}'`).join(', ');
    await this.#course.postgres.psql(`update postern.session set draining = node not in (${names})`, database);
    await pause(beatMs);
  }

  /** Mail is accepted, and not sent; then it is sent by some servers. */
  async #round(at: Server, senders: readonly Server[], messages: number): Promise<Round> {
    const path = `http://127.0.0.1:${at.http}/client/destinations/${encodeURIComponent('route:sink')}`;
    const headers = { authorization, accept: 'application/json', 'content-type': 'application/json' };
    const ask = async (method: string, body?: string): Promise<void> => {
      const answer = await fetch(path, { method, headers, ...(body !== undefined && { body }) });
      if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    };
    const expected = this.#sink.count() + messages;
    await ask('PUT', JSON.stringify({ suspendFor: 3600 }));
    // The other nodes learn of it.
    await pause(1000);
    const accept = await this.#phase([at], messages, () =>
      this.#sender.send({ port: at.smtp, messages, bytes, sessions, keep: true }),
    );
    const drain = await this.#phase(senders, messages, async () => {
      await ask('DELETE');
      await arrived(this.#sink, expected, new AbortController().signal);
    });
    return { accept, drain };
  }

  async #phase(servers: readonly Server[], messages: number, work: () => Promise<void>): Promise<Phase> {
    const nodes = (): number => servers.reduce((sum, { child }) => sum + processorSeconds(child.pid ?? 0), 0);
    const [node, postgres, began] = [nodes(), familySeconds(this.#postmaster), performance.now()];
    await work();
    const rate = (messages / (performance.now() - began)) * 1000;
    await pause(afterwardsMs);
    const micros = (seconds: number): number => (seconds / messages) * 1e6;
    return { rate, node: micros(nodes() - node), postgres: micros(familySeconds(this.#postmaster) - postgres) };
  }

  /** In turns; a round of fewer messages to get warm. */
  async #compete(contestants: readonly (readonly [at: Server, senders: readonly Server[]])[]): Promise<Round[][]> {
    const { messages, rounds } = this.#course;
    const all = contestants.map((): Round[] => []);
    for (let round = 0; round <= rounds; round += 1) {
      const order = [...contestants.entries()];
      for (const [nth, [at, senders]] of round % 2 === 0 ? order : order.toReversed()) {
        if (contestants.length > 1) await this.#let(senders);
        const found = await this.#round(at, senders, round === 0 ? messages / 2 : messages);
        if (round > 0) all[nth]?.push(found);
      }
    }
    return all;
  }

  /** Against the queue in files. */
  async againstFiles(): Promise<readonly Row[]> {
    const [files, node] = [await this.#start('files', 'files'), await this.#node('mx1')];
    const [file = [], cluster = []] = await this.#compete([
      [files, [files]],
      [node, [node]],
    ]);
    const ratio = (phase: keyof Round): string => (of(cluster, phase, 'rate') / of(file, phase, 'rate')).toFixed(2);
    node.child.send('loop');
    const [loop] = (await once(node.child, 'message')) as [{ readonly maxMs: number }];
    const rows = (['accept', 'drain'] as const).map((phase) => ({
      measure:
        phase === 'accept' ? 'accepting over SMTP, 50 sessions, of the queue in files' : 'draining, 1 node, of it',
      aim: '0.6',
      measured: ratio(phase),
      figures: `${figuresOf('cluster', cluster, phase)}; ${figuresOf('files', file, phase)}`,
    }));
    await this.#stop([files]);
    return [
      ...rows,
      {
        measure: 'processor time of a node for a message, of it',
        aim: '≤ 1.2',
        measured: (both(cluster, 'node') / both(file, 'node')).toFixed(2),
        figures: `${both(cluster, 'node').toFixed(0)} and ${both(file, 'node').toFixed(0)} µs`,
      },
      {
        measure: 'PostgreSQL for a message, accepted and delivered',
        aim: '≤ 250 µs',
        measured: `${both(cluster, 'postgres').toFixed(0)} µs`,
        figures: `accepting ${of(cluster, 'accept', 'postgres').toFixed(0)}, draining ${of(cluster, 'drain', 'postgres').toFixed(0)}`,
      },
      {
        measure: 'longest hold-up of the event loop in it',
        aim: '≤ 50 ms',
        measured: `${loop.maxMs.toFixed(0)} ms`,
        figures: '',
      },
    ];
  }

  #node(name: string, fence?: string): Promise<Server> | Server {
    return this.#servers.find((one) => one.name === name) ?? this.#start(name, 'cluster', fence);
  }

  async threeNodes(): Promise<readonly Row[]> {
    const all = [await this.#node('mx1'), await this.#node('mx2'), await this.#node('mx3')] as const;
    // The first thousands of messages of a process cost a multiple.
    for (const node of all) {
      await this.#let([node]);
      await this.#round(all[0], [node], 2 * this.#course.messages);
    }
    const [one = [], three = []] = await this.#compete([
      [all[0], [all[0]]],
      [all[0], all],
    ]);
    const total = (rounds: readonly Round[]): number => median(rounds.map(({ drain }) => drain.node + drain.postgres));
    return [
      {
        measure: 'draining, 3 nodes on these processors: processor time for a message, of 1 node',
        aim: '≤ 1.25',
        measured: (total(three) / total(one)).toFixed(2),
        figures: `${figuresOf('3 nodes', three, 'drain')}; ${figuresOf('1 node', one, 'drain')}`,
      },
    ];
  }

  async fence(): Promise<readonly Row[]> {
    const [fenced, unfenced] = [await this.#node('mx1'), await this.#node('mx9', 'unfenced')];
    const [yes = [], no = []] = await this.#compete([
      [fenced, [fenced]],
      [unfenced, [unfenced]],
    ]);
    const total = (rounds: readonly Round[]): number => median(rounds.map(({ drain }) => drain.node + drain.postgres));
    await this.#stop([unfenced]);
    return [
      {
        measure: 'cost of the fence: processor time of draining with it, more than without',
        aim: '≤ 3 %',
        measured: `${((total(yes) / total(no) - 1) * 100).toFixed(1)} %`,
        figures: `${figuresOf('with', yes, 'drain')}; ${figuresOf('without', no, 'drain')}`,
      },
    ];
  }

  async latency(): Promise<readonly Row[]> {
    const [first, second] = [await this.#node('mx1'), await this.#node('mx2')];
    const rows: Row[] = [];
    for (const [sender, aim] of [
      [first, 20],
      [second, 100],
    ] as const) {
      await this.#let([sender]);
      const times = (await this.#times(first, 10 + 20 * this.#course.rounds)).slice(10).toSorted((a, b) => a - b);
      const percentile = (share: number): string => (times[Math.floor(times.length * share)] ?? NaN).toFixed(0);
      rows.push({
        measure: `accepted until at the sink, idle, ${sender === first ? 'by the node itself' : 'by another node'}`,
        aim: `≤ ${aim} ms`,
        measured: `${median(times).toFixed(0)} ms`,
        figures: `p99 ${percentile(0.99)} ms`,
      });
    }
    return rows;
  }

  async #times(at: Server, count: number): Promise<readonly number[]> {
    const session = await Session.open(at.smtp);
    const text = messageOf(bytes);
    const times: number[] = [];
    for (let nth = 0; nth < count; nth += 1) {
      const before = this.#own.messages.length;
      await session.send(text, ['a@own.example']);
      const began = performance.now();
      await this.#own.until((sink) => sink.messages.length > before);
      times.push(performance.now() - began);
      await pause(150);
    }
    await session.quit();
    return times;
  }
}
