import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { loadsOf, type Load } from './loads.js';
import type { Peer } from './peer.js';
import { startPeers } from './receive-peers.js';
import { familySeconds } from './family-time.js';
import { chooseSender, type Sender } from './sender.js';
import { runSenders } from './senders.js';
import { median, p50AndP99, printTable } from './table.js';

/** `--quick`: one round of fewer messages. `--only TEXT`: rows whose title has it. `--peers NAME,…`: only these. */
const options = {
  quick: { type: 'boolean', default: false },
  only: { type: 'string', default: '' },
  peers: { type: 'string', default: '' },
} as const;

/** What a server that has run for a while has had, so that its compiler is done; the first thousand are a row of their own. */
const cold: Load = { title: 'cold: 5 KB, 10 kept', messages: 1000, bytes: 5000, sessions: 10, keep: true };
const firstLoads: readonly Load[] = [
  { ...cold, messages: 3000 },
  { ...cold, messages: 4000, keep: false },
];

/** Larger files are removed behind their row, for a disk is not endless; many small ones stay, as removing them slows the next run. */
const largeBytes = 500_000;

/** Of one server: messages a second until the last one is in the Maildir, and µs of processor for each. */
interface Figures {
  readonly rate: number;
  readonly micros: number;
}

export async function receive(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({ args: [...args], options });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const peers: Peer[] = [];
  // Ends as at the end of its rows, so that no server is left behind.
  let stopping = false;
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => (stopping = true));
  try {
    const sender = await chooseSender();
    const wanted = values.peers === '' ? undefined : values.peers.split(',');
    for await (const peer of startPeers(folder, wanted)) peers.push(peer);
    const rows: string[][] = await measureCold(peers, sender);
    if (!values.quick) for (const peer of peers) for (const load of firstLoads) await measureOne(load, peer, sender);
    for (const load of loadsOf(values.quick).filter(({ title }) => title.includes(values.only))) {
      if (stopping) break;
      const measured = await measure(load, peers, sender, values.quick ? 1 : 6);
      for (const row of measured) process.stderr.write(`${row.join('  ')}\n`);
      rows.push(...measured);
    }
    process.stdout
      .write(`Messages a second until the last one is in the Maildir, sent by ${sender.name}, of the bare server, and
µs of processor for each: medians. Milliseconds of the own sender, for a message or for a connection with one.\n`);
    printTable(['load', 'server', 'msg/s', 'of bare', 'µs', 'p50', 'p99'], rows);
  } finally {
    for (const peer of peers) await peer.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Each server's first messages; once, as a process is cold only once. */
async function measureCold(peers: readonly Peer[], sender: Sender): Promise<string[][]> {
  const figures = new Map<Peer, Figures>();
  for (const peer of peers) figures.set(peer, await measureOne(cold, peer, sender));
  return rowsOf(cold.title, figures, new Map());
}

/** Peers take turns, so that a machine that slows down slows all. Some messages come before each round (`warmMessages`). */
async function measure(load: Load, peers: readonly Peer[], sender: Sender, rounds: number): Promise<string[][]> {
  const measured = new Map<Peer, Figures[]>(peers.map((peer) => [peer, []]));
  for (let round = 1; round <= rounds; round += 1) {
    for (const peer of inTurn(peers, round)) {
      await measureOne(warming(load), peer, sender);
      measured.get(peer)?.push(await measureOne(load, peer, sender));
    }
  }
  const times = new Map<Peer, readonly number[]>();
  for (const peer of peers) {
    const short = { ...warming(load), port: peer.port };
    await runSenders(short);
    times.set(peer, await runSenders(short));
  }
  if (load.bytes > largeBytes) for (const peer of peers) removeAll(peer);
  const medians = [...measured].map(([peer, all]): [Peer, Figures] => [
    peer,
    { rate: median(all.map(({ rate }) => rate)), micros: median(all.map(({ micros }) => micros)) },
  ]);
  return rowsOf(load.title, new Map(medians), times);
}

/** One row for each server. */
function rowsOf(
  title: string,
  figures: ReadonlyMap<Peer, Figures>,
  times: ReadonlyMap<Peer, readonly number[]>,
): string[][] {
  const bare = [...figures].find(([{ name }]) => name === 'bare')?.[1].rate ?? Number.NaN;
  return [...figures].map(([peer, { rate, micros }]) => {
    const numbers = [rate.toFixed(0), (rate / bare).toFixed(2), micros.toFixed(0)];
    return [
      title,
      peer.name,
      ...numbers.map((text) => (text === 'NaN' ? '' : text)),
      ...p50AndP99(times.get(peer) ?? []),
    ];
  });
}

/** Each begins as often as the others, and follows each of them: what one leaves to the disk the next one waits for. */
function inTurn(peers: readonly Peer[], round: number): readonly Peer[] {
  const order = peers.map((_, place) => {
    const step = place % 2 === 0 ? -place / 2 : (place + 1) / 2;
    return peers.at((round + step) % peers.length);
  });
  const turned = order.filter((peer) => peer !== undefined);
  return round % 4 < 2 ? turned : turned.toReversed();
}

function warming(load: Load): Load {
  return { ...load, messages: Math.ceil(load.messages / 5) };
}

async function measureOne(load: Load, peer: Peer, sender: Sender): Promise<Figures> {
  const expected = countOf(peer) + load.messages;
  const used = familySeconds(peer.pid ?? 0);
  const started = performance.now();
  await sender.send({ ...load, port: peer.port });
  while (countOf(peer) < expected) await pause(2);
  const seconds = (performance.now() - started) / 1000;
  return { rate: load.messages / seconds, micros: ((familySeconds(peer.pid ?? 0) - used) / load.messages) * 1e6 };
}

function countOf({ inbox }: Peer): number {
  try {
    return readdirSync(inbox).length;
  } catch {
    return 0;
  }
}

function removeAll({ inbox }: Peer): void {
  for (const name of readdirSync(inbox)) rmSync(join(inbox, name));
}
