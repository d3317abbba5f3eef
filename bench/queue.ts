import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { look, prepareLook, type Look } from './queue-looking.js';
import { printTable } from './table.js';

/** `npm run bench -- queue [--entries 100000] [--dir FOLDER]`: what operators wait for when much mail is deferred, beside the aims. */
export async function queue(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      entries: { type: 'string', default: '100000' },
      dir: { type: 'string', default: tmpdir() },
      look: { type: 'string' },
    },
  });
  const entries = Number(values.entries);
  if (values.look !== undefined) {
    process.stdout.write(JSON.stringify(await look(values.look, entries)));
    return;
  }
  const folder = await mkdtemp(join(values.dir, 'postern-bench-queue-'));
  try {
    await prepareLook(folder, entries);
    const looks = await lookElsewhere(folder, entries);
    process.stdout.write(`${entries} deferred entries, 3 attempts each\n\n`);
    printTable(['', 'measured', 'aim', ''], looks.map(row));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** In a process that holds nothing but the queue. */
async function lookElsewhere(folder: string, entries: number): Promise<readonly Look[]> {
  const run = fileURLToPath(new URL('run.js', import.meta.url));
  const args = ['--expose-gc', run, 'queue', '--look', folder, '--entries', String(entries)];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  return JSON.parse(stdout) as readonly Look[];
}

function row({ what, value, unit, aim }: Look): readonly string[] {
  const digits = value < 10 ? 1 : 0;
  return [what, `${value.toFixed(digits)} ${unit}`, `${aim} ${unit}`, value <= aim ? 'yes' : 'NO'];
}
