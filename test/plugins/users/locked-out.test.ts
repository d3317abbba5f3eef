import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { selfSigned } from '../../support/certificate.js';
import { lines } from '../../support/delivery.js';
import { startInProcess, type InProcessServer } from '../../support/in-process-server.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { suiteEnding } from '../../support/ending.js';

const { key, cert } = selfSigned();
const config = `{
  smtp: { listeners: [{ mode: 'submission', port: 0, tls: 'starttls', key: 'key.pem', cert: 'cert.pem' }] },
}`;
const password = 'correct horse battery';
const next = 'another horse battery';

describe('a session that has signed in', () => {
  const suite = suiteEnding();
  let server: InProcessServer;

  before(async () => {
    server = await startInProcess(suite, config, {}, async (folder) => {
      await writeFile(join(folder, 'key.pem'), key);
      await writeFile(join(folder, 'cert.pem'), cert);
    });
  });

  const change = (username: string, json: object) => server.admin.json(`/users/${username}`, { method: 'PATCH', json });
  const remove = (username: string) => server.admin.request(`/users/${username}`, { method: 'DELETE' });
  const changes: Readonly<Record<string, (username: string) => Promise<unknown>>> = {
    'is over when its user is disabled': (username) => change(username, { disabled: true }),
    'is over when its user has another password': (username) => change(username, { password: next }),
    'is over when its user is removed': remove,
    'is over when another user has come by that name': async (username) => {
      await remove(username);
      await server.admin.json('/users', { json: { username, password: next } }, 201);
    },
  };
  for (const [number, [what, lockOut]] of Object.entries(changes).entries()) {
    it(`${what}, and what it had begun is taken`, async () => {
      const username = `user${number}@localhost`;
      const client = await signedIn(server, username);
      assert.equal((await client.command(`MAIL FROM:<${username}>`)).code, 250);
      await lockOut(username);
      assert.equal((await client.command('RCPT TO:<postmaster@localhost>')).code, 250);
      assert.equal((await client.data(lines('Subject: begun', '', 'before'))).code, 250);
      const { code, status } = await client.command(`MAIL FROM:<${username}>`);
      assert.deepEqual([code, status], [421, '4.7.0']);
      await client.waitForEnd();
      client.close();
    });
  }

  it('continues when something else of its user is changed', async () => {
    const username = 'stays@localhost';
    const client = await signedIn(server, username);
    await change(username, { aliases: ['info@localhost'] });
    assert.equal((await client.command(`MAIL FROM:<${username}>`)).code, 250);
    client.close();
  });
});

async function signedIn(server: InProcessServer, username: string): Promise<SmtpClient> {
  await server.admin.json('/users', { json: { username, password } }, 201);
  const client = await SmtpClient.greeted({ port: server.portOf('submission') });
  assert.equal((await client.command('STARTTLS')).code, 220);
  await client.startTls();
  await client.command('EHLO client.example');
  const plain = Buffer.from(`\0${username}\0${password}`).toString('base64');
  assert.equal((await client.command(`AUTH PLAIN ${plain}`)).code, 235);
  return client;
}
