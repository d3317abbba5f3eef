import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { FaultyFiles } from '../spool/faulty-files.js';

test('a replaced file is private, fsynced before it is renamed, and its folder after', async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, 'file.json');
  const files = new FaultyFiles();
  await writeFileAtomic(path, 'new', { files });
  assert.equal(await readFile(path, 'utf8'), 'new');
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  const steps = files.calls.map((line) => line.split(' ', 1)[0]).filter((call) => call !== 'close');
  assert.deepEqual(steps, ['open', 'write', 'fsync', 'rename', 'open', 'fsync']);
  assert.ok(files.calls.at(-2)?.endsWith(folder));
});

for (const call of ['open', 'write', 'fsync', 'close', 'rename'] as const) {
  test(`when ${call} fails the old content stays and nothing is left beside it`, async (t) => {
    const folder = await temporaryFolder(t);
    const path = join(folder, 'file.json');
    await writeFile(path, 'old');
    const files = new FaultyFiles();
    files.order({ call, code: 'ENOSPC', nth: 1 });
    await assert.rejects(writeFileAtomic(path, 'new', { files }), { code: 'ENOSPC' });
    assert.equal(await readFile(path, 'utf8'), 'old');
    assert.deepEqual(await readdir(folder), ['file.json']);
    assert.equal(files.opened.size, 0);
  });
}

test('the permission bits can be chosen', async (t) => {
  const path = join(await temporaryFolder(t), 'file');
  await writeFileAtomic(path, Buffer.from('x'), { mode: 0o400 });
  assert.equal((await stat(path)).mode & 0o777, 0o400);
});
