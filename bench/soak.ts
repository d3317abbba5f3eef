import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { processorSeconds } from './processor-time.js';
import { startRelaySink, type RelaySink } from './relay-sink.js';
import { messageOf, Session } from './senders.js';
import { authorization, startPosterns, stopSites, type Site } from './site.js';
import { median, percentile, printTable } from './table.js';

const sessions = 6;
const mailboxes = 10;
const rows = 10;
/** One message of so many has 3 MB; the others have 5 KB. */
const largeEvery = 500;
const perSession = 1000;
const small = messageOf(5000);
const large = messageOf(3_000_000);

/**
 * `npm run bench -- soak [--minutes 20] [--rate 360]`: mixed work for a long time, half of the messages a second to ten
 * mailboxes and half relayed, a page of a folder each second. After a twentieth of that to get warm, ten rows show what changes with time: memory, rate, processor
 * time of the server for a message, and the time to accept it. `--rate 0` sends as fast as it is taken. Linux only.
 */
export async function soak(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: { minutes: { type: 'string', default: '20' }, rate: { type: 'string', default: '360' } },
  });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const sink = await startRelaySink();
  const sites = await startPosterns(folder, settingsOf(sink));
  try {
    for (const site of sites) {
      await createMailboxes(site);
      const table = await measure(site, sink, (Number(values.minutes) * 60_000) / rows, Number(values.rate));
      printTable(
        ['minutes', 'RSS MB', 'msg/s', 'of first', 'µs', 'of first', 'p50 ms', 'p99 ms', 'page ms', 'relayed'],
        table,
      );
    }
  } finally {
    await stopSites(sites);
    await sink.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function settingsOf({ port }: RelaySink) {
  return {
    hostname: 'bench.example',
    domains: ['bench.example'],
    smtp: { relayNetworks: ['127.0.0.0/8'] },
    plugins: { 'client-queue': { routes: { sink: { mx: ['127.0.0.1'], port, tls: 'never' } }, defaultRoute: 'sink' } },
  };
}

async function createMailboxes(site: Site): Promise<void> {
  for (let index = 0; index < mailboxes; index += 1) {
    const response = await fetch(`http://127.0.0.1:${site.port}/users`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json' },
      body: JSON.stringify({ username: mailboxOf(index), password: 'the password of a mailbox' }),
    });
    if (response.status !== 201) throw new Error(`a mailbox was not created: ${await response.text()}`);
  }
}

const mailboxOf = (index: number): string => `user${index % mailboxes}@bench.example`;

/** One row for each tenth of the time. */
async function measure(site: Site, sink: RelaySink, stepMs: number, rate: number): Promise<string[][]> {
  const stop = new AbortController();
  const acceptMs: number[] = [];
  const pageMs: number[] = [];
  const work = Promise.all([
    ...Array.from({ length: sessions }, () => send(site.smtpPort, rate / sessions, acceptMs, stop.signal)),
    openPages(site.port, pageMs, stop.signal),
  ]);
  const table: string[][] = [];
  let first: { readonly rate: number; readonly micros: number } | undefined;
  try {
    // To get warm.
    await Promise.race([pause(stepMs / 2), work]);
    acceptMs.length = 0;
    let used = processorSeconds(site.child.pid ?? 0);
    for (let row = 1; row <= rows; row += 1) {
      await Promise.race([pause(stepMs), work]);
      const times = acceptMs.splice(0);
      const now = processorSeconds(site.child.pid ?? 0);
      const rate = times.length / (stepMs / 1000);
      const micros = ((now - used) / times.length) * 1e6;
      used = now;
      first ??= { rate, micros };
      const last = [median(times), percentile(times, 0.99), median(pageMs.splice(0)), sink.count()];
      const ofMessages = [
        rate.toFixed(0),
        (rate / first.rate).toFixed(2),
        micros.toFixed(0),
        (micros / first.micros).toFixed(2),
      ];
      const figures = [...ofMessages, ...last.map((one) => one.toFixed(0))];
      table.push([((row * stepMs) / 60_000).toFixed(1), residentMegabytes(site).toFixed(0), ...figures]);
      process.stderr.write(`${table.at(-1)?.join('  ')}\n`);
    }
  } finally {
    stop.abort();
    await work;
  }
  return table;
}

async function send(port: number, perSecond: number, acceptMs: number[], stop: AbortSignal): Promise<void> {
  let session = await Session.open(port);
  const started = performance.now();
  for (let count = 0; !stop.aborted; count += 1) {
    if (perSecond > 0) await pause(started + (count * 1000) / perSecond - performance.now());
    if (count % perSession === perSession - 1) {
      await session.quit();
      session = await Session.open(port);
    }
    const begun = performance.now();
    const recipient = count % 2 === 0 ? mailboxOf(count / 2) : 'somebody@far.example';
    await session.send(count % largeEvery === 0 ? large : small, [recipient]);
    acceptMs.push(performance.now() - begun);
  }
  await session.quit();
}

async function openPages(port: number, pageMs: number[], stop: AbortSignal): Promise<void> {
  for (let count = 0; !stop.aborted; count += 1) {
    await pause(1000);
    const begun = performance.now();
    const path = `/store/bench.example/user${count % mailboxes}/folders/INBOX`;
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      headers: { authorization, accept: 'text/html' },
    });
    await response.arrayBuffer();
    if (!response.ok) throw new Error(`a page answered ${response.status}`);
    pageMs.push(performance.now() - begun);
  }
}

function residentMegabytes({ child }: Site): number {
  const found = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'));
  return Number(found?.[1] ?? Number.NaN) / 1024;
}
