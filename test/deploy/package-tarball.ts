import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { projectRoot } from '../support/project.js';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';

export const run = promisify(execFile);

/** Ends in what npm says; a minute or two on a slow line. */
export const npmOptions = { encoding: 'utf8', timeout: 240_000, maxBuffer: 64 * 1024 * 1024 } as const;

/**
 * The package as `npm pack` makes it, its absolute path. It is made from a copy of what is built, because packing a checkout
 * builds it anew below the tests that run; `POSTERN_TARBALL` names one that was made so.
 */
export async function packageTarball(test: Ending): Promise<string> {
  const made = process.env['POSTERN_TARBALL'];
  if (made !== undefined && made !== '') return made;
  const copy = await temporaryFolder(test);
  const { files } = JSON.parse(await readFile(join(projectRoot, 'package.json'), 'utf8')) as { files: string[] };
  const parts = (await Promise.all(files.map(matching))).flat();
  for (const part of [...parts, 'package.json']) {
    await mkdir(join(copy, part, '..'), { recursive: true });
    await cp(join(projectRoot, part), join(copy, part), { recursive: true });
  }
  const { stdout } = await run('npm', ['pack', '--json', '--ignore-scripts'], { ...npmOptions, cwd: copy });
  const [packed] = JSON.parse(stdout) as readonly { readonly filename: string }[];
  return join(copy, basename(packed?.filename ?? ''));
}

/** The paths of the checkout that an entry of `files` means, with at most one `*`, which stands for a folder. */
async function matching(entry: string): Promise<readonly string[]> {
  const [before = '', after] = entry.split('*');
  if (after === undefined) return [entry];
  const names = await readdir(join(projectRoot, before));
  return names.map((name) => `${before}${name}${after}`).filter((path) => existsSync(join(projectRoot, path)));
}
