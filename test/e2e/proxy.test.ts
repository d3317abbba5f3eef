import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { untilListed } from '../support/awaited-mail.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const text = 'Subject: proxied\r\n\r\nhello\r\n';

const config = (one: number, two: number, rule = '.*@one\\\\.example'): string => `{
  smtp: { listeners: [{ port: 0 }] },
  plugins: {
    'client-queue': { retry: { firstSeconds: 1 } },
    proxy: { rules: [
      { name: 'one', rcpt: '${rule}', hosts: ['127.0.0.1:${one}'], tls: 'never' },
      { name: 'two', rcpt: '.*@two\\\\.example', hosts: ['127.0.0.1:${two}'], protocol: 'lmtp', tls: 'never' },
    ] },
  },
}`;

test('one message goes to a mailbox, to a server in line, and through the queue to another one', async (t) => {
  const one = await SmtpSink.start(t);
  const two = await SmtpSink.start(t, {
    protocol: 'lmtp',
    steps: {
      dot: ['451 4.3.0 Not yet', undefined],
      rcpt: ({ line }) => (/<no@/.test(line) ? '550 5.1.1 No' : undefined),
    },
  });
  const folder = await temporaryFolder(t);
  const server = await ServerProcess.start(t, { folder, config: config(one.port, two.port) });
  const client = await SmtpClient.greeted({ port: server.smtpPort });
  await client.command('MAIL FROM:<anna@sender.example>');
  const codes: number[] = [];
  for (const to of [
    'ben@one.example',
    'postmaster@localhost',
    'cleo@two.example',
    'no@two.example',
    'x@three.example',
  ]) {
    codes.push((await client.command(`RCPT TO:<${to}>`)).code);
  }
  assert.deepEqual(codes, [250, 250, 250, 550, 550]);
  assert.equal((await client.data(text)).code, 250);
  assert.deepEqual(
    one.messages.map(({ recipients }) => recipients),
    [['ben@one.example']],
  );
  const admin = HttpClient.admin(server.http);
  await untilListed(admin, 1);
  assert.deepEqual(
    (await listMessages(admin)).map(({ subject }) => subject),
    ['proxied'],
  );
  await two.until(({ messages }) => messages.length === 2);
  assert.deepEqual(two.messages[1]?.recipients, ['cleo@two.example'], 'tried again after the first no');
  assert.match(two.messages[1]?.text.toString() ?? '', /^Received: .*\r\nSubject: proxied\r\n\r\nhello\r\n$/s);

  const mistake = config(one.port, two.port, '(.*@one');
  await writeFile(join(folder, 'postern.json5'), mistake);
  const refused = await admin.request('/config/reload', { method: 'POST' });
  assert.equal(refused.status, 422);
  assert.match(
    refused.text,
    /postern\.json5:6:\d+: plugins\.proxy\.rules\.0\.rcpt: the pattern cannot be read: missing closing \)/,
  );
  await client.command('MAIL FROM:<anna@sender.example>');
  assert.equal((await client.command('RCPT TO:<ben@one.example>')).code, 250, 'the rules of before are in force');
  client.close();
});
