import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isProblem } from '../../../core/problem.js';
import { layersFor, selectLayers } from '../../../plugins/config/sync/pulled-layers.js';

const select = (names: readonly string[], layers: readonly string[]) => {
  const { files, skipped } = selectLayers(
    names.map((name) => ({ name })),
    layers,
  );
  return { files: files.map(({ name }) => name), skipped: skipped.map(({ file, why }) => `${file} ${why}`) };
};

test('a layer is its file and the files of its folder, in the order of their names', () => {
  const names = ['servers/mail1.json5', 'base/20-tls.json5', 'base/10-limits.json', 'base.json5', 'README.md'];
  const { files, skipped } = select(names, layersFor(['base', 'servers/{server}'], 'mail1'));
  assert.deepEqual(files, ['base.json5', 'base/10-limits.json', 'base/20-tls.json5', 'servers/mail1.json5']);
  assert.deepEqual(skipped, ['README.md is no .json5 file']);
});

test('files of other servers and names that lead elsewhere do not count, and it is said why', () => {
  const names = [
    'base.json5',
    'mail1.json5',
    'mail2.json5',
    '../base.json5',
    'base/../x.json5',
    'base/a/b.json5',
    'b\nx',
  ];
  const { files, skipped } = select(names, layersFor(['base', '{server}'], 'mail1'));
  assert.deepEqual(files, ['base.json5', 'mail1.json5']);
  assert.deepEqual(skipped, [
    'mail2.json5 belongs to no layer of this server',
    '../base.json5 has a name that is not taken',
    'base/../x.json5 has a name that is not taken',
    'base/a/b.json5 belongs to no layer of this server',
    'b\nx has a name that is not taken',
  ]);
});

test('without the first layer nothing counts; a server without a file of its own has the base', () => {
  const invalid = (error: unknown) =>
    isProblem(error) && error.problem === 'invalid' && /the layer base/.test(error.message);
  assert.throws(() => select([], ['base', 'mail1']), invalid);
  assert.throws(() => select(['mail1.json5', 'base.md'], ['base', 'mail1']), invalid);
  assert.deepEqual(select(['base.json5'], ['base', 'mail1']).files, ['base.json5']);
});
