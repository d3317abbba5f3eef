import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The package's own folder: views, public and docs lie beside the built code. */
export const packageRoot = fileURLToPath(new URL('../..', import.meta.url));

export const version = (createRequire(import.meta.url)(join(packageRoot, 'package.json')) as { version: string })
  .version;
