import assert from 'node:assert/strict';
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { giveTo, isRoot, mailAccount, skipWithoutRoot } from '../support/account.js';
import { selfSigned } from '../support/certificate.js';
import { Dovecot } from '../support/dovecot.js';
import { ImapClient } from '../support/imap-client.js';
import { skipWithout } from '../support/peers.js';
import { Postfix } from '../support/postfix.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const text = 'From: anna@sender.example\r\nSubject: handed on\r\n\r\n.dot\r\n..\r\nGrüße\r\n';

/** The replies to RCPT, then the one to the message. */
async function send(client: SmtpClient, ...recipients: readonly string[]): Promise<readonly string[]> {
  await client.command('MAIL FROM:<anna@sender.example> BODY=8BITMIME');
  const replies: string[] = [];
  for (const one of recipients) replies.push((await client.command(`RCPT TO:<${one}>`)).raw.trimEnd());
  if (replies.some((reply) => reply.startsWith('250'))) replies.push((await client.data(text)).raw.trimEnd());
  else await client.command('RSET');
  return replies;
}

const skipPostfix = skipWithout('postfix') || skipWithoutRoot('Postfix drops the rights of root in its own way');

describe('Postfix behind a proxy rule', { skip: skipPostfix }, () => {
  test('answers the client itself, over one connection, and passes the mail on', async (t) => {
    const last = await SmtpSink.start(t, { tls: selfSigned() });
    const postfix = await Postfix.start(t, last.port);
    const server = await ServerProcess.start(t, {
      folder: await temporaryFolder(t),
      config: `{ smtp: { listeners: [{ port: 0 }] }, plugins: { proxy: { rules: [
        { name: 'postfix', rcpt: '.*@far\\\\.example', hosts: ['127.0.0.1'], port: ${postfix.port} },
      ] } } }`,
    });
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    for (let n = 0; n < 5; n += 1) {
      const [rcpt = '', dot = ''] = await send(client, 'ben@far.example');
      assert.equal(rcpt, '250 2.1.5 Ok');
      assert.match(dot, /^250 2\.0\.0 Ok: (?:\d+ bytes )?queued as [0-9A-Za-z]+$/, 'in the words of Postfix');
    }
    const [refused = ''] = await send(client, `${'x'.repeat(64)}@[IPv6:::zz].far.example`);
    assert.match(refused, /^5\d\d /);
    client.close();
    await last.until(({ messages }) => messages.length === 5);
    assert.ok(last.messages.every((message) => message.text.toString().endsWith('\r\n\r\n.dot\r\n..\r\nGrüße\r\n')));
    const connects = await postfix.untilLogged(/smtpd\[\d+\]: connect from/, 2);
    // The first is that of the test, which waited until Postfix listened.
    assert.equal(connects.length, 2);
  });
});

const skipDovecot = skipWithout('dovecot') || skipWithout('lmtp') || (isRoot() && skipWithout('setpriv'));

describe('Dovecot behind a route of LMTP', { skip: skipDovecot }, () => {
  test('gets the mail of its users, each recipient by itself', async (t) => {
    const folder = await temporaryFolder(t);
    const account = mailAccount();
    const mailRoot = join(folder, 'mailboxes');
    await chmod(folder, 0o711);
    await mkdir(mailRoot);
    await giveTo(account, mailRoot);
    const dovecot = await Dovecot.start(t, { mailRoot, account, lmtp: true });
    const server = await ServerProcess.start(t, {
      folder,
      config: `{ smtp: { listeners: [{ port: 0 }, { mode: 'lmtp', port: 0 }] }, plugins: { lmtp: { routes: [
        { name: 'dovecot', domains: ['office.example'], hosts: ['127.0.0.1'], port: ${dovecot.lmtpPort}, tls: 'never' },
      ] } } }`,
    });
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    const replies = await send(client, 'anna@office.example', 'ben@office.example');
    assert.deepEqual(
      replies.slice(0, 2).map((reply) => reply.slice(0, 9)),
      ['250 2.1.5', '250 2.1.5'],
    );
    assert.match(replies[2] ?? '', /^250 2\.0\.0 /);
    for (const name of ['anna', 'ben']) {
      const imap = await ImapClient.open(dovecot.port, `${name}@office.example`);
      await imap.command('SELECT INBOX');
      const [message] = await imap.fetch('UID FETCH 1:* (UID FLAGS RFC822.SIZE BODY.PEEK[])');
      assert.match(message?.body?.toString() ?? '', /Subject: handed on\r\n\r\n\.dot\r\n\.\.\r\nGrüße\r\n$/);
      imap.close();
    }
    const lmtp = await SmtpClient.greeted({ port: await server.portOf('lmtp') }, 'LHLO client.example');
    await lmtp.pipeline(['MAIL FROM:<>', 'RCPT TO:<anna@office.example>', 'RCPT TO:<postmaster@localhost>', 'DATA']);
    lmtp.write(`${text.replace(/^\./gm, '..')}.\r\n`);
    const [first, second] = await lmtp.readReplies(2);
    assert.match(first?.raw ?? '', /^250 2\.0\.0 <anna@office\.example> .*Saved/);
    assert.match(second?.raw ?? '', /^250 2\.0\.0 Ok: queued as /);
    assert.deepEqual(await dovecot.complaints(), []);
    client.close();
    lmtp.close();
  });
});
