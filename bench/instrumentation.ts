import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { stopChild } from './peer.js';
import { processorSeconds } from './processor-time.js';
import { chooseSender, type Sender } from './sender.js';
import { authorization, startSite, type Site } from './site.js';
import { median, printTable } from './table.js';

/** `--quick`: fewer and shorter rounds. */
const options = { quick: { type: 'boolean', default: false } } as const;

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const seriesOfALargeSite = 10_000;

/** What counting costs on the way of a message, and what a scrape costs. */
export async function instrumentation(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const sites: Site[] = [];
  try {
    const counting = await startPostern(folder, 'counting', []);
    sites.push(counting);
    const silent = await startPostern(folder, 'silent', ['--import', here('./without-metrics.js')]);
    sites.push(silent);
    await compare(counting, silent, await chooseSender(), values.quick);
    sites.push(await startPostern(folder, 'large', [], seriesOfALargeSite));
    await scrape([counting, ...sites.slice(2)], values.quick ? 5 : 20);
  } finally {
    for (const { child } of sites) await stopChild(child);
    rmSync(folder, { recursive: true, force: true });
  }
}

function startPostern(folder: string, name: string, words: readonly string[], series = 0): Promise<Site> {
  const own = join(folder, name);
  mkdirSync(own);
  const config = join(own, 'postern.json5');
  const plugin = { sitePlugins: [here('./many-series.js')], plugins: { 'bench-series': { series } } };
  const settings = { smtp: { listeners: [{ mode: 'mx', port: 0 }] }, ...(series > 0 && plugin) };
  writeFileSync(config, JSON.stringify(settings));
  return startSite(name, [...words, here('../core/postern.cjs'), 'start', '--config', config, '--http-port', '0']);
}

/** Processor time per message, in turn; the least of all rounds, for whatever else runs only adds to it. */
async function compare(counting: Site, silent: Site, sender: Sender, quick: boolean): Promise<void> {
  const messages = quick ? 1000 : 3000;
  const found = new Map<Site, number[]>([
    [counting, []],
    [silent, []],
  ]);
  for (let round = 0; round <= (quick ? 4 : 12); round += 1) {
    for (const [site, rounds] of found) {
      const before = processorSeconds(site.child.pid ?? 0);
      await sender.send({ port: site.smtpPort, messages, bytes: 5000, sessions: 10, keep: true });
      const micros = ((processorSeconds(site.child.pid ?? 0) - before) / messages) * 1e6;
      // The first gets warm.
      if (round > 0) rounds.push(micros);
    }
  }
  const least = (site: Site): number => Math.min(...(found.get(site) ?? []));
  const middle = (site: Site): number => median(found.get(site) ?? []);
  const [on, off] = [least(counting), least(silent)];
  process.stdout.write(`Processor time of a message of 5 KB, ten sessions that stay open, sent by ${sender.name}.\n`);
  printTable(
    ['', 'counting µs', 'not µs', 'difference'],
    [
      ['least', on.toFixed(0), off.toFixed(0), percent(on, off)],
      ['median', middle(counting).toFixed(0), middle(silent).toFixed(0), percent(middle(counting), middle(silent))],
    ],
  );
}

const percent = (on: number, off: number): string => `${((on / off - 1) * 100).toFixed(1)} %`;

async function scrape(sites: readonly Site[], rounds: number): Promise<void> {
  const rows: string[][] = [];
  for (const site of sites) {
    for (const path of ['/metrics/prometheus', '/metrics/graphite']) rows.push(await scrapeOne(site, path, rounds));
  }
  process.stdout.write('\nA scrape.\n');
  printTable(['what', 'series', 'KB', 'ms', 'processor ms'], rows);
}

async function scrapeOne({ child, name, port }: Site, path: string, rounds: number): Promise<string[]> {
  const times: number[] = [];
  let text = '';
  let before = 0;
  for (let round = 0; round <= rounds; round += 1) {
    // The first gets warm.
    if (round === 1) before = processorSeconds(child.pid ?? 0);
    const began = performance.now();
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization } });
    text = await answer.text();
    times.push(performance.now() - began);
  }
  const used = ((processorSeconds(child.pid ?? 0) - before) / rounds) * 1000;
  const series = text.split('\n').filter((line) => line !== '' && !line.startsWith('#')).length;
  const size = (text.length / 1024).toFixed(0);
  return [`${name} ${path}`, String(series), size, median(times.slice(1)).toFixed(1), used.toFixed(1)];
}
