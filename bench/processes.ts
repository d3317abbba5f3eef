import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { canReusePort } from '../core/net/listening-place.js';
import type { Ending } from '../test/support/ending.js';
import { freePort } from '../test/support/free-port.js';
import { Postgres } from '../test/support/postgres.js';
import { projectRoot } from '../test/support/project.js';
import { fillTables } from '../test/plugins/cluster/cluster-fixture.js';
import { familySeconds } from './family-time.js';
import { processorSeconds } from './processor-time.js';
import { chooseSender } from './sender.js';
import { runSenders } from './senders.js';
import { type Site, startSite } from './site.js';
import { median, p50AndP99, printTable } from './table.js';

const options = {
  rounds: { type: 'string', default: '5' },
  messages: { type: 'string', default: '4000' },
  sessions: { type: 'string', default: '50' },
} as const;

const database = 'template';

/** Servers at one port. */
interface Group {
  readonly kind: 'queue' | 'mailbox';
  readonly title: string;
  readonly port: number;
  readonly sites: readonly Site[];
}

interface Figures {
  readonly rate: number;
  /** µs of processor for each message: of the servers, of PostgreSQL. */
  readonly micros: number;
  readonly databaseMicros: number;
  /** Of the messages, that of the process which took the most. */
  readonly largestShare: number;
}

/** One and two processes that take mail at the same port, into a queue in PostgreSQL and into Maildirs of their own. */
export async function processes(args: readonly string[]): Promise<void> {
  if (!canReusePort()) throw new Error('Run this with Node.js 22.12 or newer: ports are shared by reusePort.');
  const { values } = parseArgs({ args: [...args], options });
  const load = { messages: Number(values.messages), bytes: 5000, sessions: Number(values.sessions), keep: true };
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const releases: (() => void | Promise<void>)[] = [];
  const ending: Ending = { after: (release) => void releases.unshift(release) };
  try {
    const sender = await chooseSender();
    const postgres = await Postgres.start(ending, { fill: fillTables, durable: true });
    const groups: Group[] = [];
    for (const [kind, title] of [
      ['queue', 'into the queue in PostgreSQL'],
      ['mailbox', 'into Maildirs'],
    ] as const) {
      for (const count of [1, 2]) {
        const port = await freePort();
        const sites: Site[] = [];
        for (let number = 0; number < count; number += 1) {
          const name = `${kind}-${count}-${number}`;
          const file = join(folder, `${name}.json5`);
          writeFileSync(file, JSON.stringify(configurationOf(name, port, kind === 'queue' ? postgres : undefined)));
          mkdirSync(join(folder, name), { mode: 0o700 });
          const words = ['start', '--config', file, '--data', join(folder, name)];
          const site = await startSite(name, [join(projectRoot, 'dist', 'core', 'postern.cjs'), ...words]);
          ending.after(() => void site.child.kill('SIGKILL'));
          sites.push(site);
        }
        groups.push({ kind, title: `${title}, ${count === 1 ? '1 process' : `${count} processes`}`, port, sites });
      }
    }
    // They take mail, and send none.
    await postgres.psql('update postern.session set draining = true', database);
    const pid = Number(readFileSync(join(postgres.folder, 'data', 'postmaster.pid'), 'latin1').split('\n')[0]);
    const measured = new Map<Group, Figures[]>(groups.map((group) => [group, []]));
    for (let round = 0; round <= Number(values.rounds); round += 1) {
      for (const group of round % 2 === 0 ? groups : groups.toReversed()) {
        const before = group.sites.map(({ child }) => processorSeconds(child.pid ?? 0));
        const databaseBefore = familySeconds(pid);
        const began = performance.now();
        await sender.send({ ...load, port: group.port });
        const seconds = (performance.now() - began) / 1000;
        const used = group.sites.map(({ child }, index) => processorSeconds(child.pid ?? 0) - (before[index] ?? 0));
        const sum = used.reduce((total, one) => total + one, 0);
        const figures = {
          rate: load.messages / seconds,
          micros: (sum / load.messages) * 1e6,
          databaseMicros: ((familySeconds(pid) - databaseBefore) / load.messages) * 1e6,
          largestShare: Math.max(...used) / sum,
        };
        // The first round is to get warm.
        if (round > 0) measured.get(group)?.push(figures);
      }
    }
    const times = new Map<Group, readonly number[]>();
    for (const group of groups) {
      times.set(group, await runSenders({ ...load, messages: Math.ceil(load.messages / 5), port: group.port }));
    }
    process.stdout.write(
      `5 KB on ${values.sessions} kept sessions, sent by ${sender.name}: medians of ${values.rounds} rounds in turns.\n`,
    );
    printTable(
      ['load', 'msg/s', 'of 1 process', 'servers µs', 'PostgreSQL µs', 'largest share', 'p50', 'p99'],
      [...measured].map(([group, all]) => {
        const of = (name: keyof Figures): number => median(all.map((one) => one[name]));
        const [, single = all] =
          [...measured].find(([{ kind, sites }]) => kind === group.kind && sites.length === 1) ?? [];
        const ratio = of('rate') / median(single.map(({ rate }) => rate));
        const rates = [of('rate').toFixed(0), ratio.toFixed(2)];
        const micros = [of('micros').toFixed(0), of('databaseMicros').toFixed(0)];
        const share = `${(of('largestShare') * 100).toFixed(0)} %`;
        return [group.title, ...rates, ...micros, share, ...p50AndP99(times.get(group) ?? [])];
      }),
    );
  } finally {
    for (const release of releases) await release();
    rmSync(folder, { recursive: true, force: true });
  }
}

function configurationOf(node: string, port: number, postgres: Postgres | undefined): object {
  const cluster = postgres && {
    node,
    database: { hosts: [postgres.folder], name: database, user: 'postgres', tls: 'off' },
  };
  return {
    // Mail to localhost is for a mailbox, or for another server.
    domains: [postgres === undefined ? 'localhost' : 'elsewhere.example'],
    http: { port: 0 },
    smtp: { listeners: [{ port, reusePort: true }], relayNetworks: ['127.0.0.0/8'] },
    ...(cluster && { plugins: { cluster } }),
  };
}
