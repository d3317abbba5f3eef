import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { printTable, median } from './table.js';
import { startPeer, type Peer } from './peer.js';
import { runSenders } from './senders.js';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const rounds = 3;

interface Load {
  readonly title: string;
  readonly messages: number;
  readonly bytes: number;
  readonly sessions: number;
  readonly keep: boolean;
}

const loads: readonly Load[] = [
  { title: '5 KB, 1 kept session', messages: 1000, bytes: 5000, sessions: 1, keep: true },
  { title: '5 KB, 10 kept sessions', messages: 4000, bytes: 5000, sessions: 10, keep: true },
  { title: '5 KB, 50 kept sessions', messages: 5000, bytes: 5000, sessions: 50, keep: true },
  { title: '5 KB, 10 sessions, one per message', messages: 2000, bytes: 5000, sessions: 10, keep: false },
  { title: '1 MB, 10 kept sessions', messages: 200, bytes: 1_000_000, sessions: 10, keep: true },
];

/** Messages a second until the last one has its 250, beside a bare smtp-server that writes as durably. */
export async function receive(): Promise<void> {
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const peers: Peer[] = [];
  try {
    peers.push(
      await startPeer('postern', here('../core/postern.cjs'), [
        'start',
        '--data',
        join(folder, 'postern'),
        '--http-port',
        '0',
        '--smtp-port',
        '0',
      ]),
      await startPeer('bare smtp-server', here('./bare-server.js'), [join(folder, 'bare')]),
    );
    const rows: string[][] = [];
    for (const load of loads) rows.push(await measure(load, peers));
    printTable(['load', ...peers.map(({ name }) => `${name} msg/s`), 'ratio'], rows);
  } finally {
    for (const peer of peers) await peer.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Peers take turns, so that a machine that slows down slows both. */
async function measure(load: Load, peers: readonly Peer[]): Promise<string[]> {
  const rates = new Map<Peer, number[]>(peers.map((peer) => [peer, []]));
  for (let round = 0; round <= rounds; round += 1) {
    for (const peer of peers) {
      const seconds = await runSenders({ ...load, port: peer.port });
      if (round > 0) rates.get(peer)?.push(load.messages / seconds);
    }
  }
  const medians = peers.map((peer) => median(rates.get(peer) ?? []));
  const [own = 0, bare = 1] = medians;
  return [load.title, ...medians.map((rate) => rate.toFixed(0)), (own / bare).toFixed(2)];
}
