import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Plugin } from '../../../core/plugin.js';
import { siteEntry } from '../../../core/host/site-files.js';
import { loadSitePlugin, loadSitePlugins } from '../../../core/host/site-plugins.js';
import { isStartError } from '../../../core/problem.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const source = (name: string) => `
  import { definePlugin, next } from 'postern/plugin';
  const anything = { parse: (value) => value, safeParse: (data) => ({ success: true, data }) };
  export const plugin = definePlugin({
    name: '${name}',
    options: anything,
    setup({ smtp }) { smtp.on('rcptTo', () => next()); },
  });
`;

async function site(t: TestContext, files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporaryFolder(t);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

async function load(names: readonly string[], folder: string): Promise<readonly Plugin[]> {
  const { modules, unloaded } = await loadSitePlugins(names.map(siteEntry), folder);
  assert.deepEqual(
    unloaded.map(({ why }) => why),
    [],
  );
  return modules.flatMap(({ plugins }) => plugins);
}

async function refusal(name: string, folder: string): Promise<string> {
  try {
    await loadSitePlugin(siteEntry(name), folder);
  } catch (error) {
    assert.ok(isStartError(error), String(error));
    return error.message;
  }
  return assert.fail('it was loaded');
}

suite('site plugins', () => {
  test('a file, a folder, a folder with a manifest and a package are loaded, with the kit of this server', async (t) => {
    const folder = await site(t, {
      'file.mjs': source('from-file'),
      'folder/index.js': source('from-folder'),
      'folder/package.json': '{"type": "module"}',
      'built/package.json': '{"type": "module", "main": "dist/main.js"}',
      'built/dist/main.js': source('from-built'),
      'node_modules/postern-example/package.json': '{"type": "module", "main": "index.js"}',
      'node_modules/postern-example/index.js': source('from-package'),
    });
    const plugins = await load(['file.mjs', './folder', 'built', 'postern-example'], folder);
    assert.deepEqual(
      plugins.map(({ name }) => name),
      ['from-file', 'from-folder', 'from-built', 'from-package'],
    );
  });

  test('every export of the package is the running server’s own, for every importer', async (t) => {
    const read = (...path: readonly string[]) =>
      JSON.parse(readFileSync(join(projectRoot, ...path), 'utf8')) as {
        exports: Record<string, string | { default: string }>;
      };
    const { exports: running } = read('dist', 'package.json');
    const modules = Object.entries(read('package.json').exports).filter(([, target]) => typeof target !== 'string');
    assert.deepEqual(
      modules.map(([name]) => name),
      Object.keys(running),
    );
    for (const [name, target] of Object.entries(running)) {
      if (typeof target === 'string') continue;
      const specifier = `postern${name.slice(1)}`;
      const text = `import * as kit from '${specifier}'; import { definePlugin } from 'postern/plugin';
        export const plugin = definePlugin({ name: 'asks', setup() {} }); export { kit };`;
      const folder = await site(t, { 'asks.mjs': text });
      await load(['asks.mjs'], folder);
      const { kit } = (await import(pathToFileURL(join(folder, 'asks.mjs')).href)) as { kit: unknown };
      assert.equal(kit, await import(pathToFileURL(join(projectRoot, 'dist', target.default)).href), specifier);
    }
  });

  test('a plugin without declared options accepts none', async (t) => {
    const text = `import { definePlugin } from 'postern/plugin'; export const p = definePlugin({ name: 'plain', setup() {} });`;
    const [plugin] = await load(['plain.mjs'], await site(t, { 'plain.mjs': text }));
    assert.deepEqual(plugin?.options.parse({}), {});
    assert.equal(plugin.options.safeParse({ size: 1 }).success, false);
  });

  test('a plugin that cannot be loaded is named with the reason', async (t) => {
    const folder = await site(t, {
      'empty.mjs': 'export const nothing = 1;',
      'broken.mjs': 'export const = ;',
      'throws.mjs': 'throw new Error("no luck");',
      'no-entry/readme.txt': '',
      'bad-manifest/package.json': '{',
      'no-manifest/package.json': 'null',
      'no-manifest/index.js': source('no-manifest'),
      'future/package.json': '{ "type": "module", "postern": { "kit": "9.0" } }',
      'future/index.js': `import { unheardOf } from 'postern/plugin';`,
      'wants.mjs': `import { unheardOf } from 'postern/plugin';`,
      'newer.mjs': `export const plugin = { postern: 'plugin', kit: 99, name: 'newer', setup() {}, options: { safeParse() {} } };`,
    });
    const cases: readonly (readonly [string, RegExp])[] = [
      ['empty.mjs', /empty\.mjs exports no plugin/],
      ['broken.mjs', /broken\.mjs cannot be loaded: /],
      ['throws.mjs', /throws\.mjs cannot be loaded: throws\.mjs:1:7: no luck/],
      ['no-entry', /no-entry: the folder has no index\.js/],
      ['bad-manifest', /package\.json is not valid JSON/],
      ['no-manifest', /package\.json is not a JSON object/],
      ['future', /its package\.json is written for version 9\.0 .*: update Postern/],
      ['wants.mjs', /wants\.mjs cannot be loaded: .*unheardOf.*version 1\.0 of the plugin kit is here/],
      ['./missing', /missing: there is no file or folder/],
      ['missing-package', /neither a file or folder .* nor an installed package/],
      ['newer.mjs', /newer is written for version 99 of the plugin kit.*: update Postern/],
    ];
    for (const [name, expected] of cases) assert.match(await refusal(name, folder), expected, name);
  });

  test('a wrong declaration is named with the reason', async (t) => {
    const folder = await site(t, {
      'no-setup.mjs': `import { definePlugin } from 'postern/plugin'; export const p = definePlugin({ name: 'no-setup' });`,
      'of-server.mjs': source('smtp'),
    });
    const { unloaded } = await loadSitePlugins(['no-setup.mjs', 'of-server.mjs'].map(siteEntry), folder);
    assert.deepEqual(
      unloaded.map(({ why }) => why),
      [
        'Site plugin no-setup.mjs: setup: not a function.',
        'Site plugin of-server.mjs: name: smtp is reserved for a part of the server: choose another.',
      ],
    );
  });

  test('an unreadable folder does not keep other plugins from loading', async (t) => {
    const folder = await site(t, { 'good.mjs': source('good'), 'bad/index.js': source('bad') });
    // A folder in the place of a file that must be read.
    mkdirSync(join(folder, 'bad', 'package.json'));
    const { modules, unloaded } = await loadSitePlugins(['good.mjs', 'bad'].map(siteEntry), folder);
    assert.deepEqual(
      modules.map(({ entry }) => entry.from),
      ['good.mjs'],
    );
    assert.match(unloaded[0]?.why ?? '', /^Site plugin bad cannot be read: .*EISDIR/);
  });
});
