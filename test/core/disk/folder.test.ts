import assert from 'node:assert/strict';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { FolderSync, makeFolder } from '../../../core/disk/folder.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { FaultyFiles } from '../spool/faulty-files.js';

test('all callers that wait when the fsync of a folder starts share it', async (t) => {
  const folder = await temporaryFolder(t);
  const files = new FaultyFiles();
  const sync = new FolderSync(files);
  await Promise.all(Array.from({ length: 50 }, () => sync.sync(folder)));
  assert.equal(files.count('fsync'), 1);
});

test('a caller during an fsync waits for the next one', async (t) => {
  const folder = await temporaryFolder(t);
  const files = new FaultyFiles();
  const sync = new FolderSync(files);
  const release = files.hold('fsync');
  const first = sync.sync(folder);
  await untilCalled(files, 'fsync');
  const late = [sync.sync(folder), sync.sync(folder)];
  release();
  await Promise.all([first, ...late]);
  assert.equal(files.count('fsync'), 2);
});

test('folders do not wait for each other', async (t) => {
  const folder = await temporaryFolder(t);
  const files = new FaultyFiles();
  const sync = new FolderSync(files);
  await makeFolder(join(folder, 'a'));
  await Promise.all([sync.sync(folder), sync.sync(join(folder, 'a'))]);
  assert.equal(files.count('fsync'), 2);
});

test('a message to many mailboxes uses a bounded number of descriptors, and a fault frees them', async (t) => {
  const root = await temporaryFolder(t);
  const files = new FaultyFiles();
  const sync = new FolderSync(files);
  const folders = Array.from({ length: 200 }, (_, number) => join(root, `${number}`));
  await Promise.all(folders.map((folder) => makeFolder(folder)));
  for (const call of ['open', 'fsync', 'close'] as const) {
    files.order({ call, code: 'EIO' });
    const results = await Promise.allSettled(folders.map((folder) => sync.sync(folder)));
    assert.ok(results.every(({ status }) => status === 'rejected'));
  }
  files.order();
  await Promise.all(folders.map((folder) => sync.sync(folder)));
  assert.ok(files.mostOpened <= 64, `${files.mostOpened} were open`);
  assert.equal(files.opened.size, 0);
});

test('a failed fsync rejects all callers that shared it, and the next one uses a new descriptor', async (t) => {
  const folder = await temporaryFolder(t);
  const files = new FaultyFiles();
  const sync = new FolderSync(files);
  files.order({ call: 'fsync', code: 'EIO', nth: 1 });
  const results = await Promise.allSettled([sync.sync(folder), sync.sync(folder)]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  assert.equal(files.count('fsync'), 1);
  await sync.sync(folder);
  assert.equal(files.count('open'), 2);
  assert.equal(files.opened.size, 0);
});

test('a folder is created private, with missing parents, and each parent is fsynced', async (t) => {
  const folder = await temporaryFolder(t);
  const files = new FaultyFiles();
  await makeFolder(join(folder, 'a', 'b'), files);
  assert.equal((await stat(join(folder, 'a', 'b'))).mode & 0o777, 0o700);
  const synced = files.calls.filter((line) => line.startsWith('fsync '));
  assert.deepEqual(synced, [`fsync ${folder}`, `fsync ${join(folder, 'a')}`]);
});

test('creating an existing folder leaves its entries', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'kept'), '');
  await makeFolder(folder);
  assert.deepEqual(await readdir(folder), ['kept']);
});

async function untilCalled(files: FaultyFiles, call: 'fsync'): Promise<void> {
  while (files.count(call) === 0) await new Promise(setImmediate);
}
