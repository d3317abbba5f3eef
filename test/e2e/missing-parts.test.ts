import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';

const root = join(import.meta.dirname, '..', '..', '..');

function run(...words: readonly string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8', timeout: 20_000 });
  return { status, said: stdout + stderr };
}

/** A checkout as git makes it, as far as the build looks. */
async function checkout(t: Ending): Promise<string> {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'core'));
  await copyFile(join(root, 'build.mjs'), join(folder, 'build.mjs'));
  for (const name of ['tsconfig.json', 'core/main.ts']) await writeFile(join(folder, name), '');
  return folder;
}

test('a build without npm ci ends with a sentence', async (t) => {
  const folder = await checkout(t);
  for (const words of [['--if-stale'], []]) {
    const { status, said } = run(join(folder, 'build.mjs'), ...words);
    assert.equal(status, 1);
    assert.match(said, /^Postern is not built, .* run npm ci first\.\n$/);
  }
});

test('an old Node.js ends with a sentence, at the build and at the command', async (t) => {
  const folder = await checkout(t);
  const old = join(folder, 'old.cjs');
  await writeFile(
    old,
    `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.19.0' } });`,
  );
  for (const program of [join(folder, 'build.mjs'), join(root, 'dist', 'core', 'postern.cjs')]) {
    const { status, said } = run('--require', old, program, 'start');
    assert.equal(status, 1);
    assert.match(said, /^Postern needs Node\.js 20\.19 or newer; this is 18\.19\.0\.\n$/);
  }
});
