import assert from 'node:assert/strict';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { uniqueId } from '../../../core/disk/id.js';
import { type NewFileKind, FilePool } from '../../../core/spool/file-pool.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { FaultyFiles } from './faulty-files.js';

/** A file system that searches long for a free inode. */
class SlowFiles extends FaultyFiles {
  slow = false;

  override openNow(path: string, flags: string | number, mode?: number): Promise<number> {
    const until = performance.now() + (this.slow ? 0.4 : 0);
    while (performance.now() < until);
    return super.openNow(path, flags, mode);
  }
}

async function open(t: TestContext, kind: NewFileKind = 'plain') {
  const folder = await temporaryFolder(t);
  const files = new SlowFiles();
  const state = { isConcurrent: false };
  const input = { files, kind, isConcurrent: () => state.isConcurrent, newPath: () => join(folder, uniqueId()) };
  const fresh = new FilePool(input);
  t.after(() => fresh.close());
  /** How many of that number of files a blocking call created. */
  const blocked = async (count: number, wanted: NewFileKind = kind): Promise<number> => {
    const before = files.openedNow.length;
    for (let made = 0; made < count; made += 1) await files.close((await fresh.create(wanted)).fd);
    return files.openedNow.length - before;
  };
  return { folder, files, fresh, state, blocked };
}

suite('new files', () => {
  test('a single file is created by a blocking call, whatever its kind', async (t) => {
    const { blocked } = await open(t);
    assert.equal(await blocked(5, 'plain'), 5);
    assert.equal(await blocked(5, 'durable'), 5);
  });

  test('with concurrent messages a durable file is created on a thread', async (t) => {
    const { blocked, state } = await open(t, 'durable');
    state.isConcurrent = true;
    assert.equal(await blocked(5, 'durable'), 0);
  });

  test('when the file system is slow, threads create nearly all files', async (t) => {
    const { blocked, files } = await open(t);
    files.slow = true;
    await blocked(40);
    assert.ok((await blocked(128)) <= 3);
  });

  test('a file with a given path gets it', async (t) => {
    const { folder, files, fresh } = await open(t);
    const { path, fd } = await fresh.create('durable', join(folder, 'mine'));
    assert.equal(path, join(folder, 'mine'));
    await files.close(fd);
    await assert.rejects(fresh.create('plain', path), { code: 'EEXIST' });
  });
});
