import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { examplesOf } from '../support/document-examples.js';
import { runPostern } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

test('the tests in docs/testing-plugins.md pass, in a folder where nothing is installed', async (t) => {
  const folder = await temporaryFolder(t);
  const examples = [...(await examplesOf('docs/plugins.md')), ...(await examplesOf('docs/testing-plugins.md'))];
  for (const [file, code] of examples) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), code);
  }
  const { code, stdout } = await runPostern(['plugin', 'test', '.'], { cwd: folder });
  assert.equal(code, 0, stdout);
  assert.match(stdout, /^(?:#|ℹ) pass 9$/m);
});
