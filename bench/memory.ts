import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Peer } from './peer.js';
import { startPeers } from './receive-peers.js';
import { chooseSender, type Sender } from './sender.js';
import { printTable } from './table.js';

const sessions = 200;
const messagesOfStep = 2000;
const mebibyte = 1024;

/**
 * `npm run bench -- memory`: the memory of a server at rest, and what it takes while it receives
 * 10,000 messages of 5 KB on 200 sessions (or `--steps N` of 2,000): flat is what a server for months needs. Linux only.
 */
export async function memory(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      peers: { type: 'string', default: 'postern file,postern log,bare,haraka' },
      steps: { type: 'string', default: '5' },
    },
  });
  const steps = Number(values.steps);
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const sender = await chooseSender();
  const rows: string[][] = [];
  try {
    for (const name of values.peers.split(',')) rows.push(await measureOne(name, folder, sender, steps));
    const counts = Array.from({ length: steps }, (_, step) => `RSS after ${(step + 1) * messagesOfStep}`);
    process.stdout.write('MB of memory: PSS at rest, RSS while receiving.\n');
    printTable(['server', 'PSS at rest', ...counts], rows);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measureOne(name: string, folder: string, sender: Sender, steps: number): Promise<string[]> {
  for await (const peer of startPeers(folder, [name])) {
    try {
      const row = [name, megabytes(peer, 'smaps_rollup', 'Pss')];
      for (let step = 0; step < steps; step += 1) {
        await sender.send({ port: peer.port, messages: messagesOfStep, bytes: 5000, sessions, keep: true });
        row.push(megabytes(peer, 'status', 'VmRSS'));
      }
      return row;
    } finally {
      await peer.stop();
    }
  }
  return [name, 'missing'];
}

function megabytes({ pid }: Peer, file: string, field: string): string {
  const found = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/${file}`, 'utf8'));
  return (Number(found?.[1] ?? Number.NaN) / mebibyte).toFixed(0);
}
