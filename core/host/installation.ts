import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The package's folder, with `views/`, `public/` and `docs/`. */
export const packageRoot = folderWithViews(dirname(fileURLToPath(import.meta.url)));

function folderWithViews(folder: string): string {
  if (existsSync(join(folder, 'views')) || folder === dirname(folder)) return folder;
  return folderWithViews(dirname(folder));
}

export const version = (createRequire(import.meta.url)(join(packageRoot, 'package.json')) as { version: string })
  .version;
