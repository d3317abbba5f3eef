import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Peer } from './peer.js';
import { startPeers } from './receive-peers.js';
import { chooseSender, type Sender } from './sender.js';
import { printTable } from './table.js';

const sessions = 200;
const steps = 5;
const messagesOfStep = 2000;
const mebibyte = 1024;

/**
 * `npm run bench -- memory`: the time to the first greeting, the memory of a server at rest, and what it takes while it receives
 * 10,000 messages of 5 KB on 200 sessions: flat is what a server for months needs. Linux only.
 */
export async function memory(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: { peers: { type: 'string', default: 'postern file,postern log,bare,haraka' } },
  });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const sender = await chooseSender();
  const rows: string[][] = [];
  try {
    for (const name of values.peers.split(',')) rows.push(await measureOne(name, folder, sender));
    const counts = Array.from({ length: steps }, (_, step) => `RSS after ${(step + 1) * messagesOfStep}`);
    process.stdout.write('Milliseconds to the first greeting; MB of memory, PSS at rest, RSS while receiving.\n');
    printTable(['server', 'greeting', 'PSS at rest', ...counts], rows);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measureOne(name: string, folder: string, sender: Sender): Promise<string[]> {
  const started = performance.now();
  for await (const peer of startPeers(folder, [name])) {
    try {
      await greeted(peer.port);
      const row = [name, (performance.now() - started).toFixed(0), megabytes(peer, 'smaps_rollup', 'Pss')];
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

async function greeted(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'data');
  socket.end('QUIT\r\n');
  socket.resume();
  await once(socket, 'close');
}

function megabytes({ pid }: Peer, file: string, field: string): string {
  const found = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/${file}`, 'utf8'));
  return (Number(found?.[1] ?? Number.NaN) / mebibyte).toFixed(0);
}
