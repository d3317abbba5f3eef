import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { HttpClient } from '../support/http-client.js';
import { startInProcess } from '../support/in-process-server.js';
import { freeListeners, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { rideOut } from './reload-storm.js';

const text = (bytes: number, more = '') =>
  `{ smtp: { listeners: ${freeListeners}, limits: { messageBytes: ${bytes} } }, ${more} }`;

describe('a running server', () => {
  test('takes a changed configuration on SIGHUP, and says what is wrong with a broken one', async (t) => {
    const folder = await temporaryFolder(t);
    const server = await ServerProcess.start(t, { folder, config: text(1_000_000) });
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    await writeFile(join(folder, 'postern.json5'), text(222_222));
    server.signal('SIGHUP');
    await server.find(/^SIGHUP: changed: smtp\.limits\.messageBytes; waiting for a restart: nothing\.$/m);
    assert.match((await client.command('EHLO client.example')).raw, /SIZE 222222\r\n/);
    await writeFile(join(folder, 'postern.json5'), '{ hostnam: 1 }');
    server.signal('SIGHUP');
    await server.find(
      /^SIGHUP: nothing changed: .*postern\.json5:1:3: hostnam: unknown key; did you mean hostname\?$/m,
    );
    const health = await HttpClient.admin(server.http).json('/health');
    assert.equal((health as { status: string }).status, 'DEGRADED');
    const { items } = (await HttpClient.admin(server.http).json('/audit?method=LOCAL&result=all')) as {
      items: readonly object[];
    };
    assert.deepEqual(
      items.map((item) => [(item as { by: string }).by, (item as { status: number }).status]),
      [
        ['SIGHUP', 422],
        ['SIGHUP', 200],
      ],
    );
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  });

  test('reloads when the content of its file changes, where configured', async (t) => {
    const server = await startInProcess(t, text(1_000_000, 'plugins: { config: { watch: true } }'));
    const { configuration } = server.server.app;
    const changed = new Promise<void>((resolve) => void configuration.watch(resolve));
    await writeFile(join(server.folder, 'postern.json5'), text(222_222, 'plugins: { config: { watch: true } }'));
    await changed;
    assert.equal(configuration.current.settings.smtp.limits.messageBytes, 222_222);
  });

  test('drafts have the largest size of a message that a reload has set', async (t) => {
    const server = await startInProcess(t, text(1_000_000));
    const save = async (size: number) =>
      (await server.admin.request('/store/localhost/postmaster/drafts', { json: { text: 'x\n'.repeat(size / 2) } }))
        .status;
    const reload = async (bytes: number) => {
      await writeFile(join(server.folder, 'postern.json5'), text(bytes));
      await server.admin.json('/config/reload', { method: 'POST' });
    };
    assert.equal(await save(100_000), 201);
    await reload(50_000);
    assert.equal(await save(100_000), 413);
    await reload(200_000);
    assert.equal(await save(100_000), 201);
  });

  test('drops no session and loses no message while it is reloaded again and again', async (t) => {
    await rideOut(t, { reloads: 8, messages: 8 });
  });

  test('writes a line of the audit log for every request that could change something', async (t) => {
    const server = await startInProcess(t);
    // These change nothing; the history of sign-ins has what matters of them.
    const asking = ['/sign-in', '/sign-out', '/users/authenticate', '/pipeline/explain'];
    const endpoints = server.server.app.http.describe();
    const mutating = endpoints.filter(({ method, path }) => method !== 'GET' && !asking.includes(path));
    const wanted = new Map<string, string>();
    for (const [index, { method, path }] of mutating.entries()) {
      const id = `mutation-${index}`;
      wanted.set(id, `${method} ${path}`);
      const target = path.replace(/\{[^}]+\}/g, 'x');
      await server.admin.request(target, { method, headers: { 'X-Request-Id': id } });
    }
    const { items } = (await server.admin.json('/audit?limit=1000&result=all')) as { items: { requestId: string }[] };
    const seen = new Set(items.map(({ requestId }) => requestId));
    assert.deepEqual(
      [...wanted].filter(([id]) => !seen.has(id)),
      [],
    );
  });
});
