import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { greeted } from './peer.js';
import { processorSeconds } from './processor-time.js';
import { startPeers } from './receive-peers.js';
import { median, printTable } from './table.js';

interface Start {
  readonly wallMs: number;
  readonly processorMs: number;
}

/**
 * `npm run bench -- start`: from the start of the process to the first greeting, in turns, with the data folder of the start before;
 * and the processor time until then. Linux only.
 */
export async function start(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      peers: { type: 'string', default: 'postern log,bare,haraka' },
      rounds: { type: 'string', default: '9' },
    },
  });
  const folder = mkdtempSync(join(process.env['BENCH_FOLDER'] ?? tmpdir(), 'postern-bench-'));
  const names = values.peers.split(',');
  const starts = new Map<string, Start[]>(names.map((name) => [name, []]));
  try {
    for (const name of names) await startOnce(name, folder);
    for (let round = 0; round < Number(values.rounds); round += 1) {
      for (const name of names) starts.get(name)?.push(...(await startOnce(name, folder)));
    }
    process.stdout.write(
      'Milliseconds to the first greeting, and of processor until then: medians, in brackets the least.\n',
    );
    printTable(
      ['server', 'greeting', 'processor'],
      [...starts].map(([name, all]) => [
        name,
        summary(all.map(({ wallMs }) => wallMs)),
        summary(all.map(({ processorMs }) => processorMs)),
      ]),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const summary = (ms: readonly number[]): string => `${median(ms).toFixed(0)} (${Math.min(...ms).toFixed(0)})`;

/** Empty when this machine has no such server. */
async function startOnce(name: string, folder: string): Promise<readonly Start[]> {
  const began = performance.now();
  for await (const peer of startPeers(folder, [name])) {
    await greeted(peer.port);
    const wallMs = performance.now() - began;
    const processorMs = 1000 * processorSeconds(peer.pid ?? 0);
    await peer.stop();
    return [{ wallMs, processorMs }];
  }
  return [];
}
