import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../core/host/installation.js';

export { packageRoot as packageFolder, version } from '../../../core/host/installation.js';

export const favicon = (): Buffer => readFileSync(join(packageRoot, 'public', 'icons', 'postern.ico'));
