import assert from 'node:assert/strict';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { uniqueId } from '../../../core/disk/id.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { openDrafts } from './draft-ground.js';

test('what a killed process left of a draft goes at the next start, and what is not ours stays', async (t) => {
  const data = await temporaryFolder(t);
  const folder = join(data, 'drafts');
  await mkdir(join(folder, 'a-folder'), { recursive: true });
  await mkdir(join(folder, uniqueId()));
  await writeFile(join(folder, 'notes.txt'), 'of somebody else');
  const left = uniqueId();
  await writeFile(join(folder, left), 'Subject: half');
  await openDrafts(t, data);
  const names = await readdir(folder);
  assert.ok(!names.includes(left));
  assert.equal(names.length, 3);
  assert.ok(names.includes('notes.txt') && names.includes('a-folder'));
});
