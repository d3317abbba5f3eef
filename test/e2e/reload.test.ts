import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { HttpClient } from '../support/http-client.js';
import { startInProcess } from '../support/in-process-server.js';
import { listMessages } from '../support/mailbox-reader.js';
import { freeListeners, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

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
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  });

  test('reloads by itself when its file has another content, if told to watch it', async (t) => {
    const server = await startInProcess(t, text(1_000_000, 'plugins: { config: { watch: true } }'));
    const { configuration } = server.server.app;
    const changed = new Promise<void>((resolve) => void configuration.watch(resolve));
    await writeFile(join(server.folder, 'postern.json5'), text(222_222, 'plugins: { config: { watch: true } }'));
    await changed;
    assert.equal(configuration.current.settings.smtp.limits.messageBytes, 222_222);
  });

  test('drops no session and loses no message while it is reloaded again and again', async (t) => {
    const server = await startInProcess(t, text(1_000_000));
    const port = server.portOf('mx');
    const sitting = await SmtpClient.greeted({ port });
    await sitting.command('EHLO client.example');
    const sent = new AbortController();
    const done = { reloads: 0 };
    const storm = (async () => {
      for (let bytes = 1_000_000; !sent.signal.aborted; bytes += 1) {
        await writeFile(
          join(server.folder, 'postern.json5'),
          text(bytes, `domains: ['localhost', 'd${bytes}.example']`),
        );
        const { status } = await server.admin.request('/config/reload', { method: 'POST', json: {} });
        assert.equal(status, 200);
        done.reloads += 1;
      }
    })();
    let count = 0;
    const senders = Array.from({ length: 4 }, async (_, sender) => {
      for (let n = 0; n < 10 || done.reloads < 5; n += 1) {
        await deliver(port, lines(`Subject: ${sender}-${n}`, '', 'in the storm'));
        count += 1;
      }
    });
    // Whichever side fails is told at once; neither waits for the other.
    await Promise.race([Promise.all(senders), storm]);
    sent.abort();
    await storm;
    assert.equal((await sitting.command('NOOP')).code, 250);
    sitting.close();
    const subjects = new Set((await listMessages(server.admin)).map(({ subject }) => subject));
    assert.equal(subjects.size, count);
  });

  test('writes a line of the audit log for every request that could change something', async (t) => {
    const server = await startInProcess(t);
    const mutating = server.server.app.http.describe().filter(({ method }) => method !== 'GET');
    const wanted: string[] = [];
    for (const [index, { method, path }] of mutating.entries()) {
      const id = `mutation-${index}`;
      wanted.push(id);
      const target = path.replace(/\{[^}]+\}/g, 'x');
      await server.admin.request(target, { method, headers: { 'X-Request-Id': id } });
    }
    const { items } = (await server.admin.json('/audit?limit=1000')) as { items: { requestId: string }[] };
    const seen = new Set(items.map(({ requestId }) => requestId));
    assert.deepEqual(
      wanted.filter((id) => !seen.has(id)),
      [],
    );
  });
});
