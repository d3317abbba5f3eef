import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { keepCompiled } from './cli/compiled-code.js';

// V8 marks all of the heap again when it is three times as large as what the last marking left, which is within the range (1.1 to
// 4) from which it chooses by itself. It chooses 1.1 for a program that promotes little, as this one does, and counts what was read
// from sockets as heap: every 25 MB of mail made it mark everything, which took longer than receiving it.
setFlagsFromString('--heap-growing-percent=200');

const here = dirname(fileURLToPath(import.meta.url));
keepCompiled(here, process.env['CACHE_DIRECTORY'] ?? join(here, '..', '.compiled'));
void import('./cli/cli.js');
