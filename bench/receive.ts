import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { loadsOf, type Load } from './loads.js';
import type { Peer } from './peer.js';
import { startPeers } from './receive-peers.js';
import { chooseSender, type Sender } from './sender.js';
import { median, printTable } from './table.js';

/** `--quick`: one round of fewer messages. `--only TEXT`: rows whose title has it. `--peers NAME,…`: only these. */
const options = {
  quick: { type: 'boolean', default: false },
  only: { type: 'string', default: '' },
  peers: { type: 'string', default: '' },
} as const;

/** What a server that has run for a while has had, so that its compiler is done. */
const firstLoads: readonly Load[] = [true, false].map((keep) => ({
  title: 'before the first row',
  messages: 4000,
  bytes: 5000,
  sessions: 10,
  keep,
}));

/** Larger files are removed behind their row, for a disk is not endless; many small ones stay, as removing them slows the next run. */
const largeBytes = 500_000;

/** Messages a second until the last one is in the Maildir. */
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
    if (!values.quick) for (const peer of peers) for (const load of firstLoads) await timeOne(load, peer, sender);
    const loads = loadsOf(values.quick).filter(({ title }) => title.includes(values.only));
    const rows: string[][] = [];
    for (const load of loads) {
      if (stopping) break;
      rows.push(await measure(load, peers, sender, values.quick ? 1 : 6));
      process.stderr.write(`${rows.at(-1)?.join('  ')}\n`);
    }
    process.stdout.write(`Messages a second until the last one is in the Maildir, sent by ${sender.name}; medians.\n`);
    printTable(['load', ...peers.map(({ name }) => name), ...ratioNames(peers)], rows);
  } finally {
    for (const peer of peers) await peer.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function ratioNames(peers: readonly Peer[]): readonly string[] {
  return ownPeers(peers).map(({ name }) => `${name.replace('postern ', '')} / bare`);
}

const ownPeers = (peers: readonly Peer[]) => peers.filter(({ name }) => name.startsWith('postern'));

/** One round to get warm, then those that count. Peers take turns, so that a machine that slows down slows all. */
async function measure(load: Load, peers: readonly Peer[], sender: Sender, rounds: number): Promise<string[]> {
  const rates = new Map<Peer, number[]>(peers.map((peer) => [peer, []]));
  for (let round = 0; round <= rounds; round += 1) {
    for (const peer of inTurn(peers, round)) {
      const seconds = await timeOne(round > 0 ? load : warming(load), peer, sender);
      if (round > 0) rates.get(peer)?.push(load.messages / seconds);
    }
  }
  if (load.bytes > largeBytes) for (const peer of peers) removeAll(peer);
  const medians = new Map(peers.map((peer) => [peer.name, median(rates.get(peer) ?? [])]));
  const bare = medians.get('bare') ?? Number.NaN;
  const ratios = ownPeers(peers).map(({ name }) => ((medians.get(name) ?? Number.NaN) / bare).toFixed(2));
  return [load.title, ...peers.map(({ name }) => (medians.get(name) ?? 0).toFixed(0)), ...ratios];
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

async function timeOne(load: Load, peer: Peer, sender: Sender): Promise<number> {
  const expected = countOf(peer) + load.messages;
  const started = performance.now();
  await sender.send({ ...load, port: peer.port });
  while (countOf(peer) < expected) await pause(2);
  return (performance.now() - started) / 1000;
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
