import { spawnSync } from 'node:child_process';
import { locationBelow } from '../../core/host/uncaught.js';

/**
 * Where code cannot be parsed, as `index.js:12`. The error that `import` gives does not say; the one that ends a process
 * prints it, and no line of what it could not load has run by then.
 */
export function syntaxErrorPlace(entry: string, folder: string): string | undefined {
  const kit = new URL('./kit-import.js', import.meta.url).href;
  const { stderr } = spawnSync(process.execPath, ['--import', kit, entry], { encoding: 'utf8', timeout: 10_000 });
  return locationBelow(folder, stderr);
}
