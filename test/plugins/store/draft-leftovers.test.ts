import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { uniqueId } from '../../../core/disk/id.js';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { ann, change, openDrafts } from './draft-fixture.js';

test('leftovers of a killed process are removed at the next start, and foreign files stay', async (t) => {
  const data = await temporaryFolder(t);
  const folder = join(data, 'drafts');
  await mkdir(join(folder, 'a-folder'), { recursive: true });
  await mkdir(join(folder, uniqueId()));
  await writeFile(join(folder, 'notes.txt'), 'of somebody else');
  const odd = `sent-${'0'.repeat(32)}`;
  await mkdir(join(folder, odd));
  execFileSync('mkfifo', [join(folder, `sent-${'1'.repeat(32)}`)]);
  const torn = `sent-${'2'.repeat(32)}`;
  await writeFile(join(folder, torn), '{ "torn');
  const left = uniqueId();
  await writeFile(join(folder, left), 'Subject: half');
  await openDrafts(t, data);
  const names = await readdir(folder);
  assert.ok(!names.includes(left) && names.includes(torn));
  assert.equal(names.length, 6);
  assert.ok(names.includes('notes.txt') && names.includes('a-folder'));
});

test('a message that was sent and cannot be filed at a start is filed at the next one', async (t) => {
  const data = await temporaryFolder(t);
  const disk = new FaultyFiles();
  const { drafts, sending, handedIn } = await openDrafts(t, data, disk);
  const { draftId } = await drafts.create(ann, change({ to: 'bob@example.net', text: 'to be filed' }));
  const full = { call: 'link', code: 'ENOSPC', path: '.Sent' } as const;
  disk.order(full);
  await assert.rejects(sending.send(ann, draftId, {}, '127.0.0.1'), { problem: 'storage-full' });
  assert.equal(handedIn.length, 1);
  const still = new FaultyFiles();
  still.order(full);
  assert.equal((await (await openDrafts(t, data, still)).files()).length, 1);
  const { files, only } = await openDrafts(t, data);
  assert.match(await only('Sent'), /to be filed/);
  assert.deepEqual(await files(), []);
  assert.deepEqual(await readdir(join(data, 'drafts')), []);
});
