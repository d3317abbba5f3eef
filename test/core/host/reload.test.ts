import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import type { ReloadOutcome } from '../../../core/contracts/server.js';
import { plantedSecrets } from '../log/planted-secrets.js';
import { HttpClient } from '../../support/http-client.js';
import { startInProcess, type InProcessServer } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { until } from '../../support/until.js';

const listeners = `listeners: ${freeListeners}`;
const usual = `{ smtp: { ${listeners} } }`;

const write = ({ folder }: InProcessServer, text: string | Buffer) => writeFile(join(folder, 'postern.json5'), text);

const reload = async ({ admin }: InProcessServer, status = 200, body: object = {}): Promise<ReloadOutcome> =>
  (await admin.json('/config/reload', { method: 'POST', json: body }, status)) as ReloadOutcome;

interface Viewed {
  readonly sections: readonly {
    readonly items: readonly { readonly key: string; readonly value: unknown; readonly [more: string]: unknown }[];
  }[];
}

async function valueOf({ admin }: InProcessServer, key: string) {
  const { sections } = (await admin.json('/config')) as Viewed;
  return sections.flatMap(({ items }) => items).find((item) => item.key === key);
}

async function helloLines(server: InProcessServer): Promise<string> {
  const client = await SmtpClient.greeted({ port: server.portOf('mx') });
  const { raw } = await client.command('EHLO client.example');
  client.close();
  return raw;
}

/** A site plugin that refuses the option `size: 13`. */
const stubborn = `
import { definePlugin, z } from 'postern/plugin';
export const stubborn = definePlugin({
  name: 'stubborn',
  options: z.strictObject({ size: z.int().default(1) }),
  setup: () => ({ reconfigure: ({ size }) => { if (size === 13) throw new Error('thirteen is too many'); } }),
});`;

