import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isStartError } from '../../../core/problem.js';
import { openRoot } from '../../../plugins/store/maildir/maildir.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

test('the folder of the mailboxes is made below the data folder, or where the option says', async (t) => {
  const data = await temporaryFolder(t);
  assert.equal(await openRoot(data, 'mail'), join(data, 'mail'));
  assert.equal(await openRoot(data, join(data, 'else', 'where')), join(data, 'else', 'where'));
  assert.equal(await openRoot(data, 'mail'), join(data, 'mail'));
});

test('a folder of mailboxes on another file system stops the start with a sentence', async (t) => {
  const data = await temporaryFolder(t);
  await assert.rejects(
    openRoot(data, '/dev'),
    (error) => isStartError(error) && error.message.includes('different file systems'),
  );
});

test('a folder of mailboxes that cannot be made stops the start with a sentence', async (t) => {
  const data = await temporaryFolder(t);
  await writeFile(join(data, 'file'), '');
  await mkdir(join(data, 'folder'));
  for (const root of ['file', 'file/mail']) {
    await assert.rejects(openRoot(data, root), (error) => isStartError(error) && error.message.includes('file'));
  }
});
