import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { uniqueId } from '../../../core/disk/id.js';
import { CallCost, FilePool, type NewFileKind, PrecreatedFiles } from '../../../core/spool/file-pool.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';
import { FaultyFiles } from './faulty-files.js';
import { contentOf, openFixture, received, whole } from './spool-fixture.js';

/** A file system that searches long for a free inode. */
class SlowFiles extends FaultyFiles {
  slow = false;

  override openNow(path: string, flags: string | number, mode?: number): Promise<number> {
    const end = performance.now() + (this.slow ? 0.4 : 0);
    while (performance.now() < end);
    return super.openNow(path, flags, mode);
  }
}

async function openPool(t: TestContext, kind: NewFileKind = 'plain') {
  const folder = await temporaryFolder(t);
  const files = new SlowFiles();
  const state = { isConcurrent: false };
  const input = { files, kind, isConcurrent: () => state.isConcurrent, newPath: () => join(folder, uniqueId()) };
  const pool = new FilePool(input);
  t.after(() => pool.close());
  /** How many of that number of files a blocking call created. */
  const blocked = async (count: number, wanted: NewFileKind = kind): Promise<number> => {
    const before = files.openedNow.length;
    for (let made = 0; made < count; made += 1) await files.close((await pool.create(wanted)).fd);
    return files.openedNow.length - before;
  };
  return { folder, files, pool, state, blocked };
}

suite('file pool', () => {
  test('a single file is created by a blocking call, whatever its kind', async (t) => {
    const { blocked } = await openPool(t);
    assert.equal(await blocked(5, 'plain'), 5);
    assert.equal(await blocked(5, 'durable'), 5);
  });

  test('with concurrent messages a durable file is created on a thread', async (t) => {
    const { blocked, state } = await openPool(t, 'durable');
    state.isConcurrent = true;
    assert.equal(await blocked(5, 'durable'), 0);
  });

  test('when the file system is slow, threads create nearly all files', async (t) => {
    const { blocked, files } = await openPool(t);
    files.slow = true;
    await blocked(40);
    assert.ok((await blocked(128)) <= 3);
  });

  test('a file with a given path gets it', async (t) => {
    const { folder, files, pool } = await openPool(t);
    const { path, fd } = await pool.create('durable', join(folder, 'mine'));
    assert.equal(path, join(folder, 'mine'));
    await files.close(fd);
    await assert.rejects(pool.create('plain', path), { code: 'EEXIST' });
  });
});

const windowMs = 150;
const openFlags = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY;

async function openPrecreated(t: TestContext) {
  const folder = await temporaryFolder(t);
  const files = new FaultyFiles();
  const ready = new PrecreatedFiles({
    files,
    newPath: () => join(folder, uniqueId()),
    flags: openFlags,
    maxFiles: 8,
    windowMs,
  });
  t.after(() => ready.close());
  const present = async () => (await readdir(folder)).length;
  return { folder, files, ready, present };
}

function want(ready: PrecreatedFiles, messages: number): void {
  for (let count = 0; count < messages; count += 1) ready.take();
}

