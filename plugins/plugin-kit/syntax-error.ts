import { spawnSync } from 'node:child_process';
import { locationBelow } from '../../core/host/uncaught.js';

/**
 * Position of a syntax error, as `index.js:12`. The error of `import` does not include it, but the output of a process
 * that fails with it does; none of the code has run by then.
 */
export function syntaxErrorPlace(entry: string, folder: string): string | undefined {
  const kit = new URL('./kit-import.js', import.meta.url).href;
  const { stderr } = spawnSync(process.execPath, ['--import', kit, entry], { encoding: 'utf8', timeout: 10_000 });
  return locationBelow(folder, stderr);
}
