import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { giveTo, isRoot, mailAccount } from '../../../support/account.js';
import { Dovecot } from '../../../support/dovecot.js';
import { maildirMessages } from '../../../support/mailbox-reader.js';
import { skipWithout } from '../../../support/peers.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { untilTrue } from '../../../support/until.js';
import { OwnerSite, sendMail } from './owner-site.js';

const names = ['mx1', 'mx2', 'mx3'];
const routes = (port: number, verify: 'rcpt' | 'directory') => ({
  lmtp: { routes: [{ name: 'boxes', domains: ['example.org'], hosts: ['127.0.0.1'], port, tls: 'never', verify }] },
});

describe('mailboxes elsewhere', { skip: skipWithout('postgres') }, () => {
  test('three nodes deliver one domain to one LMTP server, for users that they share', async (t) => {
    const sink = await SmtpSink.start(t, { protocol: 'lmtp' });
    const site = await OwnerSite.start(t, names, { mailboxes: 'elsewhere', plugins: routes(sink.port, 'directory') });
    await site.users('mx2', 'ann');
    await untilTrue('all know ann', async () => {
      const codes = await Promise.all(names.map((name) => sendMail(site.node(name), ['ann'], `hello from ${name}`)));
      return codes.every((code) => code === 250);
    });
    for (const name of names) {
      assert.ok(
        sink.messages.some(({ text }) => text.includes(`hello from ${name}`)),
        name,
      );
      assert.equal(await sendMail(site.node(name), ['nobody'], 'no'), 550);
      assert.deepEqual(await site.inbox(name, 'ann'), []);
    }
    const { divided } = (await site.node('mx1').admin.json('/cluster')) as { divided: string | null };
    assert.equal(divided, null);
  });

  const skip = skipWithout('dovecot') || skipWithout('lmtp') || (isRoot() && skipWithout('setpriv'));
  test('three nodes deliver to Dovecot', { skip }, async (t) => {
    const account = mailAccount();
    const mailRoot = join(await temporaryFolder(t), 'boxes');
    await mkdir(mailRoot);
    await giveTo(account, join(mailRoot, '..'));
    await giveTo(account, mailRoot);
    const dovecot = await Dovecot.start(t, { mailRoot, account, lmtp: true, users: ['ann@example.org'] });
    const wishes = { mailboxes: 'elsewhere', plugins: routes(dovecot.lmtpPort, 'rcpt') };
    const site = await OwnerSite.start(t, names, wishes);
    for (const name of names) assert.equal(await sendMail(site.node(name), ['ann'], `hello from ${name}`), 250);
    const texts = (await maildirMessages(join(mailRoot, 'example.org', 'ann'))).map(String);
    for (const name of names) assert.equal(texts.filter((text) => text.includes(`hello from ${name}`)).length, 1);
    assert.equal(await sendMail(site.node('mx1'), ['nobody'], 'no'), 550);
    assert.deepEqual(await dovecot.complaints(), []);
  });
});

describe('mailboxes here', { skip: skipWithout('postgres') }, () => {
  interface Health {
    readonly components: Readonly<Record<string, { readonly status: string; readonly why?: string }>>;
  }

  test('on two nodes are told of: mail of one user would lie on both', async (t) => {
    const site = await OwnerSite.start(t, ['mx1'], { mailboxes: 'here' });
    const told = async (): Promise<string | null> =>
      ((await site.node('mx1').admin.json('/cluster')) as { divided: string | null }).divided;
    assert.equal(await told(), null);
    await site.add('mx2');
    assert.match((await told()) ?? '', /mx1, mx2 each keep the mailboxes of the same users/);
    assert.match(await site.node('mx2').admin.page('/cluster'), /mail of one user lies on several nodes/);
    await untilTrue('health says so', async () => {
      const answer = await site.node('mx1').admin.request('/health', { accept: 'application/json' });
      const { components } = JSON.parse(answer.text) as Health;
      const { status, why = '' } = components['mailboxes of the cluster'] ?? { status: 'none' };
      return status === 'degraded' && why.includes('mx1, mx2');
    });
  });
});
