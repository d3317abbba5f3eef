import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { selfSigned } from '../../support/certificate.js';
import { lines } from '../../support/delivery.js';
import { startInProcess, type InProcessServer } from '../../support/in-process-server.js';
import { SmtpClient } from '../../support/smtp-client.js';
import type { Ending } from '../../support/ending.js';

const { key, cert } = selfSigned();
const config = `{
  smtp: { listeners: [{ mode: 'submission', port: 0, tls: 'starttls', key: 'key.pem', cert: 'cert.pem' }] },
}`;
const username = 'anna@localhost';
const password = 'correct horse battery';
const next = 'another horse battery';

describe('a session that has signed in', () => {
  const changes: Readonly<Record<string, (server: InProcessServer) => Promise<unknown>>> = {
    'is over when its user is disabled': ({ admin }) =>
      admin.json(`/users/${username}`, { method: 'PATCH', json: { disabled: true } }),
    'is over when its user has another password': ({ admin }) =>
      admin.json(`/users/${username}`, { method: 'PATCH', json: { password: next } }),
    'is over when its user is removed': ({ admin }) => admin.request(`/users/${username}`, { method: 'DELETE' }),
    'is over when another user has come by that name': async ({ admin }) => {
      await admin.request(`/users/${username}`, { method: 'DELETE' });
      await admin.json('/users', { json: { username, password: next } }, 201);
    },
  };
  for (const [what, change] of Object.entries(changes)) {
    it(`${what}, and what it had begun is taken`, async (test) => {
      const { server, client } = await signedIn(test);
      assert.equal((await client.command(`MAIL FROM:<${username}>`)).code, 250);
      await change(server);
      assert.equal((await client.command('RCPT TO:<postmaster@localhost>')).code, 250);
      assert.equal((await client.data(lines('Subject: begun', '', 'before'))).code, 250);
      const { code, status } = await client.command(`MAIL FROM:<${username}>`);
      assert.deepEqual([code, status], [421, '4.7.0']);
      await client.waitForEnd();
    });
  }

  it('goes on when something else of its user is changed', async (test) => {
    const { server, client } = await signedIn(test);
    await server.admin.json(`/users/${username}`, { method: 'PATCH', json: { aliases: ['info@localhost'] } });
    assert.equal((await client.command(`MAIL FROM:<${username}>`)).code, 250);
  });
});

async function signedIn(test: Ending): Promise<{ readonly server: InProcessServer; readonly client: SmtpClient }> {
  const server = await startInProcess(test, config, {}, async (folder) => {
    await writeFile(join(folder, 'key.pem'), key);
    await writeFile(join(folder, 'cert.pem'), cert);
  });
  await server.admin.json('/users', { json: { username, password } }, 201);
  const client = await SmtpClient.greeted({ port: server.portOf('submission') });
  assert.equal((await client.command('STARTTLS')).code, 220);
  await client.startTls();
  await client.command('EHLO client.example');
  const plain = Buffer.from(`\0${username}\0${password}`).toString('base64');
  assert.equal((await client.command(`AUTH PLAIN ${plain}`)).code, 235);
  return { server, client };
}
