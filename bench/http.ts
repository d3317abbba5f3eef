import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { HttpLoad, HttpResult } from './http-load.js';
import { mailDomain, pagesUnderMail } from './http-under-mail.js';
import { stopChild } from './peer.js';
import { processorTimes } from './processor-time.js';
import { authorization, startSite, type Site } from './site.js';
import { median, printTable } from './table.js';

/** `--quick`: one short round. `--only TEXT`: rows whose title has it; `--only 'page under mail'`: only the times of pages while mail comes in. */
const options = {
  quick: { type: 'boolean', default: false },
  only: { type: 'string', default: '' },
  connections: { type: 'string', default: '32' },
} as const;

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const inbox = '/store/localhost/postmaster/folders/INBOX';
const rows = 50;

interface Row {
  readonly title: string;
  readonly own: string;
  readonly bare: string;
  readonly accept: string;
  /** Of a round. */
  readonly requests: number;
  /** Asked by nobody. */
  readonly open?: true;
}

const table: readonly Row[] = [
  { title: 'health, nobody signed in', own: '/health', bare: '/health', accept: '*/*', requests: 4000, open: true },
  {
    title: '50 rows as JSON, the same object',
    own: '/bench/page',
    bare: '/bench/page',
    accept: 'application/json',
    requests: 3000,
  },
  {
    title: '50 messages of a folder as JSON',
    own: `${inbox}?limit=50`,
    bare: '/bench/page',
    accept: 'application/json',
    requests: 3000,
  },
  { title: 'the same folder as a page', own: inbox, bare: '/bench/folder', accept: 'text/html', requests: 800 },
  { title: 'landing page', own: '/', bare: '/bench/landing', accept: 'text/html', requests: 800 },
  {
    title: 'metrics for Prometheus',
    own: '/metrics/prometheus',
    bare: '/bench/metrics',
    accept: 'text/plain',
    requests: 1500,
  },
];

/**
 * Requests a second, processor time per request and times of answers, beside bare Koa with the same router and Basic auth, in turn. What the
 * peer answers was made by Postern, and costs it no work.
 */
export async function http(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const sites: Site[] = [];
  try {
    const own = await startPostern(folder);
    sites.push(own);
    await prepare(own, folder);
    const bare = await startSite('bare', [here('./http-bare.js'), folder]);
    sites.push(bare);
    const printed: string[][] = [];
    for (const row of table.filter(({ title }) => title.includes(values.only))) {
      printed.push(await measure(row, own, bare, { quick: values.quick, connections: Number(values.connections) }));
      process.stderr.write(`${printed.at(-1)?.join('  ')}\n`);
    }
    if (printed.length > 0) printRows(printed, values.connections);
    if ('page under mail'.includes(values.only)) await pagesUnderMail(own, values.quick ? 100 : 1000);
  } finally {
    for (const { child } of sites) await stopChild(child);
    rmSync(folder, { recursive: true, force: true });
  }
}

function printRows(rows: readonly string[][], connections: string): void {
  process.stdout.write(
    `${connections} connections. Medians of requests a second; the least processor time per request.\n`,
  );
  const head = ['load', 'bare/s', 'postern/s', 'ratio', 'µs bare', 'µs postern', 'user + system', 'ratio of µs'];
  printTable([...head, 'p50 ms bare', 'p50 ms', 'p99 ms bare', 'p99 ms'], rows);
}

function startPostern(folder: string): Promise<Site> {
  const config = join(folder, 'postern.json5');
  const settings = {
    domains: ['localhost', mailDomain],
    smtp: { listeners: [{ mode: 'mx', port: 0 }] },
    sitePlugins: [here('./http-page.js')],
    plugins: { 'bench-page': { file: join(folder, 'page.json') } },
  };
  writeFileSync(config, JSON.stringify(settings));
  return startSite('postern', [here('../core/postern.cjs'), 'start', '--config', config, '--http-port', '0']);
}

