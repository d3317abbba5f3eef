import assert from 'node:assert/strict';
import { test } from 'node:test';
import { availablePlugins } from '../../../core/host/plugin-set.js';
import { definePlugin } from '../../../core/plugin.js';
import { siteEntry } from '../../../core/host/site-files.js';

const plugin = (name: string) => definePlugin({ name, setup() {} });
const builtIns = [plugin('users'), plugin('store')];
const module = (option: Parameters<typeof siteEntry>[0], ...names: readonly string[]) => ({
  entry: siteEntry(option),
  place: { entry: '/site/index.js', folder: undefined, kit: undefined },
  fingerprint: 'one',
  plugins: names.map(plugin),
});
const supply = (...modules: readonly ReturnType<typeof module>[]) =>
  availablePlugins(builtIns, { modules, unloaded: [] });

test('a site plugin replaces the built-in one of the same name', () => {
  const { plugins, site } = supply(module('./mine', 'users', 'other'));
  assert.deepEqual(
    plugins.map(({ name }) => name),
    ['store', 'users', 'other'],
  );
  assert.deepEqual([site.get('users')?.replaces, site.get('other')?.replaces], [true, false]);
});

test('two plugins of one name are refused, with their origins', () => {
  assert.throws(
    () => supply(module('./one', 'site'), module('./two', 'site')),
    /\.\/one and \.\/two both bring a plugin called site/,
  );
  assert.throws(() => supply(module('./one', 'site'), module('./one', 'site')), /sitePlugins names \.\/one twice/);
  assert.throws(() => supply(module('./one', 'site', 'site')), /brings two plugins called site/);
});

test('a plugin in shadow mode cannot replace a built-in one', () => {
  const shadowed = { from: './mine', mode: 'shadow', required: false, startSeconds: 30 } as const;
  assert.throws(
    () => supply(module(shadowed, 'users')),
    /\.\/mine takes the place of the built-in plugin users.*shadow/,
  );
  assert.equal(supply(module(shadowed, 'other')).plugins.length, 3);
});
