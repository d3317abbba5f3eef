import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { keepCompiled } from './cli/compiled-code.js';

const startPercent = 200;
const maxGrowthBytes = 48 * 1024 * 1024;
const growthCheckMs = 10_000;

/**
 * Lets the heap grow to three times what lives, and by 48 MB at most, before V8 marks all of it again. V8 alone chooses
 * a tenth for a program that promotes little, as this one does, and counts what was read from sockets as heap: every 25
 * MB of mail made it mark everything, which took longer than receiving it.
 */
function limitHeapGrowth(): void {
  const percent = Math.floor((100 * maxGrowthBytes) / getHeapStatistics().used_heap_size);
  setHeapGrowth(Math.min(startPercent, Math.max(10, percent)));
}

function setHeapGrowth(percent: number): void {
  setFlagsFromString(`--heap-growing-percent=${percent}`);
}

setHeapGrowth(startPercent);
setInterval(limitHeapGrowth, growthCheckMs).unref();
// Flags are part of the key of compiled code, which is written at the exit and read at the next start.
process.once('exit', () => setHeapGrowth(startPercent));

const here = dirname(fileURLToPath(import.meta.url));
keepCompiled(here, process.env['CACHE_DIRECTORY'] ?? join(here, '..', '.compiled'));
void import('./cli/cli.js');
