import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { listLogFiles } from '../../core/log/file.js';
import { HttpClient } from '../support/http-client.js';
import { adminPassword, freeListeners, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until } from '../support/until.js';

/** What a plugin can throw where no code of the server can catch it. */
const strays: Readonly<Record<string, string>> = {
  callback: `setTimeout(() => { throw new Error('thrown in a callback'); }, 1);`,
  promise: `void Promise.reject(new Error('a promise that nobody awaits'));`,
  late: `void (async () => { await null; throw new TypeError('late'); })();`,
  called: `setTimeout(() => parseAddress('no address'), 1);`,
  nothing: `Promise.reject();`,
  socket: `connect(1, '127.0.0.1');`,
  fetch: `fetch('http://127.0.0.1:1/');`,
};

const careless = `
import { connect } from 'node:net';
import { defineEndpoint, definePlugin, parseAddress } from 'postern/plugin';
setTimeout(() => { throw new Error('thrown while it was loaded'); }, 1);
export const careless = definePlugin({
  name: 'careless',
  setup({ http }) {
    const mount = (name, act) => http.mount([
      defineEndpoint({ method: 'POST', path: '/' + name, summary: name, group: 'Site', access: 'admin', handle: () => (act(), {}) }),
    ]);
${Object.entries(strays)
  .map(([name, code]) => `    mount('${name}', () => { ${code} });`)
  .join('\n')}
  },
});`;

interface State {
  readonly name: string;
  readonly faults: number;
  readonly lastFault: { readonly where: string; readonly message: string } | null;
}

describe('an error of a plugin that nobody catches', () => {
  test('is logged, counted against it, and the server continues', async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'careless'));
    await writeFile(join(folder, 'careless', 'package.json'), '{ "type": "module" }');
    await writeFile(join(folder, 'careless', 'index.js'), careless);
    const config = `{ smtp: { listeners: ${freeListeners} }, sitePlugins: ['./careless'] }`;
    const server = await ServerProcess.start(t, { folder, config });
    const admin = HttpClient.admin(server.http);
    const logs = join(folder, 'data', 'logs');
    const log = async () => {
      const files = (await listLogFiles(logs)).map((name) => readFile(join(logs, name), 'utf8'));
      return (await Promise.all(files)).join('');
    };
    for (const name of Object.keys(strays)) {
      const before = (await log()).split('uncaught error of a site plugin').length;
      await admin.json(`/${name}`, { method: 'POST', json: {} });
      await until(`word of ${name}`, async () =>
        (await log()).split('uncaught error of a site plugin').length > before ? true : undefined,
      );
    }
    const { plugins } = (await admin.json('/pipeline')) as { plugins: readonly State[] };
    const state = plugins.find(({ name }) => name === 'careless');
    assert.equal(state?.faults, 5, 'those that name a line of it, the one before the start among them');
    assert.match(await log(), /thrown while it was loaded/);
    const { components } = (await admin.json('/health/extended')) as {
      components: Record<string, { status: string; why: string } | undefined>;
    };
    assert.equal(components['plugin careless']?.status, 'degraded');
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    assert.equal((await client.command('MAIL FROM:<a@sender.example>')).code, 250);
    client.close();
  });

  test('of the server itself still ends the process, to be started anew', async (t) => {
    const folder = await temporaryFolder(t);
    const ours = join(folder, 'ours.mjs');
    await writeFile(
      ours,
      `import { isMainThread } from 'node:worker_threads';
      if (isMainThread) process.on('SIGUSR2', () => setTimeout(() => { throw new Error('our own'); }, 1));`,
    );
    const env = { POSTERN_ADMIN_PASSWORD: adminPassword, NODE_OPTIONS: `--import ${ours}` };
    const server = await ServerProcess.start(t, { folder, env });
    process.kill(server.pid, 'SIGUSR2');
    assert.deepEqual(await server.exit, { code: 1, signal: null });
    assert.match(server.output, /our own/);
  });
});
