import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from 'node:v8';
import { keepCompiled } from './cli/compiled-code.js';

const startPercent = 200;
const maxGrowthBytes = 48 * 1024 * 1024;
/** Both halves. */
const youngBytes = 16 * 1024 * 1024;
const checkMs = 250;
const idleMs = 10 * 60_000;

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

/**
 * Lets the young heap grow to 16 MB in one step, and then no more: V8 alone takes 32 MB during the start, and a message
 * costs as much with 16. An idle V8 shrinks it.
 */
function limitYoungHeap(): void {
  const { space_size: bytes = youngBytes } =
    getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space') ?? {};
  setYoungGrowth(Math.max(1, Math.floor(youngBytes / bytes)));
}

function setYoungGrowth(factor: number): void {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`);
}

// An idle V8 returns memory, and discards compiled code with it: after 8 s if left alone.
setFlagsFromString(`--gc-memory-reducer-start-delay-ms=${idleMs}`);
setHeapGrowth(startPercent);
setYoungGrowth(1);
setInterval(() => {
  limitHeapGrowth();
  limitYoungHeap();
}, checkMs).unref();
// Flags are part of the key of compiled code, which is written at the exit and read at the next start.
process.once('exit', () => {
  setHeapGrowth(startPercent);
  setYoungGrowth(1);
});

const here = dirname(fileURLToPath(import.meta.url));
keepCompiled(here, process.env['CACHE_DIRECTORY'] ?? join(here, '..', '.compiled'));
void import('./cli/cli.js');
