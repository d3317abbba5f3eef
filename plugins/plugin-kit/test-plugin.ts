import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { startError } from '../../core/problem.js';
import { stripsTypes } from './new-plugin.js';

/**
 * `postern plugin test PATH`: runs the tests in that folder with `node --test`, resolving `postern/testing` to this
 * installation. Resolves with the exit status.
 */
export async function testPlugin(path: string, cwd: string): Promise<number> {
  const folder = resolve(cwd, path);
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw startError(`${path}: there is no folder ${folder}.`);
  }
  const tests = testsIn(folder);
  if (tests.length === 0) throw startError(`${path}: there are no tests in it; name one index.test.js.`);
  if (!stripsTypes && tests.every((name) => name.endsWith('ts'))) {
    throw startError(`${path}: this Node.js runs no TypeScript; compile its tests first (npm run build).`);
  }
  const kit = new URL('./kit-import.js', import.meta.url).href;
  const child = spawn(process.execPath, ['--import', kit, '--test', '--test-reporter=spec'], {
    cwd: folder,
    stdio: 'inherit',
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return code ?? 1;
}

/** File names that `node --test` runs. */
const testName = /(?:^|\/)(?:test|test-[^/]*|[^/]*[.\-_]test)\.[cm]?[jt]s$|(?:^|\/)test\/.*\.[cm]?[jt]s$/;

const testsIn = (folder: string): readonly string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (name) => testName.test(name) && !/(?:^|\/)node_modules\//.test(name),
  );
