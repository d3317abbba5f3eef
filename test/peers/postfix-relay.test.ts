import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { nonEndings, smuggledTo } from '../hostile/smuggling.js';
import { skipWithoutRoot } from '../support/account.js';
import { untilListed } from '../support/awaited-mail.js';
import { selfSigned } from '../support/certificate.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { rawMessage } from '../support/mailbox-reader.js';
import { skipWithout } from '../support/peers.js';
import { Postfix } from '../support/postfix.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();
const count = 40;
const skip = skipWithout('postfix') || skipWithoutRoot('Postfix drops the rights of root in its own way');

describe('mail on its way over us, Postfix and a second one of us', { skip }, () => {
  let first: ServerProcess;
  let second: ServerProcess;
  let postfix: Postfix;

  before(async () => {
    const folder = await temporaryFolder(suite);
    const { key, cert } = selfSigned();
    await writeFile(join(folder, 'key.pem'), key);
    await writeFile(join(folder, 'cert.pem'), cert);
    second = await ServerProcess.start(suite, {
      folder,
      config: `{
        domains: ['far.example', 'localhost'],
        smtp: { listeners: [{ port: 0, tls: 'starttls', key: 'key.pem', cert: 'cert.pem' }] },
      }`,
    });
    // As it was before it knew better: a bare line feed is a line end.
    postfix = await Postfix.start(suite, second.smtpPort, { settings: ['smtpd_forbid_bare_newline = no'] });
    first = await ServerProcess.start(suite, {
      folder: await temporaryFolder(suite),
      config: `{
        smtp: { listeners: [{ port: 0 }], relayNetworks: ['127.0.0.0/8'] },
        plugins: { 'client-queue': {
          routes: {
            postfix: { mx: ['127.0.0.1'], port: ${postfix.port} },
            straight: { mx: ['127.0.0.1'], port: ${second.smtpPort}, tls: 'require', verify: false, domains: ['near.example'] },
          },
          defaultRoute: 'postfix',
        } },
      }`,
    });
  });

  async function send(recipient: string, subject: string): Promise<void> {
    const client = await SmtpClient.greeted({ port: first.smtpPort });
    assert.equal((await client.command('MAIL FROM:<postmaster@localhost> BODY=8BITMIME')).code, 250);
    assert.equal((await client.command(`RCPT TO:<${recipient}>`)).code, 250);
    assert.equal((await client.data(`Subject: ${subject}\r\n\r\n..\r\n.x\r\nGrüße\r\n`)).code, 250);
    client.close();
  }

  test('arrives byte for byte', async () => {
    for (let n = 0; n < count; n += 1) await send('postmaster@far.example', `number ${n}`);
    const there = HttpClient.admin(second.http);
    const listed = await untilListed(there, count, 'far.example/postmaster');
    assert.equal(new Set(listed.map(({ subject }) => subject)).size, count);
    const raw = await rawMessage(there, listed[0]?.id ?? '', 'far.example/postmaster');
    assert.ok(raw.toString('utf8').endsWith('\r\n\r\n..\r\n.x\r\nGrüße\r\n'));
    assert.deepEqual(await postfix.logged(/warning|fatal|panic|status=(?!sent)/), []);
  });

  test('is returned by Postfix when the last server refuses it', async () => {
    await send('nobody@far.example', 'lost');
    await postfix.untilLogged(/status=bounced.* 5\.1\.1 /);
    const listed = await untilListed(HttpClient.admin(second.http), count + 1, 'far.example/postmaster');
    assert.ok(listed.some(({ subject }) => /Undelivered Mail Returned to Sender/.test(subject)));
  });

  test('is refused by a second one of us over TLS, and we tell the sender ourselves', async () => {
    await send('nobody@near.example', 'refused');
    const here = HttpClient.admin(first.http);
    const [notice] = await untilListed(here, 1);
    const raw = (await rawMessage(here, notice?.id ?? '')).toString();
    assert.match(raw, /^Final-Recipient: rfc822; nobody@near\.example\r$/m);
    assert.match(raw, /^Status: 5\.7\.1\r$/m);
    assert.match(raw, /^Remote-MTA: dns; \[127\.0\.0\.1]\r$/m);
    const { items } = (await here.json('/client/queue/list?state=bounced')) as { items: { uid: string }[] };
    const { history } = (await here.json(`/client/queue/${items[0]?.uid}`)) as { history: { tls: string | null }[] };
    assert.match(history[0]?.tls ?? '', /^TLSv1\.[23]$/);
  });

  test('S14 smuggles no second message, whatever comes before it', async () => {
    const there = HttpClient.admin(second.http);
    const recipient = 'smuggled@far.example';
    await there.json('/users', { json: { username: recipient, password: 'rye bread and cheese' } }, 201);
    let accepted = 0;
    for (const ending of Object.values(nonEndings)) {
      const client = await SmtpClient.greeted({ port: first.smtpPort });
      await client.pipeline(['MAIL FROM:<postmaster@localhost>', `RCPT TO:<${recipient}>`, 'DATA']);
      client.write(Buffer.from(`Subject: first\r\n\r\nfirst${ending}${smuggledTo(recipient)}\r\n.\r\n`, 'latin1'));
      const { code } = await client.readReply();
      assert.equal(code, ending.includes('\0') ? 554 : 250);
      if (code === 250) accepted += 1;
      client.close();
    }
    // One more behind them: when it is there, so is whatever they brought along.
    await send(recipient, 'last');
    const listed = await untilListed(there, accepted + 1, 'far.example/smuggled');
    assert.deepEqual(new Set(listed.map(({ subject }) => subject)), new Set(['first', 'last']));
    assert.equal(listed.length, accepted + 1);
    assert.deepEqual(await postfix.logged(/from=<evil@/), []);
  });
});
