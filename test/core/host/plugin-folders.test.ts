import assert from 'node:assert/strict';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { PluginFolders } from '../../../core/host/plugin-context.js';
import { startInProcess } from '../../support/in-process-server.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const never = (): void => undefined;

test('a plugin has its folder to itself until it has stopped', async (t) => {
  const data = await temporaryFolder(t);
  const folders = new PluginFolders(data);
  const releases: (() => void)[] = [];
  const path = await folders.open('lists', 'lists/new', (release) => releases.push(release));
  assert.equal(path, join(data, 'lists', 'new'));
  assert.equal((await stat(path)).mode & 0o777, 0o700);
  await assert.rejects(
    folders.open('other', 'lists', never),
    /lists in the data folder belongs to lists; choose another, such as "other"/,
  );
  // Its successor, while it is replaced.
  await folders.open('lists', 'lists', (release) => releases.push(release));
  releases.shift()?.();
  await assert.rejects(folders.open('other', 'lists', never), /belongs to lists/);
  releases.shift()?.();
  assert.equal(await folders.open('other', 'lists', never), join(data, 'lists'));
});

test('names that lead outside are refused', async (t) => {
  const folders = new PluginFolders(await temporaryFolder(t));
  for (const name of [
    '',
    '.',
    '..',
    '../x',
    'a/../..',
    '/etc',
    'a//b',
    '.hidden',
    'a\0b',
    'a\\b',
    undefined as never,
  ]) {
    await assert.rejects(folders.open('site', name, never), /make a name, such as "site"/, name);
  }
});

test('folders of the server and the built-in plugins are reserved from the beginning', async (t) => {
  const { folder } = await startInProcess(t);
  const folders = new PluginFolders(join(folder, 'data'));
  const entries = await readdir(join(folder, 'data'), { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map(({ name }) => name);
  for (const name of [...names, 'drafts', 'config', 'heapdumps', 'cache', 'idempotency', 'client-uploads']) {
    await assert.rejects(folders.open('site', name, never), /in the data folder belongs to/, name);
  }
  assert.equal(
    await folders.open('client-queue', 'queue', never),
    join(folder, 'data', 'queue'),
    'or who takes its place',
  );
});
