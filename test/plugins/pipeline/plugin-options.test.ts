import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';

const plugin = `
import { definePlugin, secret, z } from 'postern/plugin';
export const greeter = definePlugin({
  name: 'greeter',
  options: z.strictObject({
    words: z.array(z.string()).default(['Hello']).describe('What it says to each client.'),
    pauseSeconds: z.int().default(3).describe('How long it thinks before.'),
    token: secret().describe('What it signs with.'),
    motto: z.string().optional().describe('What it says at the end.'),
  }),
  setup() {},
});
export const quiet = definePlugin({ name: 'quiet', setup() {} });
`;

test('a plugin on the page of the pipeline leads to its options: meaning, value, origin, default, and no secret', async (t) => {
  const config = `{ sitePlugins: ['./greeter.mjs'], smtp: { listeners: ${freeListeners} },
    plugins: { greeter: { pauseSeconds: 7, token: 'never shown' } } }`;
  const { admin } = await startInProcess(t, config, {}, (folder) => writeFile(join(folder, 'greeter.mjs'), plugin));
  const list = await admin.page('/pipeline');
  const [, href = '', label] = /<a href="(\/config\?q=plugins\.greeter\.)">([^<]+)</.exec(list) ?? [];
  assert.equal(label, '4 options');
  assert.doesNotMatch(list, /q=plugins\.quiet/);

  const page = await admin.page(href);
  assert.match(page, /<h2>Plugin greeter<\/h2>/);
  assert.match(page, /plugins\.greeter\.pauseSeconds<\/code><div class="muted">How long it thinks before\./);
  assert.match(page, /What it says to each client\./);
  assert.match(page, /What it says at the end\.[\s\S]*?not set/, 'also what is not set');
  assert.doesNotMatch(page, /never shown/);
  const { sections } = (await admin.json(href)) as {
    readonly sections: readonly { readonly items: readonly Readonly<Record<string, unknown>>[] }[];
  };
  const [words, pause, token] = sections.flatMap(({ items }) => items);
  assert.deepEqual([words?.['value'], words?.['origin']], [['Hello'], 'default']);
  assert.deepEqual([pause?.['value'], pause?.['origin'], pause?.['default']], [7, 'file', 3]);
  assert.deepEqual([token?.['secret'], token?.['value']], [true, '••••']);
});
