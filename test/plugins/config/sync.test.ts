import assert from 'node:assert/strict';
import { cp, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { before, beforeEach, suite, test } from 'node:test';
import { sha256Of } from '../../../core/config/layer-folder.js';
import type { SyncOutcome, SyncStatus } from '../../../plugins/config/sync/sync.js';
import { until } from '../../support/until.js';
import { suiteEnding } from '../../support/ending.js';
import { startInProcess, type InProcessServer } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';

const listeners = `smtp: { listeners: ${freeListeners} }`;
const own = (sync: string, more = '') =>
  `{ ${listeners}, ${more} sitePlugins: ['./bucket.mjs'], plugins: { config: { sync: ${sync} } } }`;
/** Looks when it is new, and then only when a test asks. */
const folderSync = `{ source: './central', server: 'mail1', intervalSeconds: 86400 }`;
const usualBase = `{ smtp: { limits: { recipients: 5 } } }`;

/** What the sources of the site plugin have; it runs in this process. */
const content = { recipients: 42 as unknown, watchers: new Set<() => void>(), wanted: false, results: [] as unknown[] };
Object.assign(globalThis, { contentOfBucket: content });

/** A site plugin that offers sources of a kind of its own. */
const bucket = `
import { configurationSources, definePlugin, z } from 'postern/plugin';
export const bucket = definePlugin({
  name: 'bucket', options: z.strictObject({}), needs: { configurationSources },
  setup({ onClose }, { configurationSources }) {
    const { contentOfBucket: content } = globalThis;
    const text = () => '{ smtp: { limits: { recipients: ' + content.recipients + ' } } }';
    onClose(configurationSources.add('bucket', ({ address }) => ({
      shown: address,
      look: async () => ({ wanted: content.wanted, files: [{ name: 'base.json5' }], skipped: [], read: async () => Buffer.from(text()), confirm: async () => {} }),
      watch: (listener) => {
        content.watchers.add(listener);
        return () => content.watchers.delete(listener);
      },
      done: async (result) => void content.results.push(result),
      servers: async () => [{ server: 'mail1', version: 'the first', state: 'applied', why: null }],
    })));
  },
});`;

const ending = suiteEnding();
let server: InProcessServer;
before(async () => {
  server = await startInProcess(ending, own(folderSync), {}, async (folder) => {
    await writeFile(join(folder, 'bucket.mjs'), bucket);
    await mkdir(join(folder, 'central'));
    await writeFile(join(folder, 'central', 'base.json5'), usualBase);
  });
  await untilLooked();
});

const statusOf = async ({ admin } = server) => (await admin.json('/config/sync/status')) as SyncStatus;

const untilLooked = (one = server): Promise<SyncStatus> =>
  until('a look at the source', async () => {
    const status = await statusOf(one);
    return status.lastSuccess === null && status.error === null ? undefined : status;
  });

const reload = () => server.admin.json('/config/reload', { method: 'POST', json: {} });
const pull = async (body: object = {}) =>
  (await server.admin.json('/config/sync', { method: 'POST', json: body })) as SyncOutcome;

/** Changes the own file of the server; looks at the source when that is another one. */
async function configure(sync: string, more = ''): Promise<SyncStatus> {
  await writeFile(join(server.folder, 'postern.json5'), own(sync, more));
  await reload();
  return untilLooked();
}

async function refusal(expected = 422): Promise<string> {
  const { status, text } = await server.admin.request('/config/sync', { method: 'POST', json: {} });
  assert.equal(status, expected, text);
  return text;
}

const central = (name: string) => join(server.folder, 'central', name);
const current = (name: string) => join(server.folder, 'data', 'config', 'current', name);
const inForce = ({ server: running } = server) => running.app.configuration.current;
const recipients = (one = server): number => inForce(one).settings.smtp.limits.recipients;
const sections = async () => JSON.stringify(((await server.admin.json('/config')) as { sections: unknown }).sections);

/** Every test begins with the usual base and nothing else. */
beforeEach(async () => {
  for (const name of await readdir(join(server.folder, 'central'))) await rm(central(name), { recursive: true });
  await writeFile(central('base.json5'), usualBase);
  await configure(folderSync);
  await pull();
  assert.equal(recipients(), 5);
});

suite('sync from a folder', () => {
  test('base, then the file of this server, then its own file: the last one wins', async () => {
    await writeFile(
      central('base.json5'),
      `{ smtp: { limits: { recipients: 5, errors: 6, hops: 7 } }, shutdownSeconds: 1 }`,
    );
    await pull();
    await writeFile(central('mail1.json5'), '{ smtp: { limits: { errors: 9 } }, shutdownSeconds: 2 }');
    await writeFile(central('mail2.json5'), '{ broken');
    const outcome = await pull();
    assert.equal(outcome.status, 'applied');
    assert.deepEqual(outcome.changed.toSorted(), ['shutdownSeconds', 'smtp.limits.errors']);
    const { recipients: most, errors, hops } = inForce().settings.smtp.limits;
    assert.deepEqual([most, errors, hops, inForce().settings.shutdownSeconds], [5, 9, 7, 2]);
    const { state, applied, skipped, drift, error } = await statusOf();
    assert.deepEqual([state, error], ['ok', null]);
    assert.deepEqual(
      applied.map(({ file, layer }) => [file, layer]),
      [
        ['base.json5', 'base'],
        ['mail1.json5', 'mail1'],
      ],
    );
    assert.deepEqual(skipped, [{ file: 'mail2.json5', why: 'belongs to no layer of this server' }]);
    assert.deepEqual(drift, { source: [], disk: [], running: { changed: [], restartRequired: [], error: null } });
    await configure(folderSync, 'shutdownSeconds: 3,');
    assert.equal(inForce().settings.shutdownSeconds, 3);
    const viewed = JSON.stringify(await server.admin.json('/config?q=limits.errors'));
    assert.match(viewed, /"where":"sync:mail1\.json5:1"/);
    assert.equal((await pull()).status, 'unchanged');
  });

  test('the next start has what was applied, although the source is gone', async (t) => {
    await writeFile(central('mail1.json5'), '{ smtp: { limits: { recipients: 8 } } }');
    await pull();
    const again = await startInProcess(t, own(folderSync), {}, async (folder) => {
      await cp(join(server.folder, 'data', 'config'), join(folder, 'data', 'config'), {
        recursive: true,
        verbatimSymlinks: true,
      });
      await writeFile(join(folder, 'bucket.mjs'), bucket);
    });
    assert.equal(recipients(again), 8);
    const { state, lastSuccess, error, applied } = await untilLooked(again);
    assert.deepEqual([state, lastSuccess, applied.length], ['stale', null, 2]);
    assert.match(error ?? '', /central is not there/);
    const { components } = (await again.admin.json('/health/extended')) as {
      components: Record<string, { status: string; why: string | null }>;
    };
    const health = Object.entries(components).find(([name]) => name.includes('sync'))?.[1];
    assert.match(`${health?.status} ${health?.why}`, /degraded Sync is stale: .*central is not there/i);
  });

  test('a broken source changes nothing, says what is wrong and where, and is taken when it is mended', async () => {
    const faults: readonly (readonly [string, string | Buffer, RegExp])[] = [
      ['mail1.json5', '{ smtp: { limits: { recipi', /sync:mail1\.json5:1:\d+: not valid JSON5/],
      ['mail1.json5', '', /sync:mail1\.json5:1:1: not valid JSON5/],
      [
        'mail1.json5',
        '{\n  smtp: { limit: {} } }',
        /sync:mail1\.json5:2:\d+: smtp\.limit: unknown key; did you mean limits/,
      ],
      ['mail1.json5', '{ smtp: { limits: { recipients: 0 } } }', /sync:mail1\.json5:1:\d+: smtp\.limits\.recipients: /],
      ['mail1.json5', '[]', /must be an object/],
      [
        'mail1.json5',
        `{ data: '/tmp' }`,
        /sync:mail1\.json5:1:3: data: only the configuration file of the server itself/,
      ],
      ['mail1.json5', `{ sitePlugins: ['./evil.mjs'] }`, /sitePlugins: only the configuration file/],
      ['mail1.json5', `{ plugins: { config: { sync: { source: '/x' } } } }`, /plugins\.config\.sync: only/],
      ['mail1.json5', Buffer.from([0x7b, 0xff, 0xfe, 0x7d]), /mail1\.json5 is not UTF-8/],
      ['mail1.json5', `// ${'x'.repeat(1_100_000)}\n{}`, /larger than 1048576 bytes/],
      ['base.json5', '{ hostnam: 1 }', /sync:base\.json5:1:3: hostnam: unknown key; did you mean hostname/],
    ];
    const before = await sections();
    for (const [name, text, expected] of faults) {
      await writeFile(central('base.json5'), usualBase);
      await writeFile(central(name), text);
      assert.match(await refusal(), expected, String(text).slice(0, 60));
      const { state, error, skipped } = await statusOf();
      assert.equal(state, 'error');
      assert.ok(error !== null && error.length > 0);
      if (error.startsWith('sync:'))
        assert.ok(
          skipped.some(({ file, why }) => file === name && expected.test(why)),
          error,
        );
      await rm(central(name));
    }
    assert.equal(await sections(), before);
    assert.match(await refusal(), /The source has nothing for the layer base/);
    await writeFile(central('base.json5'), `{ smtp: { limits: { recipients: 6 } } }`);
    assert.equal((await pull()).status, 'applied');
    assert.equal(recipients(), 6);
    assert.equal((await statusOf()).state, 'ok');
  });

  test('a change that the server refuses is revoked, on disk as well', async () => {
    const { port } = server.server.app.http.address();
    const sync = `plugins: { config: { sync: ${folderSync} } }, sitePlugins: ['./bucket.mjs']`;
    await writeFile(central('base.json5'), `{ smtp: { listeners: ${freeListeners}, limits: { recipients: 5 } } }`);
    await pull();
    await writeFile(join(server.folder, 'postern.json5'), `{ ${sync} }`);
    await reload();
    const before = await readFile(current('applied.json'), 'utf8');
    const bound = server.portOf('mx');
    await writeFile(
      central('base.json5'),
      `{ smtp: { listeners: [{ port: 0 }, { name: 'web', port: ${port} }], limits: { recipients: 7 } } }`,
    );
    assert.match(await refusal(), /listener web cannot listen on 127\.0\.0\.1/);
    assert.deepEqual([recipients(), server.portOf('mx')], [5, bound]);
    assert.equal(await readFile(current('applied.json'), 'utf8'), before);
    const { drift, skipped } = await statusOf();
    assert.deepEqual(drift?.source, ['base.json5']);
    assert.deepEqual(skipped, [{ file: 'base.json5', why: 'waits, because the configuration is refused' }]);
    await writeFile(central('base.json5'), `{ smtp: { listeners: [{ port: 0 }, { name: 'other', port: 0 }] } }`);
    await pull();
    assert.notEqual(server.portOf('other'), 0);
    assert.equal(server.portOf('submission'), 0);
  });

  test('a state that cannot be kept on disk does not come into force', async () => {
    const folder = join(server.folder, 'data', 'config');
    await writeFile(central('base.json5'), `{ smtp: { limits: { recipients: 7 } } }`);
    // A file where the folder should be stops the superuser too.
    await rename(folder, `${folder}-away`);
    await writeFile(folder, '');
    await refusal(500);
    await rm(folder);
    await rename(`${folder}-away`, folder);
    assert.equal(recipients(), 5);
  });

  test('what was edited in the data folder is shown and written anew, links that lead out do not count', async () => {
    await writeFile(current('base.json5'), '{ shutdownSeconds: 4 }');
    await writeFile(join(server.folder, 'secret.json5'), '{ shutdownSeconds: 5 }');
    await symlink(join(server.folder, 'secret.json5'), central('mail1.json5'));
    const { state, drift } = await statusOf();
    assert.deepEqual([state, drift?.disk], ['stale', ['base.json5']]);
    assert.ok(drift?.running.changed.includes('shutdownSeconds'));
    const { status, skipped } = await pull();
    assert.equal(status, 'applied');
    assert.deepEqual(skipped, [{ file: 'mail1.json5', why: 'is a link that leads out of the source' }]);
    assert.notEqual(inForce().settings.shutdownSeconds, 5);
    assert.deepEqual((await statusOf()).drift?.disk, []);
  });

  test('a mounted ConfigMap is exchanged as a whole, by its link', async () => {
    const map = async (name: string, count: number) => {
      await mkdir(central(name));
      await writeFile(central(`${name}/base.json5`), `{ smtp: { limits: { recipients: ${count} } } }`);
      await symlink(name, central('..data_tmp'));
      await rename(central('..data_tmp'), central('..data'));
    };
    await rm(central('base.json5'));
    await map('..2026_11_21_a', 11);
    await symlink('..data/base.json5', central('base.json5'));
    await pull();
    assert.equal(recipients(), 11);
    await map('..2026_11_21_b', 12);
    await pull();
    assert.equal(recipients(), 12);
  });

  test('a dry run tells what would change; by hand means that nothing applied automatically', async () => {
    const manual = folderSync.replace('{', `{ apply: 'manual',`);
    await writeFile(central('base.json5'), '{ smtp: { limits: { recipients: 6 } } }');
    const { state, drift, applied } = await configure(manual);
    assert.deepEqual([state, drift?.source, applied.length], ['stale', ['base.json5'], 1]);
    const dry = await pull({ dryRun: true });
    assert.deepEqual([dry.status, dry.changed, dry.differences[0]?.after], ['dryRun', ['smtp.limits.recipients'], 6]);
    assert.equal(recipients(), 5);
    assert.equal((await pull()).status, 'applied');
    assert.equal(recipients(), 6);
  });

  test('is switched off and on by a reload, and says so on its pages', async () => {
    assert.match(await server.admin.page('/config'), /<h2>Sync<\/h2>/);
    assert.match(await server.admin.page('/config/sync/status'), /Source, disk and running configuration agree/);
    await writeFile(join(server.folder, 'postern.json5'), `{ ${listeners}, sitePlugins: ['./bucket.mjs'] }`);
    await reload();
    assert.notEqual(recipients(), 5);
    assert.equal((await statusOf()).state, 'off');
    assert.match(await refusal(409), /plugins\.config\.sync/);
    assert.match(await server.admin.page('/config/sync/status'), /No source is configured/);
    await configure(folderSync);
    assert.equal(recipients(), 5);
  });

  test('asks on a page that shows what would change, and notes who did it', async () => {
    await writeFile(central('base.json5'), `{ smtp: { limits: { recipients: 77 } } }`);
    const asked = await server.admin.request('/config/sync', { accept: 'text/html', form: {} });
    assert.equal(asked.status, 200);
    assert.match(asked.text, /Changes with the pull/);
    assert.notEqual(recipients(), 77);
    const done = await server.admin.request('/config/sync', { accept: 'text/html', form: { confirm: 'yes' } });
    assert.equal(done.status, 303);
    assert.match(done.headers.get('location') ?? '', /^\/config\/sync\/status/);
    assert.equal(recipients(), 77);
    const { items } = (await server.admin.json('/audit')) as {
      items: { by: string; action?: string; method: string }[];
    };
    const actions = items.map(({ by, method, action }) => `${by} ${method} ${action}`);
    assert.ok(actions.includes('admin POST config.sync'));
    assert.ok(actions.includes('sync LOCAL config.reload'));
  });
});

suite('sync from a URL', () => {
  test('keeps what is in force through every fault of the source, and shows no secret', async (t) => {
    let answer: { status: number; body: string } = { status: 200, body: '{ smtp: { limits: { recipients: 55 } } }' };
    const files = new Map<string, string>();
    const source = createServer((request, response) => {
      const { status, body } = answer;
      const file = files.get(request.url ?? '');
      if (file === undefined) response.writeHead(status, { Location: '/loop' }).end(body);
      else response.end(file);
    }).listen(0, '127.0.0.1');
    await once(source, 'listening');
    t.after(() => source.close());
    const address = `http://anna:planted-word@127.0.0.1:${(source.address() as AddressInfo).port}/c.json5?token=planted-query`;
    await configure(`{ source: '${address}', intervalSeconds: 86400, timeoutSeconds: 5 }`);
    const faults: readonly (readonly [number, string, number, 'stale' | 'error'])[] = [
      [500, '', 503, 'stale'],
      [302, '', 422, 'error'],
      [404, '', 422, 'error'],
      [200, '{ smtp: { lim', 422, 'error'],
      [200, '', 422, 'error'],
      [200, JSON.stringify({ files: [] }), 422, 'error'],
      [200, JSON.stringify({ files: [{ name: 'base.json5', sha256: sha256Of('another') }] }), 422, 'error'],
    ];
    files.set('/base.json5', '{ smtp: { limits: { recipients: 6 } } }');
    const seen: string[] = [];
    for (const [status, body, expected, state] of faults) {
      answer = { status, body };
      seen.push(await refusal(expected), JSON.stringify(await statusOf()));
      assert.equal((await statusOf()).state, state, `${status} ${body}`);
      assert.equal(recipients(), 55);
    }
    answer = {
      status: 200,
      body: JSON.stringify({ files: [{ name: 'base.json5', sha256: sha256Of(files.get('/base.json5') ?? '') }] }),
    };
    await pull();
    assert.equal(recipients(), 6);
    source.closeAllConnections();
    source.close();
    seen.push(await refusal(503), await server.admin.page('/config/sync/status'), await server.admin.page('/config'));
    seen.push(JSON.stringify(await server.admin.json('/config')));
    for (const name of ['audit.log', 'postern.log']) {
      seen.push(await readFile(join(server.folder, 'data', 'logs', name), 'utf8').catch(() => ''));
    }
    seen.push(await readFile(current('applied.json'), 'utf8'));
    for (const [index, text] of seen.entries()) assert.ok(!text.includes('planted-'), `${index}: ${text}`);
  });

  test('one pull at a time', async (t) => {
    const source = createServer().listen(0, '127.0.0.1');
    await once(source, 'listening');
    t.after(() => source.close());
    const address = `http://127.0.0.1:${(source.address() as AddressInfo).port}/`;
    const asked = once(source, 'request') as Promise<[unknown, ServerResponse]>;
    await writeFile(join(server.folder, 'postern.json5'), own(`{ source: '${address}', intervalSeconds: 86400 }`));
    await reload();
    const [, response] = await asked;
    assert.match(await refusal(409), /Another sync runs/);
    response.destroy();
    const { state, error } = await untilLooked();
    assert.equal(state, 'stale');
    assert.match(error ?? '', /cannot be reached/);
  });
});

test('a source that is exchanged while the old one is looked at is looked at soon, and alone tells the state', async (t) => {
  const silent = createServer().listen(0, '127.0.0.1');
  await once(silent, 'listening');
  t.after(() => silent.close());
  const address = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`;
  const asked = once(silent, 'request') as Promise<[unknown, ServerResponse]>;
  await writeFile(join(server.folder, 'postern.json5'), own(`{ source: '${address}', intervalSeconds: 86400 }`));
  await reload();
  const [, response] = await asked;
  const left = once(response, 'close');
  const { state, error, source } = await configure(folderSync);
  assert.deepEqual([state, error], ['ok', null]);
  assert.match(source ?? '', /central$/);
  await left;
  assert.deepEqual((await statusOf()).state, 'ok');
});

test('a source that comes into force with a pull from the old one is the one that counts', async () => {
  await writeFile(central('base.json5'), '{ smtp: { limits: { recipients: 6 } } }');
  await writeFile(join(server.folder, 'postern.json5'), own(`{ source: 'bucket:mine', intervalSeconds: 86400 }`));
  assert.match((await pull()).source, /central$/);
  const { source } = await untilLooked();
  assert.deepEqual([source, recipients()], ['bucket:mine', 42]);
});

test('a plugin may offer another kind of source', async () => {
  const { state, source } = await configure(`{ source: 'bucket:mine', intervalSeconds: 86400 }`);
  assert.deepEqual([state, source, recipients()], ['ok', 'bucket:mine', 42]);
  const { error } = await configure(`{ source: 'cellar:mine', intervalSeconds: 86400 }`);
  assert.match(error ?? '', /no source of the kind cellar/);
});

test('a source may say that something has changed, until it is left', async (t) => {
  t.after(() => (content.recipients = 42));
  const before = await configure(`{ source: 'bucket:mine', intervalSeconds: 86400 }`);
  assert.equal(content.watchers.size, 1);
  content.recipients = 43;
  for (const changed of content.watchers) changed();
  await until('another look', async () => ((await statusOf()).lastSuccess === before.lastSuccess ? undefined : true));
  assert.equal(recipients(), 43);
  await configure(folderSync);
  assert.equal(content.watchers.size, 0);
});

test('a source is told what became of its files, and files that it wants are offered again', async (t) => {
  t.after(async () => {
    Object.assign(content, { recipients: 42, wanted: false });
    await configure(folderSync);
  });
  content.results = [];
  await configure(`{ source: 'bucket:mine', intervalSeconds: 86400 }`);
  const rung = async (): Promise<unknown> => {
    content.results = [];
    for (const changed of content.watchers) changed();
    return until('the result', () => content.results[0]);
  };
  assert.deepEqual(await rung(), { status: 'unchanged' });
  content.recipients = '"many"';
  await server.admin.request('/config/sync', { method: 'POST', json: { dryRun: true } });
  assert.deepEqual(content.results, [{ status: 'unchanged' }], 'a dry run has no result');
  const { status, why } = (await rung()) as { status: string; why: string };
  assert.equal(status, 'refused');
  assert.match(why, /recipients/);
  const refusals = async (): Promise<number> => {
    const { items } = (await server.admin.json('/audit?method=LOCAL&result=refused&limit=1000')) as {
      items: unknown[];
    };
    return items.length;
  };
  const before = await refusals();
  await rung();
  assert.equal(await refusals(), before, 'not offered again');
  content.wanted = true;
  await rung();
  assert.equal(await refusals(), before + 1);
  assert.equal((await statusOf()).servers[0]?.version, 'the first');
  content.recipients = 44;
  assert.deepEqual(await rung(), { status: 'applied' });
});
