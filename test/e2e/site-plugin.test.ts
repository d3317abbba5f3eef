import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { examplesOf } from '../support/document-examples.js';
import { HttpClient } from '../support/http-client.js';
import { selfSigned } from '../support/certificate.js';
import { projectRoot } from '../support/project.js';
import { freeListeners, runPostern, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

test('the plugin in docs/plugins.md works as it says, from a folder where nothing is installed', async (t) => {
  const folder = await temporaryFolder(t);
  const examples = await examplesOf('docs/plugins.md');
  const config = examples.get('postern.json5') ?? '';
  for (const [file, code] of examples) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), code);
  }
  const server = await ServerProcess.start(t, {
    folder,
    config: config.replace(/\{/, `{ smtp: { listeners: ${freeListeners} },`),
  });

  const client = await SmtpClient.greeted({ port: server.smtpPort });
  const refused = await client.command('MAIL FROM:<spam@example.com>');
  assert.deepEqual([refused.code, refused.status], [550, '5.7.1']);
  assert.equal((await client.command('MAIL FROM:<anna@example.com>')).code, 250);
  client.close();

  const admin = HttpClient.admin(server.http);
  assert.deepEqual(await admin.json('/blocklist'), { senders: ['spam@example.com'], refused: 1 });
  assert.match(await admin.page('/'), /\/blocklist/);
  assert.match(await admin.page('/docs'), /Blocked senders/);
  const { text } = await admin.request('/metrics/prometheus');
  assert.match(text, /^postern_blocklist_refused_total 1$/m);
});

test('the configuration in the README is a good one', async (t) => {
  const folder = await temporaryFolder(t);
  const readme = await readFile(join(projectRoot, 'README.md'), 'utf8');
  const [, config = ''] = /```json5\n([\s\S]*?)```/.exec(readme) ?? [];
  assert.match(config, /hostname/);
  await writeFile(join(folder, 'postern.json5'), config);
  const { key, cert } = selfSigned('mail.example.org');
  await writeFile(join(folder, 'key.pem'), key, { mode: 0o600 });
  await writeFile(join(folder, 'cert.pem'), cert);
  const { code, stderr } = await runPostern(['config', 'check'], { cwd: folder });
  assert.equal(code, 0, stderr);
});
