import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EffectiveValue } from '../../../core/contracts/server.js';
import { MASK } from '../../../core/log/redact.js';
import { config } from '../../../plugins/config/index.js';
import { viewer } from '../../../plugins/config/http/viewer.js';
import { plantedSecrets } from '../../core/log/planted-secrets.js';
import { configurationOf, openPluginSite } from '../plugin-site.js';

const hostile = `"><script>alert(1)</script>{{ 7*7 }}`;

const values: readonly Partial<EffectiveValue>[] = [
  { key: 'hostname', value: 'mail.example.org', origin: 'generated', where: 'operating system' },
  { key: 'http.port', value: 8080, default: 8080, description: 'Port of the management interface.' },
  { key: 'http.accounts.0.password', value: MASK, origin: 'environment', where: 'WEB_PASSWORD', secret: true },
  { key: 'smtp.listeners.0.port', value: 2525, origin: 'file', where: '/etc/postern.json5:4' },
  { key: 'smtp.relayNetworks', value: ['192.0.2.0/24'], default: [], origin: 'file', where: '/etc/postern.json5:9' },
  { key: 'plugins.users.attempts.maxKeys', value: 10_000, default: 10_000 },
  { key: 'plugins.site.greeting', value: hostile, origin: 'file', where: '/etc/postern.json5:12' },
];
const configuration = configurationOf(values, { file: '/etc/postern.json5' });

/** Every planted secret as an option that a careless plugin did not mark. */
const planted = plantedSecrets.flatMap(({ fields, text }, index): readonly Partial<EffectiveValue>[] => [
  ...Object.entries(fields).map(([name, value]) => ({ key: `plugins.site${index}.${name}`, value, default: value })),
  ...(text === undefined ? [] : [{ key: `plugins.site${index}.note`, value: text }]),
]);

test('no planted secret is in the model, in the page or in the answer to a script', async (t) => {
  const site = await openPluginSite(t, config, { configuration: configurationOf(planted) });
  const seen = [
    JSON.stringify(viewer(configurationOf(planted), '', 'all')),
    await site.page('/config'),
    JSON.stringify(await site.json('/config')),
  ];
  for (const { plain } of plantedSecrets) {
    for (const text of seen) {
      assert.ok(!text.includes(plain), plain);
      assert.ok(!text.includes(JSON.stringify(plain).slice(1, -1)), plain);
    }
  }
});

test('a secret cannot be found by searching for it', () => {
  const found = viewer(configurationOf([{ key: 'plugins.site.apiToken', value: 'abcdef' }]), 'abcdef', 'all');
  assert.equal(found.shown, 0);
  assert.equal(found.total, 1);
});

test('keys are in the sections of the file', () => {
  const { sections } = viewer(configuration, '', 'all');
  assert.deepEqual(
    sections.map(({ name, items }) => [name, items.map(({ key }) => key)]),
    [
      ['server', ['hostname']],
      ['http', ['http.port', 'http.accounts.0.password']],
      ['smtp', ['smtp.listeners.0.port', 'smtp.relayNetworks']],
      ['plugins.users', ['plugins.users.attempts.maxKeys']],
      ['plugins.site', ['plugins.site.greeting']],
    ],
  );
});

test('the filter takes words of key, value and meaning, and the origin', () => {
  const keys = (q: string, origin: 'all' | 'set' | 'file' = 'all'): readonly string[] =>
    viewer(configuration, q, origin).sections.flatMap(({ items }) => items.map(({ key }) => key));
  assert.deepEqual(keys('port MANAGEMENT'), ['http.port']);
  assert.deepEqual(keys('192.0.2'), ['smtp.relayNetworks']);
  assert.deepEqual(keys('port', 'file'), ['smtp.listeners.0.port']);
  assert.deepEqual(keys('', 'set').length, 5);
});

test('a script gets value, origin, place, default and meaning; a number is no secret for its name', async (t) => {
  const site = await openPluginSite(t, config, { configuration });
  const { sections, shown, total } = await site.json('/config');
  assert.deepEqual([shown, total], [7, 7]);
  const items = (sections as { items: EffectiveValue[] }[]).flatMap((section) => section.items);
  assert.deepEqual(
    items.find(({ key }) => key === 'smtp.listeners.0.port'),
    {
      key: 'smtp.listeners.0.port',
      value: 2525,
      origin: 'file',
      where: '/etc/postern.json5:4',
      default: null,
      description: null,
      secret: false,
    },
  );
  assert.equal(items.find(({ key }) => key.endsWith('maxKeys'))?.value, 10_000);
});

test('the page is for administrators, works by its form alone, and shows hostile values as text', async (t) => {
  const site = await openPluginSite(t, config, { configuration });
  assert.equal((await site.get('/config', { as: 'operator' })).status, 403);
  assert.equal((await site.get('/config', { as: null })).status, 401);
  const page = await site.page('/config?q=greeting&origin=file');
  assert.match(page, /plugins\.site\.greeting/);
  assert.doesNotMatch(page, /smtp\.listeners/);
  assert.doesNotMatch(page, /<script>alert/);
  assert.match(page, /\{\{ 7\*7 \}\}/);
  assert.match(page, /<option value="file" selected>/);
  assert.match(await site.page(`/config?q=${encodeURIComponent(hostile)}x`), /No key has all of these words/);
  assert.equal((await site.get('/config?origin=nowhere')).status, 400);
});

test('sections are closed until something is looked for, and say what of them is set', async (t) => {
  const site = await openPluginSite(t, config, { configuration });
  const sections = async (path: string): Promise<readonly (readonly [open: boolean, title: string])[]> =>
    [...(await site.page(path)).matchAll(/<details class="section"( open)?>\s*<summary>(.*?)<\/summary>/g)].map(
      ([, open, summary = '']) => [open !== undefined, summary.replace(/<[^>]+>/g, '')],
    );
  assert.deepEqual(await sections('/config'), [
    [false, 'Server 1 key 1 set'],
    [false, 'HTTP 2 keys 1 set'],
    [false, 'SMTP 2 keys 2 set'],
    [false, 'Plugin users 1 key'],
    [false, 'Plugin site 1 key 1 set'],
  ]);
  for (const path of ['/config?q=port', '/config?origin=set']) {
    const found = await sections(path);
    assert.ok(found.length >= 2 && found.every(([open]) => open), path);
  }
});
