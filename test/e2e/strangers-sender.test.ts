import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startInProcess } from '../support/in-process-server.js';
import { listMessages } from '../support/mailbox-reader.js';
import { SmtpClient } from '../support/smtp-client.js';

const configuration = (relayNetworks: readonly string[]): string =>
  JSON.stringify({ smtp: { listeners: [{ name: 'mx', mode: 'mx', port: 0 }], relayNetworks } });

test('F-S7 a stranger at an MX cannot ask for notices to the sender that it names', async (t) => {
  const server = await startInProcess(t, configuration([]));
  const client = await SmtpClient.connect({ port: server.portOf('mx') });
  await client.readReply();
  const hello = await client.command('EHLO client.example');
  assert.ok(!hello.lines.includes('DSN'));
  assert.equal((await client.command('MAIL FROM:<victim@far.test> RET=FULL')).code, 555);
  assert.equal((await client.command('MAIL FROM:<victim@far.test> ENVID=x')).code, 555);
  assert.equal((await client.command('MAIL FROM:<victim@far.test>')).code, 250);
  assert.equal((await client.command('RCPT TO:<postmaster@localhost> NOTIFY=SUCCESS')).code, 555);
  assert.equal((await client.command('RCPT TO:<postmaster@localhost>')).code, 250);
  client.close();
});

test('F-S7 a client of a relay network can', async (t) => {
  const server = await startInProcess(t, configuration(['127.0.0.1']));
  const client = await SmtpClient.connect({ port: server.portOf('mx') });
  await client.readReply();
  assert.ok((await client.command('EHLO client.example')).lines.includes('DSN'));
  assert.equal((await client.command('MAIL FROM:<a@far.test> RET=HDRS')).code, 250);
  assert.equal((await client.command('RCPT TO:<postmaster@localhost> NOTIFY=SUCCESS')).code, 250);
  client.close();
});

test('F-S7 a full mailbox beside another is 452 for a stranger, and nothing is queued for a sender that may be forged', async (t) => {
  const server = await startInProcess(t, configuration([]));
  await server.admin.json('/users', { json: { username: 'full@localhost', quota: 2000 } }, 201);
  const client = await SmtpClient.greeted({ port: server.portOf('mx') });
  await client.command('MAIL FROM:<victim@far.test>');
  for (const to of ['postmaster@localhost', 'full@localhost']) {
    assert.equal((await client.command(`RCPT TO:<${to}>`)).code, 250);
  }
  await client.command('DATA');
  client.write(`Subject: large\r\n\r\n${'x'.repeat(70)}\r\n`.padEnd(3000, `${'y'.repeat(70)}\r\n`) + '\r\n');
  assert.equal((await client.command('.')).code, 452);
  const { total } = (await server.admin.json('/client/queue/list')) as { total: number };
  assert.equal(total, 0);
  assert.equal((await listMessages(server.admin)).length, 0);
  // The next message names its size, so only the full one is refused.
  assert.equal((await client.command('MAIL FROM:<victim@far.test> SIZE=3000')).code, 250);
  assert.equal((await client.command('RCPT TO:<full@localhost>')).code, 452);
  assert.equal((await client.command('RCPT TO:<postmaster@localhost>')).code, 250);
  client.close();
});
