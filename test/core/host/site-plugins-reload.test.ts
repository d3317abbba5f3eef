import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import type { PluginState } from '../../../core/contracts/plugins-overview.js';
import type { ReloadOutcome } from '../../../core/contracts/server.js';
import { startInProcess, type InProcessServer } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpClient } from '../../support/smtp-client.js';

type Files = Readonly<Record<string, string>>;

/** A plugin that refuses every sender with that text, and tells it on a page. */
const refusing = (text: string, more = '') => `
import { defineEndpoint, definePlugin, reject } from 'postern/plugin';
import { word } from './words.js';
export const site = definePlugin({
  name: 'site',
  ${more}
  setup({ smtp, http, metrics, every, health, onClose }) {
    metrics.counter('site_total', 'Counted.');
    every(3600, () => undefined);
    health.check('site words', () => ({ status: 'up' }));
    smtp.on('mailFrom', () => reject(550, '5.7.1', '${text} ' + word));
    http.mount([defineEndpoint({ method: 'GET', path: '/site', summary: 'Words', group: 'Site', access: 'read', handle: () => ({ word, text: '${text}' }) })]);
    http.navigate({ title: 'Site words', href: '/site', order: 5, role: 'read' });
  },
});`;
const words = (word: string) => `export const word = '${word}';`;
const configOf = (entries: string, plugins = '') =>
  `{ smtp: { listeners: ${freeListeners} }, sitePlugins: [${entries}], plugins: { ${plugins} } }`;

async function put({ folder }: Pick<InProcessServer, 'folder'>, files: Files): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

const start = (t: TestContext, config: string, files: Files) =>
  startInProcess(t, config, {}, (folder) => put({ folder }, { 'site/package.json': '{"type":"module"}', ...files }));

const reload = async ({ admin }: InProcessServer, status = 200, body: object = {}): Promise<ReloadOutcome> =>
  (await admin.json('/config/reload', { method: 'POST', json: body }, status)) as ReloadOutcome;

async function stateOf(server: InProcessServer, name: string): Promise<PluginState | undefined> {
  const { plugins } = (await server.admin.json('/pipeline')) as { plugins: readonly PluginState[] };
  return plugins.find((plugin) => plugin.name === name);
}

async function healthOf({ admin }: InProcessServer, name: string) {
  const { components } = (await admin.json('/health/extended')) as {
    components: Record<string, { status: string; why: string | null } | undefined>;
  };
  return components[name];
}

/** What MAIL is answered. */
async function mail(server: InProcessServer, client?: SmtpClient): Promise<string> {
  const own = client ?? (await SmtpClient.greeted({ port: server.portOf('mx') }));
  const { raw } = await own.command('MAIL FROM:<a@sender.example>');
  if (client === undefined) own.close();
  return raw.trim();
}

interface AuditLine {
  readonly selector?: { readonly refused?: string };
}

