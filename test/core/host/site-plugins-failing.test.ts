import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import type { PluginState } from '../../../core/contracts/plugins-overview.js';
import { listLogFiles } from '../../../core/log/file.js';
import { start as startServer } from '../../../core/main.js';
import { isStartError } from '../../../core/problem.js';
import { HttpClient } from '../../support/http-client.js';
import { adminPassword, freeListeners } from '../../support/server-process.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const listeners = `smtp: { listeners: ${freeListeners} }`;
const kit = `import { accept, defer, definePlugin, directory, next, route, service, z } from 'postern/plugin';`;
const broken = 'export const = 1;';

async function put(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

/** Starts a server in that folder, says what it said, and stops it behind `look`. */
async function during<T>(
  folder: string,
  look: (server: { admin: HttpClient; mail: (...rcpt: readonly string[]) => Promise<readonly string[]> }) => Promise<T>,
) {
  const said: string[] = [];
  const server = await startServer(
    { httpPort: 0 },
    { cwd: folder, env: { POSTERN_ADMIN_PASSWORD: adminPassword }, print: (text) => said.push(text) },
  );
  try {
    const { host, port } = server.app.http.address();
    const mx = server.app.smtp.addresses().find(({ name }) => name === 'mx')?.port ?? 0;
    const mail = async (...recipients: readonly string[]) => {
      const client = await SmtpClient.greeted({ port: mx });
      const answers = [(await client.command('MAIL FROM:<a@sender.example>')).raw.trim()];
      for (const address of recipients) answers.push((await client.command(`RCPT TO:<${address}>`)).raw.trim());
      client.close();
      return answers;
    };
    return { seen: await look({ admin: HttpClient.admin(`http://${host}:${port}`), mail }), said: said.join('\n') };
  } finally {
    await server.stop();
  }
}

async function refusalIn(folder: string): Promise<string> {
  try {
    await during(folder, () => Promise.resolve());
  } catch (error) {
    assert.ok(isStartError(error), String(error));
    return error.message;
  }
  return assert.fail('it started');
}

async function site(t: TestContext, config: string, files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporaryFolder(t);
  await put(folder, { 'postern.json5': `{ ${listeners}, ${config} }`, ...files });
  return folder;
}

const statesOf = async (admin: HttpClient): Promise<readonly PluginState[]> =>
  ((await admin.json('/pipeline')) as { plugins: readonly PluginState[] }).plugins;

suite('a start without a plugin of the site', () => {
  test('is reported, and the server runs', async (t) => {
    const folder = await site(t, `sitePlugins: ['./a.mjs', './b.mjs', './c.mjs']`, {
      'a.mjs': broken,
      'b.mjs': `${kit} export const b = definePlugin({ name: 'b', setup() { throw new Error('no luck'); } });`,
      'c.mjs': `${kit} export const c = definePlugin({ name: 'c', needs: { spring: service('example.spring') }, setup() {} });`,
    });
    const { seen, said } = await during(folder, async ({ admin, mail }) => ({
      states: (await statesOf(admin)).filter(({ from }) => from !== null),
      answers: await mail('postmaster@localhost'),
      health: JSON.stringify(await admin.json('/health/extended')),
    }));
    assert.deepEqual(
      seen.states.map(({ name, state }) => `${name} ${state}`).toSorted((a, b) => (a < b ? -1 : 1)),
      ['a failed', 'b failed', 'c failed'],
    );
    assert.match(seen.answers.join(), /250.*250/);
    for (const text of [said, seen.health]) {
      assert.match(text, /a\.mjs cannot be loaded/);
      assert.match(text, /Plugin b could not start: b\.mjs:1:\d+: no luck/);
      assert.match(text, /c needs example\.spring/);
    }
  });

  test('because Node reads it as CommonJS is refused with advice', async (t) => {
    const folder = await site(t, `sitePlugins: [{ from: './blocklist', required: true }]`, {
      'blocklist/package.json': '{ "name": "blocklist", "version": "1.0.0", "main": "index.js", "type": "commonjs" }',
      'blocklist/index.js': `${kit}\nexport const blocklist = definePlugin({ name: 'blocklist', setup() {} });`,
    });
    assert.match(
      (await refusalIn(folder)).replaceAll('\n', ' '),
      /cannot be loaded: .*add "type": "module" to the package\.json beside index\.js, or name the file \.mjs/,
    );
  });

  test('that is required, replaces a built-in one or provides it a service stops the start', async (t) => {
    const people = (setup: string) =>
      `${kit} export const people = definePlugin({ name: 'people', provides: { directory }, setup() { ${setup} } });`;
    const cases: readonly (readonly [config: string, code: string, why: RegExp])[] = [
      [
        `sitePlugins: [{ from: './p.mjs', required: true }]`,
        broken,
        /p\.mjs cannot be loaded.*: it is marked as required/,
      ],
      [
        `sitePlugins: [{ from: './p.mjs', required: true, startSeconds: 1 }]`,
        `${kit} export const p = definePlugin({ name: 'p', setup: () => new Promise(() => {}) });`,
        /p could not start: it has not started after 1 s.*required/,
      ],
      [
        `sitePlugins: ['./p.mjs']`,
        `${kit} export const p = definePlugin({ name: 'lmtp', setup() { throw new Error('no luck'); } });`,
        /no luck.*takes the place of the built-in plugin lmtp/,
      ],
      [
        `sitePlugins: ['./p.mjs'], plugins: { users: false }`,
        people(`throw new Error('no luck');`),
        /no luck.*uses the service/,
      ],
      [
        `sitePlugins: ['./p.mjs'], plugins: { site: { size: 1 } }`,
        `${kit} export const p = definePlugin({ name: 'site', setup() {} });`,
        /postern\.json5:1:\d+: plugins\.site\.size: unknown key/,
      ],
      [
        `sitePlugins: ['./p.mjs'], plugins: { site: {} }`,
        `${kit} export const p = definePlugin({ name: 'site', options: z.strictObject({}).refine(() => { throw new Error('no luck'); }), setup() {} });`,
        /postern\.json5:1:\d+: plugins\.site: its schema cannot check it: no luck/,
      ],
      [
        `sitePlugins: ['./p.mjs']`,
        `${kit} export const p = definePlugin({ name: 'site', options: z.strictObject({}).refine(async () => true), setup() {} });`,
        /plugins\.site: its schema cannot check it: .*Promise/,
      ],
    ];
    for (const [config, code, why] of cases) {
      const folder = await site(t, config, { 'p.mjs': code });
      assert.match((await refusalIn(folder)).replaceAll('\n', ' '), why);
    }
  });

  test('is refused when a broken plugin used to replace a built-in one', async (t) => {
    const folder = await site(t, `sitePlugins: ['./p.mjs']`, {
      'p.mjs': `${kit} export const p = definePlugin({ name: 'lmtp', setup() {} });`,
    });
    const { seen } = await during(folder, ({ admin }) => statesOf(admin));
    const names = seen.filter(({ name }) => name === 'lmtp').map(({ state, from }) => [state, from]);
    assert.deepEqual(names, [
      ['running', './p.mjs'],
      ['replaced', null],
    ]);
    await put(folder, { 'p.mjs': broken });
    assert.match(await refusalIn(folder), /cannot be loaded.*takes the place of the built-in plugin lmtp/s);
    await put(folder, { 'data/site-plugins.json': '{ not json' });
    assert.ok(await during(folder, () => Promise.resolve()), 'nothing is known of it any more');
  });

  test('that routed mail leads to deferral, not to rejection or other delivery', async (t) => {
    const routing = `${kit} export const archive = definePlugin({ name: 'archive', setup({ smtp }) {
      smtp.on('rcptTo', { order: 'route', before: 'users' }, ({ address }) => address.domain === 'old.example' ? route({ target: 'archive', destination: '' }) : next());
      smtp.deliverTo('archive', { start: () => Promise.reject(new Error('never')) });
    } });`;
    const folder = await site(t, `sitePlugins: ['./archive.mjs']`, { 'archive.mjs': routing });
    const mailTo = ({ mail }: { mail: (...to: readonly string[]) => Promise<readonly string[]> }) =>
      mail('x@old.example', 'postmaster@localhost', 'x@elsewhere.example');
    const before = await during(folder, mailTo);
    assert.match(before.seen.join(), /250.*,250.*,250.*,550/);
    await put(folder, { 'archive.mjs': broken });
    const after = await during(folder, mailTo);
    assert.match(after.seen.join(), /250.*,451 4\.3\.0.*,451 4\.3\.0.*,451 4\.3\.0/);
  });

  test('that never ran here leads to deferral of recipients that no other plugin accepts', async (t) => {
    const folder = await site(t, `sitePlugins: ['./archive.mjs']`, { 'archive.mjs': broken });
    const { seen } = await during(folder, ({ mail }) => mail('postmaster@localhost', 'x@elsewhere.example'));
    assert.match(seen.join(), /250.*,250.*,451 4\.3\.0/);
  });

  test('in shadow mode needs no fallback', async (t) => {
    const routing = `${kit} export const archive = definePlugin({ name: 'archive', setup({ smtp }) { smtp.on('rcptTo', { order: 'route' }, () => next()); } });`;
    const folder = await site(t, `sitePlugins: ['./archive.mjs']`, { 'archive.mjs': routing });
    await during(folder, () => Promise.resolve());
    await put(folder, {
      'archive.mjs': broken,
      'postern.json5': `{ smtp: { listeners: ${freeListeners}, shadow: ['archive'] }, sitePlugins: ['./archive.mjs'] }`,
    });
    const { seen } = await during(folder, ({ mail }) => mail('postmaster@localhost', 'x@elsewhere.example'));
    assert.match(seen.join(), /250.*,250.*,550 5\.7\.1/);
  });

  test('that did not route mail is left out', async (t) => {
    const policy = `${kit} export const policy = definePlugin({ name: 'policy', setup({ smtp }) { smtp.on('rcptTo', () => next()); } });`;
    const folder = await site(t, `sitePlugins: ['./policy.mjs']`, { 'policy.mjs': policy });
    await during(folder, () => Promise.resolve());
    const memory = await readFile(join(folder, 'data', 'site-plugins.json'), 'utf8');
    assert.match(memory, /"routes": false/);
    await put(folder, { 'policy.mjs': broken });
    const { seen } = await during(folder, ({ mail }) => mail('postmaster@localhost', 'x@elsewhere.example'));
    assert.match(seen.join(), /250.*,250.*,550 5\.7\.1/);
  });
});

test('a declaration with its kit as a whole number works and is marked as deprecated', async (t) => {
  const folder = await site(t, `sitePlugins: ['./old.mjs']`, {
    'old.mjs': `import { z } from 'postern/plugin';
      export const old = { postern: 'plugin', kit: 1, name: 'old', options: z.strictObject({}), needs: {}, uses: {}, provides: {}, commands: [], setup() {} };`,
  });
  const { seen } = await during(folder, ({ admin }) => statesOf(admin));
  const state = seen.find(({ name }) => name === 'old');
  assert.equal(state?.state, 'running');
  assert.match(state.deprecated.join(), /kit: '1\.0'/);
  const logs = join(folder, 'data', 'logs');
  const files = (await listLogFiles(logs)).map((name) => readFile(join(logs, name), 'utf8'));
  const told = (await Promise.all(files)).join('').split('a plugin uses a deprecated form');
  assert.equal(told.length, 2, 'once');
});
