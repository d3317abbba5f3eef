import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { newPlugin } from '../../../plugins/plugin-kit/new-plugin.js';
import { examplesOf } from '../../support/document-examples.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { compilerComplaints } from '../../support/type-check.js';

test('in plain JavaScript right code has no complaints, and wrong code has', () => {
  const folder = join(projectRoot, 'test', 'types', 'javascript');
  assert.equal(compilerComplaints(folder, 'jsconfig.json'), '');
});

test('the plugins in the documents have no complaints either', async (t) => {
  const folder = await temporaryFolder(t);
  const documents = ['plugins', 'testing-plugins', 'plugin-reference'];
  const examples = (await Promise.all(documents.map((name) => examplesOf(`docs/${name}.md`)))).flatMap((found) => [
    ...found,
  ]);
  const code = examples.filter(([file]) => file.endsWith('.js'));
  assert.ok(code.length >= 2);
  for (const [file, text] of code) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), text);
  }
  await newPlugin({ name: 'doorman', language: 'javascript', stripsTypes: false, cwd: folder });
  const configuration = JSON.parse(await readFile(join(folder, 'doorman', 'jsconfig.json'), 'utf8')) as object;
  // Beside the others, as the places of the types are relative.
  await mkdir(join(folder, 'documents'));
  await writeFile(
    join(folder, 'documents', 'jsconfig.json'),
    JSON.stringify({ ...configuration, include: ['../*/*.js'] }),
  );
  assert.equal(compilerComplaints(join(folder, 'documents'), 'jsconfig.json'), '');
});