suite('a reload', () => {
  test('gives the configuration another entity tag', async (t) => {
    const server = await startInProcess(t, usual);
    const ask = async (accept: string, tag = '""') =>
      server.admin.request('/config', { accept, headers: { 'If-None-Match': tag } });
    for (const accept of ['application/json', 'text/html']) {
      const { headers, status } = await ask(accept);
      const tag = headers.get('etag') ?? '';
      assert.deepEqual([status, tag === ''], [200, false]);
      assert.equal((await ask(accept, tag)).status, 304, accept);
      await write(server, `{ smtp: { ${listeners}, limits: { messageBytes: ${123456 + accept.length} } } }`);
      await reload(server);
      assert.equal((await ask(accept, tag)).status, 200, accept);
    }
  });

  test('applies limits, access rules, domains and options, and names the keys', async (t) => {
    const server = await startInProcess(t, usual);
    await write(
      server,
      `{
        domains: ['example.org', 'localhost'],
        http: { access: [{ match: 'GET /config', role: 'read' }] },
        smtp: { ${listeners}, limits: { messageBytes: 123456 } },
        plugins: { config: { maintenanceText: 'Back at noon' } },
      }`,
    );
    const { status, changed, restartRequired } = await reload(server);
    assert.equal(status, 'reloaded');
    assert.deepEqual(restartRequired, []);
    for (const key of [
      'smtp.limits.messageBytes',
      'domains',
      'http.access.0.match',
      'plugins.config.maintenanceText',
    ]) {
      assert.ok(changed.includes(key), `${key} in ${changed.join(', ')}`);
    }
    assert.match(await helloLines(server), /SIZE 123456\r\n/);
    const client = await SmtpClient.greeted({ port: server.portOf('mx') });
    await client.command('MAIL FROM:<a@sender.example>');
    assert.equal((await client.command('RCPT TO:<postmaster@example.org>')).code, 250);
    client.close();
    const { items } = (await server.admin.json('/store')) as { items: { domain: string }[] };
    assert.ok(
      items.some(({ domain }) => domain === 'example.org'),
      JSON.stringify(items),
    );
    const { access } = server.server.app.http
      .describe()
      .find(({ method, path }) => method === 'GET' && path === '/config') ?? { access: '' };
    assert.equal(access, 'read');
    const text = await valueOf(server, 'plugins.config.maintenanceText');
    assert.equal(text?.value, 'Back at noon');
    assert.equal(text?.['atStart'], 'Down for maintenance, try again later');
    assert.equal((await reload(server)).status, 'unchanged');
  });

  test('lists what needs a restart, and the viewer shows both values', async (t) => {
    const server = await startInProcess(t, usual);
    await write(server, `{ hostname: 'mail.example.org', smtp: { ${listeners} }, plugins: { monitoring: false } }`);
    const { status, changed, restartRequired } = await reload(server);
    assert.deepEqual([status, changed], ['unchanged', []]);
    assert.ok(restartRequired.includes('hostname'));
    assert.ok(restartRequired.some((key) => key.startsWith('plugins.monitoring')));
    const hostname = await valueOf(server, 'hostname');
    assert.equal(hostname?.['pending'], 'mail.example.org');
    assert.notEqual(hostname?.value, 'mail.example.org');
    await write(server, usual);
    assert.deepEqual((await reload(server)).restartRequired, []);
    assert.equal((await valueOf(server, 'hostname'))?.['pending'], undefined);
  });

  test('as a dry run reports the same and changes nothing', async (t) => {
    const server = await startInProcess(t, usual);
    await write(server, `{ smtp: { ${listeners}, limits: { messageBytes: 123456 } } }`);
    const dry = await reload(server, 200, { dryRun: true });
    assert.deepEqual([dry.status, dry.changed], ['dryRun', ['smtp.limits.messageBytes']]);
    assert.equal(dry.differences[0]?.after, 123456);
    assert.doesNotMatch(await helloLines(server), /SIZE 123456\r\n/);
    assert.deepEqual((await reload(server)).changed, dry.changed);
  });

  test('refuses every broken file with 422 and its position, and keeps the old configuration', async (t) => {
    const server = await startInProcess(t, usual);
    const before = JSON.stringify(((await server.admin.json('/config')) as Viewed).sections);
    const broken: readonly (readonly [string | Buffer, RegExp])[] = [
      ['', /postern\.json5/],
      ['{', /postern\.json5:1:2/],
      [usual.slice(0, -3), /postern\.json5:1:/],
      ['[]', /must be an object/],
      ['null', /must be an object/],
      ['{ smtp: { limits: { messageBytes: "many" } } }', /postern\.json5:1:21: smtp\.limits\.messageBytes/],
      ['{\n  hostnam: "x",\n}', /postern\.json5:2:3: hostnam: unknown key; did you mean hostname/],
      ['{ domains: ["not a domain"] }', /domains\.0/],
      ['{ plugins: { nosuch: {} } }', /there is no such plugin/],
      ['{ smtp: { relayNetworks: ["0.0.0.0/0"] } }', /open relay/],
      ['{ __proto__: { a: 1 } }', /__proto__/],
      ['{ constructor: { prototype: 1 } }', /constructor/],
      ['{ http: { accounts: [{ username: "a", role: "admin", password: { env: "NO_SUCH" } }] } }', /NO_SUCH/],
      [`{ plugins: { x: ${'['.repeat(5000)}${']'.repeat(5000)} } }`, /nested deeper/],
      [Buffer.from('{ hostname: "a" }', 'utf16le'), /postern\.json5/],
      [' '.repeat(6_000_000), /characters at most/],
      ['{ sitePlugins: ["./missing.js"] }', /missing\.js/],
    ];
    for (const [text, place] of broken) {
      await write(server, text);
      const answer = await server.admin.request('/config/reload', { method: 'POST', json: {} });
      assert.equal(answer.status, 422, `${String(text).slice(0, 80)}: ${answer.status} ${answer.text}`);
      const { errors } = JSON.parse(answer.text) as { errors: { pointer: string; message: string }[] };
      assert.match(errors.map(({ message }) => message).join('\n'), place);
      assert.ok(errors.every(({ pointer }) => pointer === '' || pointer.startsWith('/')));
    }
    assert.equal(JSON.stringify(((await server.admin.json('/config')) as Viewed).sections), before);
    const { components } = (await server.admin.json('/health/extended')) as {
      components: Record<string, { status: string }>;
    };
    const health = Object.entries(components).find(([name]) => name.includes('reload'))?.[1];
    assert.match(health?.status ?? '', /degraded/i);
    await write(server, usual);
    await reload(server);
  });

  test('is rolled back as a whole when a plugin refuses its options', async (t) => {
    const folder = await temporaryFolder(t);
    const plugin = join(folder, 'stubborn.mjs');
    await writeFile(plugin, stubborn);
    const text = (size: number, bytes: number, domain: string) => `{
      domains: ['localhost', '${domain}'], sitePlugins: ['${plugin}'],
      smtp: { ${listeners}, limits: { messageBytes: ${bytes} } },
      plugins: { stubborn: { size: ${size} }, config: { maintenance: ${size === 13} } },
    }`;
    const server = await startInProcess(t, text(1, 111111, 'old.example'));
    const before = JSON.stringify(((await server.admin.json('/config')) as Viewed).sections);
    await write(server, text(13, 222222, 'new.example'));
    const { status, text: said } = await server.admin.request('/config/reload', { method: 'POST', json: {} });
    assert.equal(status, 422);
    assert.match(said, /plugin stubborn refuses its options: thirteen is too many/);
    assert.match(said, /"pointer":"\/plugins\/stubborn"/);
    assert.equal(JSON.stringify(((await server.admin.json('/config')) as Viewed).sections), before);
    assert.match(await helloLines(server), /SIZE 111111\r\n/);
    await write(server, text(2, 222222, 'new.example'));
    assert.equal((await reload(server)).status, 'reloaded');
    assert.match(await helloLines(server), /SIZE 222222\r\n/);
  });

  test('opens and closes listeners, and refuses a port in use with 422', async (t) => {
    const server = await startInProcess(t, usual);
    const sitting = await SmtpClient.greeted({ port: server.portOf('submission') });
    await write(server, `{ smtp: { listeners: [{ port: 0 }, { name: 'inside', mode: 'lmtp', port: 0 }] } }`);
    const { changed, restartRequired } = await reload(server);
    assert.deepEqual(restartRequired, []);
    assert.ok(changed.includes('smtp.listeners.1.mode'));
    assert.equal(server.portOf('submission'), 0);
    const inside = await SmtpClient.greeted({ port: server.portOf('inside') }, 'LHLO client.example');
    const landing = JSON.stringify(await server.admin.json('/'));
    assert.ok(landing.includes(String(server.portOf('inside'))));
    const { port } = server.server.app.http.address();
    await write(server, `{ smtp: { listeners: [{ port: 0 }, { name: 'web', port: ${port} }] } }`);
    const refused = await server.admin.request('/config/reload', { method: 'POST', json: {} });
    assert.equal(refused.status, 422);
    assert.match(refused.text, /listener web cannot listen on 127\.0\.0\.1 port \d+: another program uses it/);
    assert.notEqual(server.portOf('inside'), 0);
    for (const client of [sitting, inside]) {
      assert.equal((await client.command('NOOP')).code, 250);
      client.close();
    }
  });

  test('changes accounts and forgets cached passwords', async (t) => {
    const account = (name: string, password: string, role: string) =>
      `{ username: '${name}', password: '${password}', role: '${role}' }`;
    const text = (...accounts: string[]) => `{ smtp: { ${listeners} }, http: { accounts: [${accounts.join()}] } }`;
    const server = await startInProcess(t, text(account('anna', 'first', 'read'), account('boss', 'own', 'admin')));
    const statusOf = async (username: string, password: string, path = '/config') =>
      (await new HttpClient(server.base, { username, password }).request(path)).status;
    assert.deepEqual([await statusOf('anna', 'first'), await statusOf('boss', 'own')], [403, 200]);
    await write(server, text(account('anna', 'second', 'admin'), account('carl', 'new', 'read')));
    const { changed, restartRequired } = await reload(server);
    assert.deepEqual(restartRequired, []);
    assert.ok(changed.includes('http.accounts.0.password'));
    assert.equal(await statusOf('anna', 'first'), 401);
    assert.equal(await statusOf('anna', 'second'), 200);
    assert.equal(await statusOf('boss', 'own'), 401);
    assert.equal(await statusOf('carl', 'new'), 403);
    const audit = await readFile(join(server.folder, 'data', 'logs', 'audit.log'), 'utf8');
    for (const password of ['first', 'second', 'own', 'new']) assert.ok(!audit.includes(`"${password}"`), password);
  });

  test('ends the requests of removed and changed accounts only', async (t) => {
    const account = (name: string, role: string) => `{ username: '${name}', password: 'own', role: '${role}' }`;
    const text = (...accounts: string[]) => `{ smtp: { ${listeners} }, http: { accounts: [${accounts.join()}] } }`;
    const names = ['anna', 'boss', 'carl'];
    const server = await startInProcess(t, text(...names.map((name) => account(name, 'admin'))));
    const watching = new AbortController();
    t.after(() => watching.abort());
    const ended: string[] = [];
    for (const name of names) {
      const Authorization = `Basic ${Buffer.from(`${name}:own`).toString('base64')}`;
      const stream = await fetch(`${server.base}/logs/stream`, { headers: { Authorization }, signal: watching.signal });
      assert.equal(stream.status, 200);
      void stream.text().then(
        () => ended.push(name),
        () => undefined,
      );
    }
    await write(server, text(account('boss', 'admin'), account('carl', 'read')));
    await reload(server);
    await until('the streams of two end', () => (ended.length >= 2 ? true : undefined));
    assert.deepEqual(ended.toSorted(), ['anna', 'carl']);
  });

  test('runs once at a time', async (t) => {
    const server = await startInProcess(t, usual);
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => server.admin.request('/config/reload', { method: 'POST', json: {} })),
    );
    const statuses = answers.map(({ status }) => status);
    assert.ok(statuses.includes(200));
    assert.ok(statuses.every((status) => status === 200 || status === 409));
    const { reloading } = server.server.app;
    const both = await Promise.allSettled([reloading.reload({ by: 'one' }), reloading.reload({ by: 'two' })]);
    assert.deepEqual(
      both.map((one) => one.status),
      ['fulfilled', 'rejected'],
    );
  });

  test('asks for confirmation on a page with the changes, then returns to the viewer', async (t) => {
    const server = await startInProcess(t, usual);
    await write(server, `{ hostname: 'later.example', smtp: { ${listeners}, limits: { messageBytes: 123456 } } }`);
    const asked = await server.admin.request('/config/reload', { accept: 'text/html', form: { dryRun: '' } });
    assert.equal(asked.status, 200);
    assert.match(asked.text, /smtp\.limits\.messageBytes/);
    assert.match(asked.text, /Changes with the next restart/);
    assert.doesNotMatch(await helloLines(server), /SIZE 123456\r\n/);
    const done = await server.admin.request('/config/reload', { accept: 'text/html', form: { confirm: 'yes' } });
    assert.equal(done.status, 303);
    assert.match(done.headers.get('location') ?? '', /^\/config/);
    assert.match(await helloLines(server), /SIZE 123456\r\n/);
    assert.match(await server.admin.page('/config?origin=changed'), /after a restart/);
  });

  test('never shows a planted secret: viewer, file, differences, page, audit log, server log', async (t) => {
    const fields = plantedSecrets.map((planted, index) => `s${index}: ${JSON.stringify(planted.fields)}`);
    const comments = plantedSecrets.flatMap(({ text }) => (text === undefined ? [] : [`// ${text}`]));
    const open = `export const open = definePlugin({ name: 'open', options: z.looseObject({}), setup: () => ({ reconfigure() {} }) });`;
    const text = `{
      ${comments.join('\n')}
      smtp: { ${listeners} }, sitePlugins: ['./open.mjs'],
      http: { access: [{ match: '/metrics', username: 'm', password: 'password-of-a-rule' }] },
      plugins: { open: { ${fields.join(', ')} } },
    }`;
    const server = await startInProcess(t, usual);
    await writeFile(join(server.folder, 'open.mjs'), `import { definePlugin, z } from 'postern/plugin';\n${open}`);
    await write(server, text);
    const seen = [
      JSON.stringify(await reload(server, 200, { dryRun: true })),
      JSON.stringify(await reload(server)),
      JSON.stringify(await server.admin.json('/config')),
      await server.admin.page('/config'),
      await readFile(join(server.folder, 'data', 'logs', 'audit.log'), 'utf8'),
    ];
    for (const { plain } of [...plantedSecrets, { plain: 'password-of-a-rule' }]) {
      for (const [index, page] of seen.entries()) assert.ok(!page.includes(plain), `${plain} in ${index}`);
    }
  });
});
