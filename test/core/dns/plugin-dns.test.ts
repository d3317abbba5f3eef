import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { configure } from '../../../core/main.js';
import { DnsServer } from '../../support/dns-server.js';
import { startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const asking = `
import { defineEndpoint, definePlugin, dns, z } from 'postern/plugin';
export const asking = definePlugin({
  name: 'asking',
  needs: { dns },
  setup({ http }, { dns }) {
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/ask/{name}',
        summary: 'Ask',
        group: 'Site',
        access: 'read',
        params: z.strictObject({ name: z.string() }),
        handle: ({ params }) => dns.lookup(params.name, 'A'),
      }),
    ]);
  },
});`;

const config = (server: string) =>
  `{ sitePlugins: ['./asking.mjs'], dns: { servers: ['${server}'] }, smtp: { listeners: ${freeListeners} } }`;

test('plugins ask the name servers of the configuration, and others after a reload', async (t) => {
  const first = await DnsServer.start(t, { 'example.org': { A: ['192.0.2.1'] } });
  const second = await DnsServer.start(t, { 'example.org': { A: ['192.0.2.2'] } });
  const { admin, folder } = await startInProcess(t, config(first.address), {}, (folder) =>
    writeFile(join(folder, 'asking.mjs'), asking),
  );
  const ask = () => admin.json('/ask/example.org');
  assert.deepEqual(await ask(), { status: 'found', records: ['192.0.2.1'] });
  assert.deepEqual(await ask(), { status: 'found', records: ['192.0.2.1'] });
  assert.equal(first.questions.length, 1);
  await writeFile(join(folder, 'postern.json5'), config(second.address));
  await admin.json('/config/reload', { method: 'POST' });
  assert.deepEqual(await ask(), { status: 'found', records: ['192.0.2.2'] });
  assert.equal(first.questions.length, 1);
});

test('what is no name server is refused with the configuration', async (t) => {
  const folder = await temporaryFolder(t);
  for (const server of ['dns.example.org', '192.0.2.1:0', '192.0.2.1:99999', '', '192.0.2']) {
    await writeFile(join(folder, 'postern.json5'), `{ dns: { servers: ['${server}'] } }`);
    await assert.rejects(
      configure({}, { cwd: folder, env: {}, print: () => undefined }),
      /dns\.servers\.0: must be an IP address, perhaps with a port/,
      server,
    );
  }
});
