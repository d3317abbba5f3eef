import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { dataFolderAt } from '../../../core/config/load.js';
import { type ListedPlugin, listText } from '../../../plugins/plugin-kit/list-plugins.js';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../../support/temporary-folder.js';

const plugin = (name: string, rest: Partial<ListedPlugin> = {}): ListedPlugin => ({
  name,
  from: null,
  state: 'running',
  needs: [],
  uses: [],
  provides: [],
  targets: [],
  endpoints: 0,
  waiting: null,
  lastFault: null,
  ...rest,
});

describe('postern plugin list', () => {
  test('shows who lends what to whom, what comes from the site, and how it does', () => {
    const text = listText({
      source: 'server',
      plugins: [
        plugin('users', { needs: ['postern.configuration'], provides: ['postern.directory'], endpoints: 7 }),
        plugin('greylist', {
          from: './greylist',
          state: 'shadow',
          uses: ['postern.directory', 'example.nobody'],
          targets: ['later'],
          waiting: 'It owns a folder.',
        }),
        plugin('broken', {
          from: 'broken.mjs',
          state: 'failed',
          needs: ['example.spring', 'postern.directory'],
          lastFault: { at: '2030-01-01T12:00:00.000Z', where: 'setup', message: 'no luck' },
        }),
      ],
      hooks: [
        { stage: 'rcptTo', phase: 'policy', plugin: 'greylist', mode: 'shadow' },
        { stage: 'rcptTo', phase: 'route', plugin: 'lmtp', mode: 'enforce' },
        { stage: 'rcptTo', phase: 'route', plugin: 'users', mode: 'enforce' },
      ],
    });
    assert.equal(
      text,
      `The server runs these plugins, in the order of their start:

users
  provides   directory
  endpoints  7

greylist  ./greylist  shadow
  uses       users (directory)
  targets    later
  waiting    It owns a folder.

broken  broken.mjs  failed
  needs      nobody (example.spring), users (directory)
  fault      setup, 2030-01-01T12:00:00.000Z: no luck

Hooks, in the order they are asked:

  rcptTo    policy   greylist (shadow)
  rcptTo    route    lmtp, users`,
    );
  });

  test('reports when there are no hooks, and when no server runs', () => {
    const text = listText({ source: 'configuration', plugins: [plugin('users')], hooks: [] });
    assert.match(text, /^No server runs; the configuration names these plugins/);
    assert.match(text, /\n\nHooks, in the order they are asked:\n\n {2}none$/);
  });

  test('finds the server by its data folder, without loading a plugin', async (t) => {
    const cwd = await temporaryFolder(t);
    const at = (overrides: object) => dataFolderAt({ overrides, cwd, env: {} });
    assert.equal(at({}), join(cwd, 'data'));
    assert.equal(at({ data: '/srv/mail' }), '/srv/mail');
    await writeFile(join(cwd, 'postern.json5'), "{ data: 'mail', sitePlugins: ['./nowhere'] }");
    assert.equal(at({}), join(cwd, 'mail'));
    assert.equal(at({ data: 'other' }), join(cwd, 'other'));
    await writeFile(join(cwd, 'postern.json5'), "{ data: { env: 'DATA' } }");
    assert.equal(at({}), join(cwd, 'data'));
  });
});
