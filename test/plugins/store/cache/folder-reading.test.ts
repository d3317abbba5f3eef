import assert from 'node:assert/strict';
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { TimeSlice } from '../../../../core/concurrency.js';
import { systemClock } from '../../../../core/clock.js';
import { type FolderNames, nothingRead, readNames } from '../../../../plugins/store/cache/folder-reading.js';
import { entryAt } from '../../../../plugins/store/cache/folder-rows.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import type { Ending } from '../../../support/ending.js';

const name = (n: number, flags = '') => `${1000 + n}.M${n}P1.host,S=1:2,${flags}`;

async function open(test: Ending) {
  const root = await temporaryFolder(test);
  const folder = join(root, 'box');
  for (const part of ['new', 'cur', 'tmp']) mkdirSync(join(folder, part), { recursive: true });
  const timeSlice = new TimeSlice();
  let names: FolderNames = nothingRead;
  return {
    folder,
    cur: (n: number, flags = '') => join(folder, 'cur', name(n, flags)),
    /** What happens whenever a reading lets others have a turn. */
    meanwhile: (act: () => void) => void (timeSlice.yieldIfDue = () => Promise.resolve(act())),
    async files(): Promise<readonly string[] | undefined> {
      const now = systemClock.now();
      const read = await readNames(names, { root, folder, now, timeSlice }, false);
      names = read ?? nothingRead;
      return read && Array.from({ length: read.rows.count }, (_, row) => entryAt(read.rows, row).file);
    },
    get stamps() {
      return names.stamps;
    },
  };
}

test('a change within the same tick of the clock is seen', async (t) => {
  const box = await open(t);
  writeFileSync(box.cur(1), 'x');
  let flags = '';
  for (let round = 0; round < 500; round++) {
    const next = round % 2 === 0 ? 'S' : '';
    renameSync(box.cur(1, flags), box.cur(1, next));
    flags = next;
    assert.deepEqual(await box.files(), [`cur/${name(1, flags)}`], `round ${round}`);
    assert.equal(box.stamps.cur, null, 'a stamp that young is not believed');
  }
});

test('what was changed a while ago is read once; only the directory that changed is read again', async (t) => {
  const box = await open(t);
  writeFileSync(box.cur(1), 'x');
  for (let read = box.stamps; read.cur === null || read.new === null; read = box.stamps) await box.files();
  let turns = 0;
  box.meanwhile(() => void turns++);
  assert.deepEqual([await box.files(), turns], [[`cur/${name(1)}`], 0]);
  writeFileSync(join(box.folder, 'new', '1002.a,S=1'), 'x');
  const { cur } = box.stamps;
  assert.deepEqual(await box.files(), ['new/1002.a,S=1', `cur/${name(1)}`]);
  assert.equal(box.stamps.cur, cur);
  assert.ok(cur !== null && turns > 0);
});

test('while mail comes in all the time, new is read once: all that was there before is found', async (t) => {
  const box = await open(t);
  writeFileSync(box.cur(1), 'x');
  for (let read = box.stamps; read.cur === null || read.new === null; read = box.stamps) await box.files();
  let [count, turns] = [0, 0];
  const arrive = () => writeFileSync(join(box.folder, 'new', `${2000 + ++count}.a,S=1`), 'x');
  box.meanwhile(() => {
    turns += 1;
    arrive();
  });
  for (let round = 1; round <= 20; round++) {
    arrive();
    const before = count;
    const found = new Set(await box.files());
    assert.ok(Array.from({ length: before }, (_, n) => `new/${2001 + n}.a,S=1`).every((file) => found.has(file)));
    assert.equal(turns, round);
    assert.equal(box.stamps.new, null);
  }
  renameSync(join(box.folder, 'new', '2001.a,S=1'), join(box.folder, 'cur', '2001.a,S=1:2,S'));
  const files = (await box.files()) ?? [];
  assert.ok(files.includes('cur/2001.a,S=1:2,S') && !files.includes('new/2001.a,S=1'));
});

test('a message that is renamed again and again while its directory is read is neither lost nor doubled', async (t) => {
  const box = await open(t);
  for (let n = 0; n < 50; n++) writeFileSync(box.cur(n), 'x');
  let flags = '';
  box.meanwhile(() => {
    const next = flags === '' ? 'S' : '';
    renameSync(box.cur(7, flags), box.cur(7, next));
    flags = next;
  });
  for (let round = 0; round < 20; round++) {
    const ids = ((await box.files()) ?? []).map((file) => file.replace(/:.*$/, ''));
    assert.equal(ids.length, 50);
    assert.equal(new Set(ids).size, 50);
    assert.deepEqual(box.stamps, { new: null, cur: null });
  }
});

test('a message that goes from new to cur between the two readings is there once', async (t) => {
  const box = await open(t);
  const [fresh, seen] = [join(box.folder, 'new', '1001.a,S=1'), join(box.folder, 'cur', '1001.a,S=1:2,S')];
  writeFileSync(fresh, 'x');
  let isMoved = false;
  box.meanwhile(() => {
    if (!isMoved) renameSync(fresh, seen);
    isMoved = true;
  });
  assert.deepEqual(await box.files(), ['cur/1001.a,S=1:2,S']);
});

test('a folder that is gone, or is a link, is none; one without new and cur is empty', async (t) => {
  const box = await open(t);
  writeFileSync(box.cur(1), 'x');
  assert.equal((await box.files())?.length, 1);
  for (const part of ['new', 'cur']) rmSync(join(box.folder, part), { recursive: true });
  assert.deepEqual(await box.files(), []);
  renameSync(box.folder, `${box.folder}-elsewhere`);
  assert.equal(await box.files(), undefined);
  symlinkSync(`${box.folder}-elsewhere`, box.folder);
  assert.equal(await box.files(), undefined);
});