suite('precreated files', () => {
  test('a busy spool has up to its maximum of files, a quiet one none', async (t) => {
    const { ready, present } = await openPrecreated(t);
    want(ready, 200);
    assert.equal(await present(), 0, 'nothing is made before the need is known');
    await untilTrue('eight are ready', async () => (await present()) === 8);
    await untilTrue('they are removed when nobody wants them', async () => (await present()) === 0);
  });

  test('one is created after the other', async (t) => {
    const { files, ready, present } = await openPrecreated(t);
    let running = 0;
    let most = 0;
    const open = files.open.bind(files);
    files.open = async (...call) => {
      most = Math.max(most, (running += 1));
      return await open(...call).finally(() => (running -= 1));
    };
    want(ready, 200);
    await untilTrue('eight are ready', async () => (await present()) === 8);
    assert.equal(most, 1);
  });

  test('few messages create no files ahead', async (t) => {
    const { ready, present } = await openPrecreated(t);
    want(ready, 15);
    await pause(windowMs * 3);
    assert.equal(await present(), 0);
  });

  test('each file is taken once, and is empty', async (t) => {
    const { ready, present, files } = await openPrecreated(t);
    want(ready, 200);
    await untilTrue('eight are ready', async () => (await present()) === 8);
    const first = ready.take();
    const second = ready.take();
    assert.ok(first !== undefined && second !== undefined);
    assert.notEqual(first.path, second.path);
    assert.equal(await files.read(first.fd, Buffer.alloc(1), 0).catch(() => 0), 0);
    for (const { fd } of [first, second]) await files.close(fd);
  });

  test('a failing disk leaves nothing, and is tried again with the next message', async (t) => {
    const { ready, present, files } = await openPrecreated(t);
    files.order({ call: 'open', code: 'EMFILE' });
    want(ready, 200);
    await pause(windowMs * 1.5);
    assert.equal(await present(), 0);
    files.order();
    want(ready, 200);
    await untilTrue('some are ready', async () => (await present()) > 0);
  });

  test('closing removes the files, and none is taken afterwards', async (t) => {
    const { ready, present, files } = await openPrecreated(t);
    want(ready, 200);
    await untilTrue('eight are ready', async () => (await present()) === 8);
    await ready.close();
    assert.equal(await present(), 0);
    assert.equal(files.opened.size, 0);
    assert.equal(ready.take(), undefined);
  });

  for (const durability of ['file', 'log'] as const) {
    test(`messages of a busy spool take them, and are complete (${durability})`, async (t) => {
      const fixture = await openFixture(t, { durability });
      const names: string[] = [];
      const spool = join(fixture.root, 'spool');
      const deliver60 = () =>
        Promise.all(
          Array.from({ length: 60 }, async () => {
            const name = `message-${names.length}`;
            names.push(name);
            const message = await received(fixture.spool);
            await message.link([{ folder: fixture.inbox, name }]);
            await message.release();
          }),
        );
      await deliver60();
      await untilTrue('one of them is taken', async () => {
        const before = await readdir(spool);
        await deliver60();
        const after = new Set(await readdir(spool));
        return before.some((name) => !after.has(name) && fixture.files.count('unlink', name) === 0);
      });
      for (const name of names) assert.ok((await contentOf(fixture, name)).equals(whole), name);
      await fixture.spool.close();
      assert.deepEqual(await readdir(spool), []);
      assert.equal(fixture.files.opened.size, 0);
    });
  }

  test('a failing write on one of them fails that message alone', async (t) => {
    const fixture = await openFixture(t, { durability: 'log' });
    const deliver = async (name: string) => {
      const message = await received(fixture.spool);
      try {
        await message.link([{ folder: fixture.inbox, name }]);
      } finally {
        await message.release();
      }
    };
    await Promise.all(Array.from({ length: 60 }, (_, index) => deliver(`warm-${index}`)));
    const spool = join(fixture.root, 'spool');
    await untilTrue('files are ready', async () => (await readdir(spool)).length > 0);
    fixture.files.order({ call: 'write', code: 'EIO', path: spool });
    await assert.rejects(deliver('failing'));
    fixture.files.order();
    await deliver('after');
    assert.ok((await contentOf(fixture, 'after')).equals(whole));
    const there = await readdir(fixture.inbox);
    assert.ok(!there.includes('failing'));
    await fixture.spool.close();
    assert.deepEqual(await readdir(spool), []);
  });
});

/** The calls advance the clock, in milliseconds. */
function costOf() {
  let now = 0;
  const cost = new CallCost(() => now);
  const take = (micros: number, times = 1): void => {
    for (let time = 0; time < times; time += 1) cost.measure(() => (now += micros / 1000));
  };
  return { cost, take };
}

suite('cost of a blocking call', () => {
  test('is slow after a series of slow calls, and fast after a series of fast ones', () => {
    const { cost, take } = costOf();
    assert.equal(cost.isSlow(), false);
    take(30, 100);
    assert.equal(cost.isSlow(), false);
    take(200, 100);
    assert.equal(cost.isSlow(), true);
    take(30, 100);
    assert.equal(cost.isSlow(), false);
  });

  test('a few preempted calls change nothing', () => {
    const { cost, take } = costOf();
    for (let round = 0; round < 100; round += 1) {
      take(30, 9);
      take(20_000);
      assert.equal(cost.isSlow(), false);
    }
  });

  test('while it is slow, one call in 64 blocks all the same', () => {
    const { cost, take } = costOf();
    take(200, 200);
    const answers = Array.from({ length: 640 }, () => cost.isSlow());
    assert.equal(answers.filter((dear) => !dear).length, 10);
  });

  test('a call that throws counts too, and throws', () => {
    const { cost } = costOf();
    assert.throws(() => cost.measure(() => assert.fail('no room')), /no room/);
  });
});
