import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

/** The package that this code was built into: two folders above `dist/plugins`. */
const root = new URL('../../../', import.meta.url);

/** Absolute. */
export const packageFolder: string = fileURLToPath(root);

export const version: string = z
  .looseObject({ version: z.string() })
  .parse(JSON.parse(readFileSync(new URL('package.json', root), 'utf8'))).version;

export const favicon = (): Buffer => readFileSync(new URL('public/icons/postern.ico', root));
