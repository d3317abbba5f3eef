import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { parseConfigFile } from '../../../core/config/file.js';
import { mergeLayers, enablesLayers, forbiddenKeyComplaints } from '../../../core/config/layered.js';

const file = (path: string, text: string) => parseConfigFile(path, text);

suite('configuration files over each other', () => {
  test('objects are merged, lists and single values are replaced, and each value knows its file', () => {
    const { content, places } = mergeLayers([
      file('base', `{ domains: ['a.example', 'b.example'],\n smtp: { limits: { recipients: 5, errors: 6 } } }`),
      file('mail1', `{ domains: ['c.example'],\n\n smtp: { limits: { recipients: 7 } } }`),
      file('own', `{ hostname: 'mail1' }`),
    ]);
    assert.deepEqual(content, {
      domains: ['c.example'],
      smtp: { limits: { recipients: 7, errors: 6 } },
      hostname: 'mail1',
    });
    const at = (key: string) => {
      const place = places.get(key);
      return place && `${place.file}:${place.line}`;
    };
    assert.equal(at('smtp.limits.recipients'), 'mail1:3');
    assert.equal(at('smtp.limits.errors'), 'base:2');
    assert.equal(at('hostname'), 'own:1');
    assert.equal(at('domains.0'), 'mail1:1');
    assert.equal(at('domains.1'), undefined);
  });

  test('a plugin that is switched off above is off, and one that is switched on above has its options', () => {
    const { content } = mergeLayers([
      file('base', `{ plugins: { a: { size: 1 }, b: false } }`),
      file('own', `{ plugins: { a: false, b: { size: 2 } } }`),
    ]);
    assert.deepEqual(content, { plugins: { a: false, b: { size: 2 } } });
  });

  test('a key called __proto__ stays a key, to be refused', () => {
    const { content } = mergeLayers([file('base', '{}'), file('mail1', `{ __proto__: { hostname: 'x' } }`)]);
    assert.deepEqual(Object.keys(content), ['__proto__']);
    assert.equal((content as { hostname?: string }).hostname, undefined);
  });

  test('a layer may not say where data lies, which code runs and where layers come from', () => {
    const text = `{ data: '/tmp',\n sitePlugins: ['./x.js'],\n plugins: { config: { sync: { source: '/x' } } } }`;
    assert.deepEqual(
      forbiddenKeyComplaints(file('base', text)).map(({ key, place }) => [key, place?.file, place?.line]),
      [
        ['data', 'base', 1],
        ['sitePlugins', 'base', 2],
        ['plugins.config.sync', 'base', 3],
      ],
    );
    assert.deepEqual(forbiddenKeyComplaints(file('base', `{ plugins: { config: { watch: true } } }`)), []);
  });

  test('only the own file switches layers on', () => {
    assert.ok(enablesLayers({ plugins: { config: { sync: {} } } }));
    for (const content of [{}, { plugins: {} }, { plugins: { config: false } }, { plugins: [] }]) {
      assert.ok(!enablesLayers(content));
    }
  });
});
