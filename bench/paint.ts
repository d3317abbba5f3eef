import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type BrowserContext, chromium } from 'playwright-core';
import { pagePaths } from '../test/browser/site-map.js';
import { findPeer } from '../test/support/peers.js';
import { HttpClient } from '../test/support/http-client.js';
import { fillTree, makeTree } from './mailbox-tree.js';
import { prepareLook } from './queue-looking.js';
import { authorization, password, type Site, startSite } from './site.js';
import { median, printTable } from './table.js';

/** `--entries N` in the queue, `--messages N` in one folder, `--rounds N` visits of which the median counts. */
const options = {
  entries: { type: 'string', default: '100000' },
  messages: { type: 'string', default: '100000' },
  rounds: { type: 'string', default: '5' },
} as const;

/** Milliseconds in which each page that links lead to should show something. */
const aimMs = 400;

/** First contentful paint of each page in Chromium, with a long queue and a large folder. */
export async function paint(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-paint-'));
  try {
    const data = join(folder, 'data');
    await prepareLook(data, Number(values.entries));
    // The server runs as who runs this, so that is who owns the mail.
    const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0, launcher: [] };
    fillTree(makeTree(join(folder, 'mail'), owner, 'localhost', 'postmaster'), Number(values.messages), owner);
    const site = await startSite('postern', startArgs(folder, data));
    try {
      await measure(site, Number(values.rounds));
    } finally {
      site.child.kill('SIGKILL');
    }
    process.stdout.write(`\n${values.entries} queued messages, ${values.messages} in a folder\n`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Nothing that is queued finds a host, and nothing but this bench is at work. */
function startArgs(folder: string, data: string): readonly string[] {
  const config = join(folder, 'postern.json5');
  const routes = { away: { mx: ['127.0.0.1'], port: 1 } };
  const settings = {
    data,
    smtp: { listeners: [{ mode: 'mx', port: 0 }] },
    plugins: { store: { root: join(folder, 'mail') }, 'client-queue': { routes, defaultRoute: 'away' } },
  };
  writeFileSync(config, JSON.stringify(settings));
  const program = fileURLToPath(new URL('../core/postern.cjs', import.meta.url));
  return [program, 'start', '--config', config, '--http-port', '0'];
}

async function measure({ port }: Site, rounds: number): Promise<void> {
  const base = `http://127.0.0.1:${port}`;
  const admin = HttpClient.admin(base, password);
  // A long queue is read while the server answers already.
  while ((await admin.request('/client/queue/list')).status === 503) await pause(200);
  const paths = await pagePaths(admin);
  const browser = await chromium.launch({
    executablePath: findPeer('chromium') ?? 'chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
  });
  try {
    const context = await browser.newContext({ baseURL: base, extraHTTPHeaders: { Authorization: authorization } });
    // The first page of a browser waits for its processes.
    await firstPaint(context, '/');
    const rows: (readonly [path: string, middle: number, longest: number])[] = [];
    for (const path of paths) {
      const times: number[] = [];
      for (let round = 0; round < rounds; round += 1) times.push(await firstPaint(context, path));
      rows.push([path, median(times), Math.max(...times)]);
    }
    const slowestFirst = rows.toSorted(([, a], [, b]) => b - a);
    const shown = slowestFirst.map(([path, middle, longest]) => [
      path.slice(0, 80),
      middle.toFixed(0),
      longest.toFixed(0),
    ]);
    printTable(['first paint, ms', 'median', 'longest'], shown);
    const late = rows.filter(([, middle]) => middle > aimMs).length;
    const load = loadavg()[0]?.toFixed(1);
    process.stdout.write(`\n${paths.length} pages, ${late} later than ${aimMs} ms; load of the machine ${load}\n`);
  } finally {
    await browser.close();
  }
}

/** Milliseconds from the click on a link until something is seen, in a window of its own. */
async function firstPaint(context: BrowserContext, path: string): Promise<number> {
  const page = await context.newPage();
  try {
    await page.goto(path, { waitUntil: 'commit' });
    for (;;) {
      const ms = await page.evaluate<number | undefined>(
        `performance.getEntriesByName('first-contentful-paint')[0]?.startTime`,
      );
      if (ms !== undefined) return ms;
      await pause(10);
    }
  } finally {
    await page.close();
  }
}
