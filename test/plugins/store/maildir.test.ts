import assert from 'node:assert/strict';
import { mkdir, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isProblem } from '../../../core/problem.js';
import { mailboxNameOfUser } from '../../../plugins/store/maildir/mailbox-name.js';
import { MaildirTree } from '../../../plugins/store/maildir/maildir.js';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const ann = mailboxNameOfUser('ann@example.org');

test('a missing mailbox is made private, with tmp, new and cur, and the way to it is fsynced', async (t) => {
  const root = await temporaryFolder(t);
  const files = new FaultyFiles();
  const tree = new MaildirTree(root, files);
  assert.equal(await tree.exists(ann), false);
  const folder = await tree.ensure(ann);
  assert.equal(folder, join(root, 'example.org', 'ann'));
  assert.deepEqual((await readdir(folder)).sort(), ['cur', 'new', 'tmp']);
  for (const path of [join(root, 'example.org'), folder, join(folder, 'new')]) {
    assert.equal((await stat(path)).mode & 0o777, 0o700);
  }
  const synced = files.calls.filter((line) => line.startsWith('fsync ')).map((line) => line.slice(6));
  assert.deepEqual(synced.sort(), [root, join(root, 'example.org'), folder].sort());
  assert.equal(await tree.exists(ann), true);
});

test('a mailbox that was there is fsynced once, for its maker may have died before he did it', async (t) => {
  const root = await temporaryFolder(t);
  await new MaildirTree(root).ensure(ann);
  const files = new FaultyFiles();
  const tree = new MaildirTree(root, files);
  await tree.ensure(ann);
  assert.equal(files.count('fsync'), 3);
  await tree.ensure(ann);
  assert.equal(files.count('fsync'), 3);
  assert.equal(files.count('mkdir'), 0);
});

test('a mailbox that vanished is made again', async (t) => {
  const root = await temporaryFolder(t);
  const tree = new MaildirTree(root);
  await tree.ensure(ann);
  await rm(join(root, 'example.org'), { recursive: true });
  await tree.ensure(ann);
  assert.equal(await tree.exists(ann), true);
});

test('many that make the same mailbox at the same time all succeed', async (t) => {
  const tree = new MaildirTree(await temporaryFolder(t));
  await Promise.all(Array.from({ length: 20 }, () => tree.ensure(ann)));
  assert.equal(await tree.exists(ann), true);
});

test('a mailbox whose fsync failed is not taken for durable', async (t) => {
  const root = await temporaryFolder(t);
  const files = new FaultyFiles();
  const tree = new MaildirTree(root, files);
  files.order({ call: 'fsync', code: 'EIO', nth: 1 });
  await assert.rejects(tree.ensure(ann));
  files.calls.length = 0;
  await tree.ensure(ann);
  assert.equal(files.count('fsync'), 3);
});

for (const component of ['example.org', 'example.org/ann', 'example.org/ann/new']) {
  test(`nothing is written through a symbolic link at ${component}, whenever it was put there`, async (t) => {
    const root = await temporaryFolder(t);
    const elsewhere = await temporaryFolder(t);
    const tree = new MaildirTree(root);
    await tree.ensure(ann);
    for (const part of ['ann', 'ann/new', 'new']) await mkdir(join(elsewhere, part), { recursive: true });
    const before = await readdir(elsewhere, { recursive: true });
    await rm(join(root, component), { recursive: true });
    await symlink(elsewhere, join(root, component));
    for (const asked of [tree, new MaildirTree(root)]) {
      await assert.rejects(asked.ensure(ann), (error) => isProblem(error) && error.problem === 'internal');
      await assert.rejects(asked.exists(ann), isProblem);
    }
    assert.deepEqual(await readdir(elsewhere, { recursive: true }), before);
  });
}

test('a file in the place of a mailbox is refused', async (t) => {
  const root = await temporaryFolder(t);
  await writeFile(join(root, 'example.org'), '');
  await assert.rejects(new MaildirTree(root).ensure(ann), isProblem);
});
