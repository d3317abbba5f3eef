import assert from 'node:assert/strict';
import { rename, mkdir, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { LayerFolder, sha256Of } from '../../../core/config/layer-folder.js';
import { uniqueId } from '../../../core/disk/id.js';
import { isStartError } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const at = '2026-11-21T12:00:00.000Z';
const layer = (name: string, text: string) => ({ name, layer: 'base', text });

suite('the folder of the layers', () => {
  test('holds the last files, for this user only, and the undo restores the previous ones', async (t) => {
    const data = await temporaryFolder(t);
    const folder = new LayerFolder(data);
    assert.deepEqual([folder.applied(), folder.load()], [undefined, []]);
    await folder.replace('/src', at, [layer('base.json5', '{}'), layer('servers/mail1.json5', '{ a: 1 }')]);
    const names = (): readonly string[] => folder.load().map(({ name, text }) => `${name} ${text}`);
    assert.deepEqual(names(), ['base.json5 {}', 'servers/mail1.json5 { a: 1 }']);
    assert.equal(folder.applied()?.files[0]?.sha256, sha256Of('{}'));
    assert.equal((await stat(join(data, 'config', 'current', 'base.json5'))).mode & 0o077, 0);
    const back = await folder.replace('/src', at, [layer('base.json5', '{ b: 2 }')]);
    assert.deepEqual(names(), ['base.json5 { b: 2 }']);
    await back();
    assert.deepEqual(names(), ['base.json5 {}', 'servers/mail1.json5 { a: 1 }']);
    assert.equal((await readdir(join(data, 'config'))).length, 2);
  });

  test('the undo of the first state leaves none', async (t) => {
    const data = await temporaryFolder(t);
    const folder = new LayerFolder(data);
    const back = await folder.replace('/src', at, [layer('base.json5', '{}')]);
    await back();
    assert.deepEqual([folder.applied(), folder.load()], [undefined, []]);
    assert.deepEqual(await readdir(join(data, 'config')), []);
  });

  test('leftovers of a crash are ignored and swept', async (t) => {
    const data = await temporaryFolder(t);
    const folder = new LayerFolder(data);
    await folder.replace('/src', at, [layer('base.json5', '{}')]);
    const id = uniqueId();
    const half = join(data, 'config', id);
    await mkdir(half);
    await writeFile(join(half, 'base.json5'), '{ "half');
    await symlink(id, join(data, 'config', `${uniqueId()}.link`));
    assert.deepEqual(
      folder.load().map(({ text }) => text),
      ['{}'],
    );
    await folder.sweep();
    assert.equal((await readdir(join(data, 'config'))).length, 2);
    assert.equal(folder.load().length, 1);
  });

  test('unknown entries survive a sweep', async (t) => {
    const data = await temporaryFolder(t);
    const folder = new LayerFolder(data);
    await folder.replace('/src', at, [layer('base.json5', '{}')]);
    const inConfig = (name: string): string => join(data, 'config', name);
    const odd = ['notes.txt', 'notes', 'notes.link', uniqueId(), `${uniqueId()}.link`] as const;
    await writeFile(inConfig(odd[0]), 'remember');
    await mkdir(inConfig(odd[1]));
    await symlink('/etc', inConfig(odd[2]));
    await writeFile(inConfig(odd[3]), 'remember');
    await mkdir(inConfig(odd[4]));
    await folder.sweep();
    const left = await readdir(join(data, 'config'));
    for (const name of odd) assert.ok(left.includes(name), name);
    assert.equal(left.length, odd.length + 2);
  });

  test('missing files are refused with advice', async (t) => {
    const data = await temporaryFolder(t);
    const folder = new LayerFolder(data);
    await folder.replace('/src', at, [layer('base.json5', '{}'), layer('mail1.json5', '{}')]);
    await rm(join(data, 'config', 'current', 'mail1.json5'));
    const refused = (error: unknown) => isStartError(error) && /remove .*config, and the next sync/.test(error.message);
    assert.throws(() => folder.load(), refused);
    assert.equal(folder.stored()[1]?.text, undefined);
    await writeFile(join(data, 'config', 'current', 'applied.json'), '{ "at": ');
    assert.throws(() => folder.load(), refused);
    assert.equal(folder.applied(), undefined);
    await folder.replace('/src', at, [layer('base.json5', '{ c: 3 }')]);
    assert.equal(folder.load()[0]?.text, '{ c: 3 }');
  });

  test('a state that cannot be written leaves the old one', async (t) => {
    const data = await temporaryFolder(t);
    const folder = new LayerFolder(data);
    await folder.replace('/src', at, [layer('base.json5', '{}')]);
    // A file where the folder should be stops the superuser too.
    await rename(join(data, 'config'), join(data, 'away'));
    await writeFile(join(data, 'config'), '');
    await assert.rejects(folder.replace('/src', at, [layer('base.json5', '{ b: 2 }')]));
    await rm(join(data, 'config'));
    await rename(join(data, 'away'), join(data, 'config'));
    assert.equal(folder.load()[0]?.text, '{}');
  });
});
