import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** What the TypeScript compiler, and with it an editor, has to say of a folder; an empty text when nothing is wrong. */
export function compilerComplaints(folder: string, configuration: string): string {
  const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc');
  return spawnSync(process.execPath, [compiler, '-p', configuration], { cwd: folder, encoding: 'utf8' }).stdout;
}
