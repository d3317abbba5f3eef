import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { selfSigned } from '../support/certificate.js';
import { untilListed } from '../support/awaited-mail.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { runPostern, ServerProcess } from '../support/server-process.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();
const password = 'lower the drawbridge';

const plain = (username: string, secret: string) =>
  `AUTH PLAIN ${Buffer.from(`\0${username}\0${secret}`).toString('base64')}`;

describe('who may send what', () => {
  let server: ServerProcess;
  let sink: SmtpSink;
  let submission = 0;

  before(async () => {
    const folder = await temporaryFolder(suite);
    const { key, cert } = selfSigned();
    await writeFile(join(folder, 'key.pem'), key);
    await writeFile(join(folder, 'cert.pem'), cert);
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    const added = await runPostern(['user', 'add', 'anna@localhost'], { cwd: folder, input: `${password}\n` });
    assert.equal(added.code, 0, added.stderr);
    sink = await SmtpSink.start(suite, {
      steps: { rcpt: ({ line }) => (/<gone@/.test(line) ? '550 5.1.1 Gone' : undefined) },
    });
    server = await ServerProcess.start(suite, {
      folder,
      config: `{
        smtp: { listeners: [
          { port: 0 },
          { mode: 'submission', port: 0, tls: 'starttls', key: 'key.pem', cert: 'cert.pem' },
        ], relayNetworks: ['127.0.0.2'] },
        plugins: { 'client-queue': {
          routes: { next: { mx: ['127.0.0.1'], port: ${sink.port}, tls: 'never' } },
          defaultRoute: 'next',
        } },
      }`,
    });
    submission = await server.portOf('submission');
  });

  /** A session on the submission listener behind STARTTLS. */
  async function secured(): Promise<SmtpClient> {
    const client = await SmtpClient.greeted({ port: submission });
    assert.equal((await client.command('STARTTLS')).code, 220);
    await client.startTls();
    await client.command('EHLO client.example');
    return client;
  }

  const foreign = [
    'someone@elsewhere.example',
    '@localhost:someone@elsewhere.example',
    'someone%elsewhere.example@localhost',
    'elsewhere.example!someone@localhost',
    '"someone@elsewhere.example"@localhost',
    'someone@[192.0.2.1]',
    'someone@elsewhere.example.',
  ];
  for (const recipient of foreign) {
    test(`a stranger cannot send to ${recipient}`, async () => {
      const client = await SmtpClient.greeted({ port: server.smtpPort });
      for (const sender of ['a@sender.example', 'postmaster@localhost', '']) {
        assert.equal((await client.command(`MAIL FROM:<${sender}>`)).code, 250);
        const { code } = await client.command(`RCPT TO:<${recipient}>`);
        assert.ok(code >= 500 && code < 600, `${code}`);
        assert.equal((await client.command('DATA')).code, 503);
        await client.command('RSET');
      }
      client.close();
    });
  }

  test('relaying is denied with 550 5.7.1', async () => {
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    await client.command('MAIL FROM:<a@sender.example>');
    const reply = await client.command('RCPT TO:<someone@elsewhere.example>');
    assert.deepEqual([reply.code, reply.status], [550, '5.7.1']);
    client.close();
  });

  test('submission wants TLS first, then a password, then takes mail', async () => {
    const client = await SmtpClient.greeted({ port: submission });
    const hello = await client.command('EHLO client.example');
    assert.ok(!hello.lines.some((line) => line.startsWith('AUTH')), 'no AUTH is offered in clear');
    assert.ok([530, 538].includes((await client.command(plain('anna@localhost', password))).code));
    assert.equal((await client.command('MAIL FROM:<anna@localhost>')).code, 530);
    client.close();

    const safe = await secured();
    assert.equal((await safe.command('MAIL FROM:<anna@localhost>')).code, 530);
    assert.equal((await safe.command(plain('anna@localhost', 'wrong'))).code, 535);
    assert.equal((await safe.command(plain('anna@localhost', password))).code, 235);
    await safe.command('MAIL FROM:<anna@localhost>');
    assert.equal((await safe.command('RCPT TO:<postmaster@localhost>')).code, 250);
    assert.equal((await safe.data('Subject: submitted\r\n\r\nhello\r\n')).code, 250);
    safe.close();

    const messages = await listMessages(HttpClient.admin(server.http));
    assert.deepEqual(
      messages.map(({ subject }) => subject),
      ['submitted'],
    );
  });

  test('mail of a user to a foreign domain is taken, and goes to the next server', async () => {
    const client = await secured();
    assert.equal((await client.command(plain('anna@localhost', password))).code, 235);
    await client.command('MAIL FROM:<anna@localhost>');
    assert.equal((await client.command('RCPT TO:<someone@elsewhere.example>')).code, 250);
    assert.equal((await client.data('Subject: abroad\r\n\r\nhello\r\n')).code, 250);
    client.close();
    await sink.until(({ messages }) => messages.some(({ text }) => /^Subject: abroad/m.test(String(text))));
    const [message] = sink.messages;
    assert.deepEqual([message?.sender, message?.recipients], ['anna@localhost', ['someone@elsewhere.example']]);
    assert.match(String(message?.text), /^Received: from client\.example /);
  });

  test('a client in a relay network may send to anybody, and hears of a failure in words and as a report', async () => {
    const client = await SmtpClient.greeted({ port: server.smtpPort, localAddress: '127.0.0.2' });
    await client.command('MAIL FROM:<anna@localhost>');
    assert.equal((await client.command('RCPT TO:<gone@elsewhere.example>')).code, 250);
    assert.equal((await client.data('Subject: lost\r\n\r\nhello\r\n')).code, 250);
    client.close();
    const admin = HttpClient.admin(server.http);
    const [notice] = await untilListed(admin, 1, 'localhost/anna');
    assert.match(notice?.subject ?? '', /could not be delivered/);
  });
});