suite('a reload of a plugin of the site', () => {
  test('loads every changed file, and an open session keeps the old version', async (t) => {
    const server = await start(t, configOf(`'./site'`), {
      'site/index.js': refusing('one'),
      'site/words.js': words('alpha'),
    });
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    assert.equal((await reload(server)).status, 'unchanged');
    await put(server, { 'site/words.js': words('beta') });
    const dry = await reload(server, 200, { dryRun: true });
    assert.deepEqual(dry.changed, ['sitePlugins.site']);
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    const client = await SmtpClient.greeted({ port: server.portOf('mx') });
    const { status, changed, restartRequired } = await reload(server);
    assert.deepEqual([status, changed, restartRequired], ['reloaded', ['sitePlugins.site'], []]);
    assert.equal(await mail(server), '550 5.7.1 one beta');
    assert.equal(await mail(server, client), '550 5.7.1 one beta');
    client.close();
    assert.deepEqual(await server.admin.json('/site'), { word: 'beta', text: 'one' });
    assert.equal((await reload(server)).status, 'unchanged');
    const state = await stateOf(server, 'site');
    assert.deepEqual([state?.state, state?.versions, state?.from], ['running', 2, './site']);
    const audit = await readFile(join(server.folder, 'data', 'logs', 'audit.log'), 'utf8');
    assert.match(audit, /sitePlugins\.site/);
  });

  test('that does not load, does not start or never finishes is refused, and the running version continues', async (t) => {
    const files = { 'site/index.js': refusing('one'), 'site/words.js': words('alpha') };
    const server = await start(t, configOf(`{ from: './site', startSeconds: 1 }`), files);
    const broken: readonly (readonly [Files, RegExp])[] = [
      [{ 'site/index.js': 'export const = 1;' }, /site.* cannot be loaded: .*The running version continues/],
      [{ 'site/index.js': 'export const nothing = 1;' }, /exports no plugin/],
      [{ 'site/index.js': `await new Promise(() => {});` }, /it is not loaded after 1 s/],
      [
        { 'site/index.js': refusing('x').replace('setup({', 'setup() { throw new Error("no luck"); }, old({') },
        /"The plugin site \(\.\/site\) is refused: index\.js:7:\d+: no luck\. The running version continues\."/,
      ],
      [
        { 'site/index.js': refusing('x').replace('setup({', 'setup() { return new Promise(() => {}); }, old({') },
        /it has not started after 1 s/,
      ],
      [{ 'site/index.js': refusing('x').replace(`'/site'`, `'/users'`) }, /GET \/users is mounted twice/],
      [
        { 'site/index.js': refusing('x').replace(`'mailFrom'`, `'mailTo'`) },
        /The plugin site \(\.\/site\) is refused: hook of mailTo: there is no such stage/,
      ],
      [{ 'site/index.js': refusing('x', `kit: '1.9',`) }, /written for version 1\.9 .*update Postern/],
    ];
    for (const [change, why] of broken) {
      await put(server, change);
      const { status, text } = await server.admin.request('/config/reload', { method: 'POST', json: {} });
      assert.equal(status, 422, text);
      assert.match(text, why);
      assert.equal(await mail(server), '550 5.7.1 one alpha', text);
      assert.deepEqual(await server.admin.json('/site'), { word: 'alpha', text: 'one' });
      await put(server, files);
    }
    assert.equal((await reload(server)).status, 'unchanged');
    const { text } = await server.admin.request('/metrics/prometheus');
    assert.match(text, /^postern_site_total 0$/m);
    const audit = await readFile(join(server.folder, 'data', 'logs', 'audit.log'), 'utf8');
    const refusals = audit
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as AuditLine);
    assert.match(refusals[0]?.selector?.refused ?? '', /^Site plugin \.\/site cannot be loaded/);
    assert.match(refusals[3]?.selector?.refused ?? '', /^The plugin site .* is refused: .*no luck/);
    await put(server, { 'site/index.js': 'export const = 1;' });
    const page = await server.admin.request('/config/reload', {
      form: {},
      accept: 'text/html',
      headers: { 'Sec-Fetch-Site': 'same-origin' },
    });
    assert.equal(page.text.split('cannot be loaded').length, 2, 'a page says it once');
  });

  test('keeps the old version for a request whose body is still arriving', async (t) => {
    const taking = (word: string) => `import { defineEndpoint, definePlugin, z } from 'postern/plugin';
      export const site = definePlugin({ name: 'site', setup({ http, onClose }) {
        let open = true;
        onClose(() => { open = false; });
        http.mount([defineEndpoint({ method: 'POST', path: '/site', summary: 'x', group: 'Site', access: 'public',
          body: { kind: 'fields', schema: z.object({ a: z.int() }) }, handle: () => ({ word: '${word}', open }) })]);
      } });`;
    const server = await start(t, configOf(`'./site'`), { 'site/index.js': taking('one') });
    const asking = request(`${server.base}/site`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Content-Length': 7, Expect: '100-continue' },
    });
    asking.flushHeaders();
    await once(asking, 'continue');
    asking.write('{"a"');
    await pause(50);
    await put(server, { 'site/index.js': taking('two') });
    await reload(server);
    await pause(50);
    asking.end(':1}');
    const [answer] = (await once(asking, 'response')) as [IncomingMessage];
    assert.deepEqual(JSON.parse(await text(answer)), { word: 'one', open: true });
    const next = await server.admin.json('/site', { json: { a: 1 } });
    assert.deepEqual(next, { word: 'two', open: true });
  });

  test('adds and removes plugins without a restart', async (t) => {
    const files = { 'site/index.js': refusing('one'), 'site/words.js': words('alpha') };
    const server = await start(t, configOf(''), files);
    assert.match(await mail(server), /^250/);
    await put(server, { 'postern.json5': configOf(`'./site'`) });
    const added = await reload(server);
    assert.ok(added.changed.includes('sitePlugins.site'), JSON.stringify(added));
    assert.deepEqual(added.restartRequired, []);
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    assert.match(await server.admin.page('/'), />Audit<.*>Site words</s, 'behind the pages of the server');
    await put(server, { 'postern.json5': configOf('') });
    const removed = await reload(server);
    assert.deepEqual(removed.restartRequired, []);
    assert.match(await mail(server), /^250/);
    assert.equal((await server.admin.request('/site')).status, 404);
    assert.doesNotMatch(await server.admin.page('/'), /Site words/);
    assert.equal(await stateOf(server, 'site'), undefined);
  });

  test('waits for a restart, with the reason, where two versions cannot run side by side', async (t) => {
    const owner = (word: string, more = '') => `
      import { definePlugin, reject, service } from 'postern/plugin';
      export const owner = definePlugin({ name: 'owner', ${more}
        async setup({ smtp, folder }) { await folder('owner'); smtp.on('mailFrom', () => reject(550, '5.7.1', '${word}')); } });`;
    const server = await start(t, configOf(`'./site/owner.js'`), { 'site/owner.js': owner('one') });
    await put(server, { 'site/owner.js': owner('two') });
    const { status, changed, restartRequired, differences } = await reload(server);
    assert.deepEqual([status, changed, restartRequired], ['unchanged', [], ['sitePlugins.owner']]);
    assert.match(differences[0]?.why ?? '', /files of its own.*reload: 'replace'/);
    assert.match((await stateOf(server, 'owner'))?.waiting ?? '', /files of its own/);
    assert.equal(await mail(server), '550 5.7.1 one');
    // The one that runs counts, not what the file says by now.
    await put(server, { 'site/owner.js': owner('three', `reload: 'replace',`) });
    assert.deepEqual((await reload(server)).restartRequired, ['sitePlugins.owner']);
  });

  test('is refused as a whole while its name in health is taken', async (t) => {
    const taking = `import { definePlugin } from 'postern/plugin';
      export const taking = definePlugin({ name: 'taking', setup({ health }) { health.check('plugin site', () => ({ status: 'up' })); } });`;
    const files = { 'site/index.js': refusing('one'), 'site/words.js': words('alpha'), 'taking.mjs': taking };
    const another = `import { definePlugin } from 'postern/plugin'; export const a = definePlugin({ name: 'another', setup() {} });`;
    const server = await start(t, configOf(`'./taking.mjs', './another.mjs'`), { ...files, 'another.mjs': another });
    await put(server, { 'postern.json5': configOf(`'./taking.mjs', './another.mjs', './site'`) });
    for (const attempt of ['the first', 'the second']) {
      const { status, text } = await server.admin.request('/config/reload', { method: 'POST', json: {} });
      assert.equal(status, 422, text);
      assert.match(text, /plugin site.*is already checked by taking/, attempt);
      assert.equal((await healthOf(server, 'plugin another'))?.status, 'up', attempt);
    }
  });

  test('is rolled back as a whole when a later part refuses', async (t) => {
    const files = { 'site/index.js': refusing('one'), 'site/words.js': words('alpha') };
    const server = await start(t, configOf(`'./site'`), files);
    const { port } = server.server.app.http.address();
    await put(server, {
      'site/words.js': words('beta'),
      'postern.json5': configOf(`'./site'`).replace('listeners: [', `listeners: [{ name: 'web', port: ${port} },`),
    });
    await reload(server, 422);
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    assert.equal((await stateOf(server, 'site'))?.state, 'running');
    await put(server, { 'postern.json5': configOf(`'./site'`) });
    assert.deepEqual((await reload(server)).changed, ['sitePlugins.site']);
    assert.equal(await mail(server), '550 5.7.1 one beta');
  });

  test('switches it to shadow mode, as the configuration and the pipeline show', async (t) => {
    const files = { 'site/index.js': refusing('one'), 'site/words.js': words('alpha') };
    const server = await start(t, configOf(`{ from: './site', mode: 'shadow' }`), files);
    assert.match(await mail(server), /^250/);
    assert.equal((await stateOf(server, 'site'))?.state, 'shadow');
    await put(server, { 'postern.json5': configOf(`{ from: './site', mode: 'enforce' }`) });
    assert.deepEqual((await reload(server)).changed, ['sitePlugins.0.mode']);
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    await put(server, {
      'site/words.js': words('beta'),
      'postern.json5': configOf(`{ from: './site', mode: 'shadow' }`),
    });
    await reload(server);
    assert.match(await mail(server), /^250/);
    const { sections } = (await server.admin.json('/config')) as {
      sections: readonly { items: readonly { key: string; value: unknown }[] }[];
    };
    const mode = sections.flatMap(({ items }) => items).find(({ key }) => key === 'sitePlugins.0.mode');
    assert.equal(mode?.value, 'shadow');
  });

  test('replaces a plugin that replaces a built-in one', async (t) => {
    const own = (answer: string) => `
      import { definePlugin, reject, z } from 'postern/plugin';
      export const lmtp = definePlugin({ name: 'lmtp', options: z.strictObject({ word: z.string() }),
        setup({ smtp, http }, { options }) { smtp.on('mailFrom', () => reject(550, '5.7.1', '${answer} ' + options.word)); } });`;
    const configuration = (word: string) => configOf(`'./site/lmtp.js'`, `lmtp: { word: '${word}' }`);
    const server = await start(t, configuration('alpha'), { 'site/lmtp.js': own('one') });
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    assert.equal((await server.admin.request('/lmtp')).status, 404);
    await put(server, { 'site/lmtp.js': own('two'), 'postern.json5': configuration('beta') });
    const { changed, restartRequired } = await reload(server);
    assert.deepEqual([changed.toSorted(), restartRequired], [['plugins.lmtp.word', 'sitePlugins.lmtp'], []]);
    assert.equal(await mail(server), '550 5.7.1 two beta');
    await put(server, { 'postern.json5': configOf('') });
    const back = await reload(server);
    assert.ok(back.restartRequired.includes('sitePlugins.lmtp'), JSON.stringify(back));
    assert.equal(await mail(server), '550 5.7.1 two beta');
  });

  test('loads CommonJS anew, with the kit of this server', async (t) => {
    const index = (word: string) => `
      const { definePlugin, reject } = require('postern/plugin');
      const { part } = require('./part.cjs');
      exports.old = definePlugin({ name: 'old', setup({ smtp }) { smtp.on('mailFrom', () => reject(550, '5.7.1', '${word} ' + part)); } });`;
    const server = await start(t, configOf(`'./old/index.cjs'`), {
      'old/index.cjs': index('one'),
      'old/part.cjs': `exports.part = 'alpha';`,
    });
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    await put(server, { 'old/part.cjs': `exports.part = 'beta';` });
    assert.deepEqual((await reload(server)).changed, ['sitePlugins.old']);
    assert.equal(await mail(server), '550 5.7.1 one beta');
  });
});

