import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { dataFormat, nodeIdOf, shareDataFolder, takeDataFolder } from '../../../core/host/data-folder.js';
import { version } from '../../../core/host/installation.js';
import { isStartError } from '../../../core/problem.js';
import { temporaryFolder, type Ending } from '../../support/temporary-folder.js';

async function folderWith(test: Ending, format?: string): Promise<string> {
  const data = join(await temporaryFolder(test), 'data');
  await mkdir(data);
  if (format !== undefined) await writeFile(join(data, 'format.json'), format);
  return data;
}

const formatOf = async (data: string): Promise<unknown> =>
  JSON.parse(await readFile(join(data, 'format.json'), 'utf8'));

async function refuses(act: () => Promise<unknown>, sentence: RegExp): Promise<void> {
  await assert.rejects(act, (error: Error) => {
    assert.ok(isStartError(error), String(error));
    assert.match(error.message, sentence);
    return true;
  });
}

describe('the format of the data folder', () => {
  it('is noted by its owner, in a new folder and in one of an older version', async (t) => {
    for (const found of [
      undefined,
      '{ "format": 1, "version": "0.0.9" }',
      '{ "format": 1, "version": "9.9.9", "more": 1 }',
    ]) {
      const data = await folderWith(t, found);
      const lock = await takeDataFolder(data);
      assert.deepEqual(await formatOf(data), { format: dataFormat, version });
      await lock.release();
    }
  });

  it('one that is newer is refused by a server and by a command, and nothing is touched', async (t) => {
    const text = `{ "format": ${dataFormat + 1}, "version": "7.0.0" }`;
    const data = await folderWith(t, text);
    const sentence =
      /was last used by Postern 7\.0\.0, in format 2; this is .* knows formats up to 1\. Start that version/;
    await refuses(() => takeDataFolder(data), sentence);
    await refuses(() => shareDataFolder(data), sentence);
    assert.deepEqual(await readdir(data), ['format.json']);
    assert.equal(await readFile(join(data, 'format.json'), 'utf8'), text);
  });

  it('a file that cannot be understood is refused and left as it is', async (t) => {
    for (const text of ['', '{', '{ "format": "1" }', '{ "format": 0, "version": "1.0.0" }', '[]']) {
      const data = await folderWith(t, text);
      await refuses(() => takeDataFolder(data), /format\.json cannot be understood/);
      assert.deepEqual(await readdir(data), ['format.json']);
    }
  });
});

describe('the id of the node', () => {
  it('is drawn once, and is another one in each data folder', async (t) => {
    const data = await folderWith(t);
    const id = await nodeIdOf(data);
    assert.match(id, /^[0-9a-z]{20}$/);
    assert.equal(await nodeIdOf(data), id);
    assert.deepEqual(JSON.parse(await readFile(join(data, 'node.json'), 'utf8')), { id });
    assert.notEqual(await nodeIdOf(await folderWith(t)), id);
  });
});