/** Fills a folder, and keeps what Postern answers for the peer. */
async function prepare({ port }: Site, folder: string): Promise<void> {
  const base = `http://127.0.0.1:${port}`;
  for (let i = 0; i < rows; i += 1) {
    const body = `From: Anna <anna${i}@example.org>\r\nTo: postmaster@localhost\r\nSubject: Message ${i}\r\n\r\nGood day\r\n`;
    const headers = { authorization, 'content-type': 'message/rfc822' };
    const { status } = await fetch(`${base}${inbox}/messages`, { method: 'POST', headers, body });
    if (status !== 201) throw new Error(`a message was answered with ${status}`);
  }
  const kept = {
    'page.json': `${inbox}?limit=50`,
    'folder.html': inbox,
    'landing.html': '/',
    'metrics.txt': '/metrics/prometheus',
  };
  for (const [name, path] of Object.entries(kept)) {
    const accept = name.endsWith('.html') ? 'text/html' : '*/*';
    writeFileSync(
      join(folder, name),
      await (await fetch(`${base}${path}`, { headers: { authorization, accept } })).text(),
    );
  }
}

interface Measuring {
  readonly quick: boolean;
  readonly connections: number;
}

async function measure(row: Row, own: Site, bare: Site, { quick, connections }: Measuring): Promise<string[]> {
  const found = { own: [] as Round[], bare: [] as Round[] };
  const rounds = quick ? 4 : 12;
  for (let round = 0; round <= rounds; round += 1) {
    for (const [who, site] of [
      ['bare', bare],
      ['own', own],
    ] as const) {
      const load = {
        port: site.port,
        path: row[who],
        headers: { accept: row.accept, ...(!row.open && { authorization }) },
        connections,
        requests: row.requests,
      };
      const one = await runRound(site, load);
      // The first gets warm.
      if (round > 0) found[who].push(one);
    }
  }
  const of = (who: 'own' | 'bare', figure: keyof Round): number => median(found[who].map((one) => one[figure]));
  // Whatever else runs on the machine adds to it: the least is nearest to what the requests need.
  const least = (who: 'own' | 'bare'): Round =>
    found[who].toSorted((a, b) => a.user + a.system - b.user - b.system)[0] ?? noRound;
  const [bareLeast, ownLeast] = [least('bare'), least('own')];
  const cpu = ({ user, system }: Round): number => user + system;
  return [
    row.title,
    of('bare', 'rate').toFixed(0),
    of('own', 'rate').toFixed(0),
    (of('own', 'rate') / of('bare', 'rate')).toFixed(2),
    cpu(bareLeast).toFixed(0),
    cpu(ownLeast).toFixed(0),
    `${ownLeast.user.toFixed(0)} + ${ownLeast.system.toFixed(0)}`,
    (cpu(bareLeast) / cpu(ownLeast)).toFixed(2),
    of('bare', 'p50').toFixed(1),
    of('own', 'p50').toFixed(1),
    of('bare', 'p99').toFixed(1),
    of('own', 'p99').toFixed(1),
  ];
}

interface Round {
  readonly rate: number;
  /** Microseconds of processor for one request. */
  readonly user: number;
  readonly system: number;
  readonly p50: number;
  readonly p99: number;
}

const noRound: Round = { rate: Number.NaN, user: Number.NaN, system: Number.NaN, p50: Number.NaN, p99: Number.NaN };

async function runRound({ child }: Site, load: HttpLoad): Promise<Round> {
  const before = processorTimes(child.pid ?? 0);
  const client = spawn(process.execPath, [here('./http-load.js'), JSON.stringify(load)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  client.stdout.setEncoding('utf8').on('data', (piece: string) => (text += piece));
  await once(client, 'close');
  const { requests, seconds, p50, p99 } = JSON.parse(text) as HttpResult;
  const after = processorTimes(child.pid ?? 0);
  const each = (part: 'user' | 'system'): number => ((after[part] - before[part]) / requests) * 1e6;
  return { rate: requests / seconds, user: each('user'), system: each('system'), p50, p99 };
}