suite('a plugin of the site that fails', () => {
  test('at the start is left out; health and the pipeline say why, and a reload repairs it', async (t) => {
    const files = { 'site/index.js': 'export const = 1;', 'site/words.js': words('alpha') };
    const server = await start(t, configOf(`'./site'`, 'site: { any: 1 }'), files);
    assert.match(await mail(server), /^250/);
    const health = await healthOf(server, 'plugin site');
    assert.equal(health?.status, 'degraded');
    assert.match(health.why ?? '', /left out.*cannot be loaded/);
    const state = await stateOf(server, 'site');
    assert.deepEqual([state?.state, state?.lastFault?.where], ['failed', 'load']);
    // Other changes are taken meanwhile.
    assert.equal((await reload(server)).status, 'unchanged');
    await put(server, { 'site/index.js': 'export const = 2;' });
    await reload(server, 422);
    await put(server, { 'site/index.js': refusing('one'), 'postern.json5': configOf(`'./site'`) });
    assert.ok((await reload(server)).changed.includes('sitePlugins.site'));
    assert.equal(await mail(server), '550 5.7.1 one alpha');
    assert.equal((await healthOf(server, 'plugin site'))?.status, 'up');
    assert.equal((await stateOf(server, 'site'))?.state, 'running');
  });

  test('whose hooks fail repeatedly is degraded, with its last error', async (t) => {
    const server = await start(t, configOf(`'./site'`), {
      'site/index.js': refusing('one').replace(
        '() => reject(',
        `((...said) => () => { throw new Error('out of order ' + said); })(`,
      ),
      'site/words.js': words('alpha'),
    });
    for (let count = 0; count < 3; count += 1) assert.match(await mail(server), /^451/);
    const state = await stateOf(server, 'site');
    assert.deepEqual([state?.faults, state?.lastFault?.where], [3, 'hook mailFrom']);
    assert.match(state?.lastFault?.message ?? '', /out of order/);
    assert.equal((await healthOf(server, 'plugin site'))?.status, 'degraded');
    await put(server, { 'site/index.js': refusing('two') });
    await reload(server);
    assert.equal((await stateOf(server, 'site'))?.faults, 0);
    assert.equal((await healthOf(server, 'plugin site'))?.status, 'up');
    await rm(join(server.folder, 'site', 'words.js'));
    await reload(server, 422);
    assert.equal(await mail(server), '550 5.7.1 two alpha');
  });
});
