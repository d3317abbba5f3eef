import assert from 'node:assert/strict';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { entryAt } from '../../../../plugins/store/cache/folder-rows.js';
import { readIndex, type StoredFolder, writeIndex } from '../../../../plugins/store/cache/index-file.js';
import { RowBuilder } from '../../../../plugins/store/cache/row-builder.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

function stored(count: number): StoredFolder {
  const builder = new RowBuilder(() => undefined);
  builder.add(
    Array.from({ length: count }, (_, n) => `${1000 + n}.M${n}P1.hóst,S=${n}:2,S`),
    true,
  );
  const rows = builder.finish();
  rows.summary.fill(99);
  return {
    folder: 'example.org/ann/.Sent',
    names: { rows, stamps: { new: null, cur: '1-2-3-4' } },
    log: { mark: '0011223344556677', end: 100, records: 5 },
  };
}

test('what was written is read again, whatever the number of messages', async (t) => {
  const path = join(await temporaryFolder(t), 'a.index');
  for (const count of [0, 1, 2, 3, 1000]) {
    const written = stored(count);
    writeIndex(path, written);
    const read = readIndex(path, written.folder);
    assert.deepEqual({ ...read, names: read?.names.stamps }, { ...written, names: written.names.stamps });
    const [before, after] = [written.names.rows, read?.names.rows ?? written.names.rows];
    assert.notEqual(after, before);
    for (let row = 0; row < count; row++) assert.deepEqual(entryAt(after, row), entryAt(before, row));
    assert.deepEqual(after.summary, before.summary);
  }
  assert.deepEqual(await readdir(join(path, '..')), ['a.index']);
});

test('one that is cut, changed anywhere, of another folder or not there at all is none', async (t) => {
  const path = join(await temporaryFolder(t), 'a.index');
  const { folder } = stored(3);
  assert.equal(readIndex(path, folder), undefined);
  writeIndex(path, stored(3));
  assert.equal(readIndex(path, 'example.org/ann/.Other'), undefined);
  const whole = await readFile(path);
  for (let at = 0; at < whole.length; at++) {
    const changed = Buffer.from(whole);
    changed[at] = (changed[at] ?? 0) ^ 0x41;
    await writeFile(path, changed);
    assert.equal(readIndex(path, folder), undefined, `byte ${at}`);
    await writeFile(path, whole.subarray(0, at));
    assert.equal(readIndex(path, folder), undefined, `${at} bytes`);
  }
  await writeFile(path, Buffer.concat([whole, Buffer.alloc(1)]));
  assert.equal(readIndex(path, folder), undefined);
  await writeFile(path, whole);
  assert.notEqual(readIndex(path, folder), undefined);
});
