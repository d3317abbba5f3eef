import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { giveTo, isRoot, mailAccount } from '../support/account.js';
import { untilListed } from '../support/awaited-mail.js';
import { Dovecot } from '../support/dovecot.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { ImapClient, type FetchedMessage } from '../support/imap-client.js';
import { listMessages, rawMessage } from '../support/mailbox-reader.js';
import { skipWithout } from '../support/peers.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();
const skip = skipWithout('dovecot') || skipWithout('lmtp') || (isRoot() && skipWithout('setpriv'));
const several = 30;
const ann = 'ann@boxes.example';
const bob = 'bob@boxes.example';
const nobody = 'nobody@boxes.example';

interface ListedEntry {
  readonly uid: string;
  readonly state: string;
}
interface Entry {
  readonly recipients: readonly {
    readonly address: string;
    readonly state: string;
    readonly lastReply: { readonly code: number; readonly status: string } | null;
  }[];
}

describe('a queue that gives its mail to Dovecot over LMTP', { skip }, () => {
  let server: ServerProcess;
  let dovecot: Dovecot;
  let admin: HttpClient;

  before(async () => {
    const account = mailAccount();
    const folder = await temporaryFolder(suite);
    await giveTo(account, folder);
    const mailRoot = join(folder, 'boxes');
    await mkdir(mailRoot);
    await giveTo(account, mailRoot);
    dovecot = await Dovecot.start(suite, { mailRoot, account, lmtp: true, users: [ann, bob] });
    server = await ServerProcess.start(suite, {
      folder: await temporaryFolder(suite),
      config: `{
        smtp: { listeners: [{ port: 0 }], relayNetworks: ['127.0.0.0/8'] },
        plugins: { 'client-queue': {
          routes: { boxes: {
            mx: ['127.0.0.1'], port: ${dovecot.lmtpPort}, protocol: 'lmtp', tls: 'never', domains: ['boxes.example'],
          } },
        } },
      }`,
    });
    admin = HttpClient.admin(server.http);
  });

  const text = (subject: string): string =>
    ['From: postmaster@localhost', `Subject: ${subject}`, '', '..', '.x', 'Grüße', ''].join('\r\n');

  async function send(subject: string, recipients: readonly string[]): Promise<void> {
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    assert.equal((await client.command('MAIL FROM:<postmaster@localhost> BODY=8BITMIME')).code, 250);
    for (const recipient of recipients) assert.equal((await client.command(`RCPT TO:<${recipient}>`)).code, 250);
    assert.equal((await client.data(text(subject))).code, 250);
    client.close();
  }

  async function untilNoneIsOpen(): Promise<void> {
    const open = async () => ((await admin.json('/client/queue/list')) as { total: number }).total;
    while ((await open()) > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  async function mailOf(user: string): Promise<readonly FetchedMessage[]> {
    const client = await ImapClient.open(dovecot.port, user);
    await client.command('SELECT INBOX');
    const found = await client.fetch('UID FETCH 1:* (UID BODY.PEEK[])');
    await client.logout();
    return found;
  }

  const bodyOf = ({ body = Buffer.alloc(0) }: FetchedMessage): string => body.toString('utf8');

  test('delivers to users that Dovecot knows, and returns mail for others', async () => {
    await send('three of them', [ann, nobody, bob]);
    const [notice] = await untilListed(admin, 1);
    const report = (await rawMessage(admin, notice?.id ?? '')).toString();
    assert.deepEqual(
      [...report.matchAll(/^Final-Recipient: rfc822; (\S+)\r$/gm)].map(([, address]) => address),
      [nobody],
    );
    assert.match(report, /^Action: failed\r$/m);
    assert.match(report, /^Status: 5\.1\.1\r$/m);
    assert.match(report, /^Diagnostic-Code: smtp; 550 5\.1\.1 <nobody@boxes\.example>/m);

    for (const user of [ann, bob]) {
      const [delivered, ...more] = await mailOf(user);
      assert.ok(delivered);
      assert.deepEqual(more, [], `${user} has it once`);
      assert.match(bodyOf(delivered), new RegExp(`^Return-Path: <postmaster@localhost>\r$`, 'm'));
      assert.ok(bodyOf(delivered).endsWith(text('three of them')), bodyOf(delivered));
    }

    const { items } = (await admin.json('/client/queue/list?state=bounced')) as { items: readonly ListedEntry[] };
    assert.equal(items.length, 1);
    const { recipients } = (await admin.json(`/client/queue/${items[0]?.uid}`)) as Entry;
    assert.deepEqual(
      recipients.map(({ address, state, lastReply }) => [address, state, lastReply?.code]),
      [
        [ann, 'delivered', 250],
        [nobody, 'bounced', 550],
        [bob, 'delivered', 250],
      ],
    );
  });

  test('delivers message after message on connections that it keeps', async () => {
    const earlier = (await mailOf(ann)).length;
    await Promise.all(Array.from({ length: several }, (_, n) => send(`number ${n}`, [ann])));
    await untilNoneIsOpen();
    const arrived = (await mailOf(ann)).slice(earlier).map(bodyOf);
    assert.equal(arrived.length, several);
    assert.equal(new Set(arrived.map((body) => /^Subject: (.*)\r$/m.exec(body)?.[1])).size, several);
    assert.equal((await listMessages(admin)).length, 1, 'nothing more came back');
    assert.deepEqual(await dovecot.complaints(), []);
  });
});
