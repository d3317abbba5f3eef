import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { selfSigned } from '../support/certificate.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** Words of the line behind `Try it`, with another name in the place of NAME. */
async function triedWords(server: ServerProcess): Promise<readonly string[]> {
  const [, line = ''] = await server.find(/^ {2}Try it\s+swaks (.*)$/m);
  return line.replaceAll('NAME', 'anna').split(' ');
}

test('the line to try it works whatever listens', { skip: skipWithout('swaks') }, async (t) => {
  const { key, cert } = selfSigned('localhost');
  const pair = `key: ${JSON.stringify(key)}, cert: ${JSON.stringify(cert)}`;
  const cases: readonly (readonly [listeners: string, ready: RegExp])[] = [
    [`{ mode: 'submission', port: 0, tls: 'starttls', ${pair} }, { port: 0, host: '::' }`, /--server 127/],
    [`{ mode: 'submission', port: 0, tls: 'starttls', ${pair} }`, /--tls --auth-user anna@localhost/],
    [`{ mode: 'submission', port: 0, tls: 'implicit', ${pair} }`, /--tls-on-connect --auth-user anna@localhost/],
    [`{ mode: 'submission', port: 0, allowPlaintextAuth: true }`, /:\d+ --auth-user/],
    [`{ mode: 'submission', port: 0 }, { mode: 'lmtp', port: 0 }`, /--protocol LMTP/],
  ];
  for (const [listeners, ready] of cases) {
    const folder = await temporaryFolder(t);
    const server = await ServerProcess.start(t, { folder, config: `{ smtp: { listeners: [${listeners}] } }` });
    const admin = HttpClient.admin(server.http);
    const password = 'correct horse battery';
    await admin.json('/users', { json: { username: 'anna@localhost', password } }, 201);
    const words = await triedWords(server);
    assert.match(words.join(' '), ready);
    // It asks for the password when it is at a terminal.
    const given = words.includes('--auth-user') ? [...words, '--auth-password', password] : words;
    await promisify(execFile)(findPeer('swaks') ?? 'swaks', given);
    assert.equal((await listMessages(admin)).length, 1, listeners);
  }
});

test('where no listener accepts mail, no line says how to send', async (t) => {
  const folder = await temporaryFolder(t);
  const config = `{ smtp: { listeners: [{ mode: 'submission', port: 0 }] } }`;
  const server = await ServerProcess.start(t, { folder, config });
  await server.find(/Add a user/);
  assert.doesNotMatch(server.output, /swaks/);
});
