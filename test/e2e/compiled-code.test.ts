import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import * as modules from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const skip = 'enableCompileCache' in modules ? false : 'this release of Node keeps nothing that it has compiled';

test('what Node has compiled is kept in a folder of ours, never where everybody may write', { skip }, async (t) => {
  const folder = await temporaryFolder(t);
  const places = { CACHE_DIRECTORY: join(folder, 'cache'), TMPDIR: folder };
  const server = await ServerProcess.start(t, { folder, env: { ...places, POSTERN_ADMIN_PASSWORD: 'correct horse' } });
  await server.kill('SIGTERM');
  assert.notDeepEqual(await readdir(places.CACHE_DIRECTORY), []);
  assert.ok(!(await readdir(folder)).includes('node-compile-cache'));
});
