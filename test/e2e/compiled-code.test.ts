import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

test('what was compiled is kept in a folder of ours, never where everybody may write', async (t) => {
  const folder = await temporaryFolder(t);
  const places = { CACHE_DIRECTORY: join(folder, 'cache'), TMPDIR: folder };
  const server = await ServerProcess.start(t, { folder, env: { ...places, POSTERN_ADMIN_PASSWORD: 'correct horse' } });
  await server.kill('SIGTERM');
  const [release = ''] = await readdir(places.CACHE_DIRECTORY);
  assert.ok((await readdir(join(places.CACHE_DIRECTORY, release))).length > 10);
  assert.ok(!(await readdir(folder)).includes('node-compile-cache'));
});
