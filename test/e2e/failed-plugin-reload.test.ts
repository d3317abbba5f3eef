import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startInProcess } from '../support/in-process-server.js';
import { freeListeners } from '../support/server-process.js';

const broken = `
import { definePlugin } from 'postern/plugin';
export const broken = definePlugin({
  name: 'broken',
  setup() { throw new Error('its database does not answer'); },
});`;

async function write(folder: string, name: string, code: string): Promise<void> {
  await mkdir(join(folder, name), { recursive: true });
  await writeFile(join(folder, name, 'package.json'), '{ "type": "module" }');
  await writeFile(join(folder, name, 'index.js'), code);
}

const config = (more = '') =>
  `{ sitePlugins: ['./broken', './unreadable'], smtp: { listeners: ${freeListeners}${more} } }`;

test('a reload names the plugins that failed again, and does not call them in force', async (t) => {
  const server = await startInProcess(t, config(), {}, async (folder) => {
    await write(folder, 'broken', broken);
    await write(folder, 'unreadable', 'export const {');
  });
  const reload = () => server.admin.json('/config/reload', { json: {} });
  const why = (outcome: unknown) => (outcome as { failed: readonly { plugin: string; why: string }[] }).failed;

  const unchanged = await reload();
  assert.deepEqual(
    { ...(unchanged as object), failed: [] },
    { status: 'unchanged', changed: [], restartRequired: [], differences: [], failed: [] },
  );
  assert.deepEqual(
    why(unchanged)
      .map(({ plugin }) => plugin)
      .toSorted(),
    ['broken', 'unreadable'],
  );
  assert.match(why(unchanged).find(({ plugin }) => plugin === 'broken')?.why ?? '', /its database does not answer/);

  await writeFile(join(server.folder, 'postern.json5'), config(', limits: { recipients: 50 }'));
  const form = { form: { confirm: 'yes' }, headers: { Accept: 'text/html' } };
  const { status, headers } = await server.admin.request('/config/reload', form);
  assert.equal(status, 303);
  const page = await server.admin.page(headers.get('location') ?? '');
  assert.match(page, /The plugin broken failed again, and no version of it runs\. [^<]*its database does not answer/);
  assert.match(page, /In force: smtp\.limits\.recipients\./);
  assert.doesNotMatch(page, /In force:[^<]*sitePlugins/);

  await write(server.folder, 'broken', broken.replace("throw new Error('its database does not answer');", ''));
  const mended = (await reload()) as { readonly changed: readonly string[] };
  assert.deepEqual(mended.changed, ['sitePlugins.broken']);
  assert.deepEqual(
    why(mended).map(({ plugin }) => plugin),
    ['unreadable'],
  );
});
