import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { lockFile, lockFolder, readLock, type LockInfo } from '../../../core/disk/lock.js';
import { isStartError } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

test('a second owner is refused with an error that names the first', async (t) => {
  const folder = await temporaryFolder(t);
  const lock = await lockFolder(folder, { http: null });
  await assert.rejects(
    lockFolder(folder, { http: null }),
    (error) => isStartError(error) && error.message.includes(`process ${process.pid}`),
  );
  await lock.release();
  assert.deepEqual(await readdir(folder), []);
});

test('other processes read the address of the owner', async (t) => {
  const folder = await temporaryFolder(t);
  assert.equal(await readLock(folder), undefined);
  const lock = await lockFolder(folder, { http: null });
  await lock.update({ http: 'http://127.0.0.1:8080' });
  const info = await readLock(folder);
  assert.equal(info?.pid, process.pid);
  assert.equal(info.http, 'http://127.0.0.1:8080');
  await lock.release();
  assert.equal(await readLock(folder), undefined);
});

test('the lock of a dead process is taken over', async (t) => {
  const folder = await temporaryFolder(t);
  const child = spawn(process.execPath, ['-e', '']);
  await once(child, 'exit');
  await writeFile(join(folder, lockFile), JSON.stringify(await changed(folder, { pid: child.pid ?? 1 })));
  assert.equal(await readLock(folder), undefined);
  const lock = await lockFolder(folder, { http: null });
  assert.equal((await readLock(folder))?.pid, process.pid);
  await lock.release();
});

test('a pid that now belongs to another process does not count as the owner', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, lockFile), JSON.stringify(await changed(folder, { processStart: 'earlier' })));
  await (await lockFolder(folder, { http: null })).release();
});

test('a pid whose namespace is another one belongs to another process', async (t) => {
  const folder = await temporaryFolder(t);
  const { processStart = '' } = (await changed(folder, {})) as { processStart?: string };
  const elsewhere = processStart.replace(/^\S+/, 'pid:[1]');
  assert.notEqual(elsewhere, processStart);
  await writeFile(join(folder, lockFile), JSON.stringify(await changed(folder, { processStart: elsewhere })));
  assert.equal(await readLock(folder), undefined);
});

test('a process that has ended and waits for its parent does not count as the owner', async (t) => {
  const folder = await temporaryFolder(t);
  // The parent of the first becomes a program that does not wait for it.
  const child = spawn('sh', ['-c', 'cat & echo $!; exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.after(() => child.kill());
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  const pid = Number(line.toString());
  const stat = async () => (await readFile(`/proc/${pid}/stat`, 'latin1')).split(' ');
  while ((await stat())[2] !== 'Z') await pause(10);
  const own = await changed(folder, {});
  const processStart = `${own.processStart?.split(' ')[0]} ${(await stat())[21]}`;
  await writeFile(join(folder, lockFile), JSON.stringify({ ...own, pid, processStart }));
  assert.equal(await readLock(folder), undefined);
});

test('a lock from before a reboot does not count', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, lockFile), JSON.stringify(await changed(folder, { bootId: 'another boot' })));
  await (await lockFolder(folder, { http: null })).release();
});

for (const text of ['', '{"pid": 1', '{"pid": "x"}']) {
  test(`a lock that reads ${JSON.stringify(text)} is taken over`, async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, lockFile), text);
    await (await lockFolder(folder, { http: null })).release();
  });
}

test('of many processes that take over a dead lock at once exactly one wins', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, lockFile), JSON.stringify(await changed(folder, { bootId: 'another boot' })));
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => lockFolder(folder, { http: null })));
  assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1);
  assert.deepEqual(await readdir(folder), [lockFile]);
});

test('a release leaves the lock of another process alone', async (t) => {
  const folder = await temporaryFolder(t);
  const lock = await lockFolder(folder, { http: null });
  const info = JSON.parse(await readFile(join(folder, lockFile), 'utf8')) as LockInfo;
  const foreign = JSON.stringify({ ...info, pid: info.pid + 1 });
  await writeFile(join(folder, lockFile), foreign);
  await lock.release();
  assert.equal(await readFile(join(folder, lockFile), 'utf8'), foreign);
});

/** Content of a lock of this process with some changes; the folder has no lock afterwards. */
async function changed(folder: string, change: Partial<LockInfo>): Promise<LockInfo> {
  const lock = await lockFolder(folder, { http: null });
  const info = JSON.parse(await readFile(join(folder, lockFile), 'utf8')) as LockInfo;
  await lock.release();
  return { ...info, ...change };
}
