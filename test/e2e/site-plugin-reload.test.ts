import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { deliver, lines } from '../support/delivery.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { freeListeners, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** Marks every message with its version; a file that it closes at its end is what it needs to answer. */
const marker = (version: number, more = '') => `
import { change, defineEndpoint, definePlugin, next } from 'postern/plugin';
import { version } from './version.js';
export const marker = definePlugin({
  name: 'marker',
  reload: 'replace',
  setup({ smtp, http, onClose, metrics }) {
    ${more}
    let open = true;
    onClose(() => { open = false; });
    const marked = metrics.counter('marked_total', 'Messages.');
    smtp.on('rcptTo', async () => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      if (!open) throw new Error('asked behind the end');
      return next();
    });
    smtp.on('message', () => {
      if (!open) throw new Error('asked behind the end');
      marked.inc();
      return change({ change: 'add-header', name: 'X-Marker', value: '${version}-' + version });
    });
    http.mount([defineEndpoint({ method: 'GET', path: '/marker', summary: 'Version', group: 'Site', access: 'read', handle: () => ({ version }) })]);
  },
});`;

async function writeMarker(folder: string, version: number, more = ''): Promise<void> {
  await mkdir(join(folder, 'marker'), { recursive: true });
  await writeFile(join(folder, 'marker', 'package.json'), '{ "type": "module" }');
  await writeFile(join(folder, 'marker', 'version.js'), `export const version = ${version};`);
  await writeFile(join(folder, 'marker', 'index.js'), marker(version, more));
}

const config = `{ smtp: { listeners: ${freeListeners} }, sitePlugins: ['./marker'], plugins: { config: { watch: true } } }`;

describe('a plugin of the site in a running server', () => {
  test('is changed again and again while mail comes in: nothing is refused, lost or missing', async (t) => {
    const folder = await temporaryFolder(t);
    await writeMarker(folder, 0);
    const server = await ServerProcess.start(t, { folder, config: config.replace('watch: true', '') });
    const admin = HttpClient.admin(server.http);
    const done = { sent: 0, looked: 0 };
    const over = new AbortController();
    const sending = Array.from({ length: 3 }, async (_, sender) => {
      while (!over.signal.aborted) {
        await deliver(server.smtpPort, lines(`Subject: ${sender}-${done.sent}`, '', 'text'));
        done.sent += 1;
      }
    });
    const looking = (async () => {
      while (!over.signal.aborted) {
        assert.equal((await admin.request('/marker')).status, 200);
        done.looked += 1;
      }
    })();
    // A transaction that began with the first version ends with it.
    const early = await SmtpClient.greeted({ port: server.smtpPort });
    await early.command('MAIL FROM:<a@sender.example>');
    for (let version = 1; version <= 10; version += 1) {
      await writeMarker(folder, version);
      await admin.json('/config/reload', { method: 'POST', json: {} });
      assert.deepEqual(await admin.json('/marker'), { version });
      await setTimeout(50);
    }
    await writeMarker(folder, 11, `throw new Error('no luck');`);
    await admin.json('/config/reload', { method: 'POST', json: {} }, 422);
    assert.equal((await early.command('RCPT TO:<postmaster@localhost>')).code, 250);
    assert.equal((await early.data(lines('Subject: early', '', 'text'))).code, 250);
    early.close();
    over.abort();
    await Promise.all([...sending, looking]);
    const messages = await listMessages(admin);
    assert.equal(messages.length, done.sent + 1);
    assert.ok(done.looked > 10);
    const found = messages.find(({ subject }) => subject === 'early');
    assert.ok(found !== undefined);
    const { text } = await admin.request('/metrics/prometheus');
    assert.match(text, new RegExp(`^postern_marked_total ${done.sent + 1}$`, 'm'));
    const { plugins } = (await admin.json('/pipeline')) as {
      plugins: { name: string; faults: number; versions: number }[];
    };
    const state = plugins.find(({ name }) => name === 'marker');
    assert.deepEqual([state?.faults, (state?.versions ?? 0) >= 11], [0, true]);
  });

  test('is reloaded as soon as one of its files changes, where configured', async (t) => {
    const folder = await temporaryFolder(t);
    await writeMarker(folder, 0);
    const server = await ServerProcess.start(t, { folder, config });
    const admin = HttpClient.admin(server.http);
    await writeMarker(folder, 1);
    for (let tries = 0; ; tries += 1) {
      const { version } = (await admin.json('/marker')) as { version: number };
      if (version === 1) break;
      assert.ok(tries < 100, 'nothing came of it');
      await setTimeout(100);
    }
  });

  test('leaves nothing half done when the server is killed while it is changed', async (t) => {
    const folder = await temporaryFolder(t);
    await writeMarker(folder, 0);
    for (let round = 1; round <= 4; round += 1) {
      const server = await ServerProcess.start(t, { folder, config: config.replace('watch: true', '') });
      await deliver(server.smtpPort, lines(`Subject: round-${round}`, '', 'text'));
      await writeMarker(folder, round);
      const asked = HttpClient.admin(server.http)
        .request('/config/reload', { method: 'POST', json: {} })
        .catch(() => undefined);
      await setTimeout(round * 8);
      await server.kill('SIGKILL');
      await asked;
      const memory = JSON.parse(await readFile(join(folder, 'data', 'site-plugins.json'), 'utf8')) as {
        name: string;
      }[];
      assert.deepEqual(
        memory.map(({ name }) => name),
        ['marker'],
      );
    }
    const server = await ServerProcess.start(t, { folder, config });
    const admin = HttpClient.admin(server.http);
    assert.deepEqual(await admin.json('/marker'), { version: 4 });
    assert.equal((await listMessages(admin)).length, 4);
  });
});
