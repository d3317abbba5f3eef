import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { configure } from '../../core/main.js';
import { giveTo, mailAccount, skipWithoutRoot } from '../support/account.js';
import { deliver, lines } from '../support/delivery.js';
import { Dovecot } from '../support/dovecot.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { ImapClient } from '../support/imap-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { Postfix } from '../support/postfix.js';
import { runPostern, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { changed, example, exampleFolder, runnable } from './example.js';

const examples = readdirSync(exampleFolder).filter((name) => name.endsWith('.json5'));

async function answerTo(port: number, recipient: string): Promise<number> {
  const client = await SmtpClient.greeted({ port });
  await client.command('MAIL FROM:<program@elsewhere.example>');
  const { code } = await client.command(`RCPT TO:<${recipient}>`);
  client.close();
  return code;
}

describe('the example configurations', () => {
  test('there are those that the documents name', () => {
    assert.deepEqual(examples.toSorted(), [
      'catch-all.json5',
      'dovecot-lmtp.json5',
      'in-front-of-postfix.json5',
      'mail-host.json5',
    ]);
  });

  for (const name of examples) {
    test(`${name} has no mistakes, with the key and the certificate that it names`, async (t) => {
      const folder = await temporaryFolder(t);
      await writeFile(join(folder, 'postern.json5'), await runnable(name, folder));
      const { stdout, stderr } = await runPostern(['config', 'check'], { cwd: folder });
      assert.match(stdout, /no mistakes found/, stderr);
      // As it is, the ports of the world are asked for.
      const { settings } = await configure(
        { config: join(exampleFolder, name) },
        { cwd: folder, env: {}, print: () => undefined },
      );
      assert.ok(settings.smtp.listeners.some(({ port, host }) => [25, 2525].includes(port) && host === '0.0.0.0'));
    });
  }

  test('catch-all: whatever the name, one mailbox has it; other domains are refused', async (t) => {
    const folder = await temporaryFolder(t);
    const server = await ServerProcess.start(t, { folder, config: await runnable('catch-all.json5', folder) });
    for (const recipient of ['anybody@customer.example', 'who+tag@test.example']) {
      await deliver(server.smtpPort, lines(`Subject: for ${recipient}`, '', 'text'), recipient);
    }
    assert.equal(await answerTo(server.smtpPort, 'real@person.example'), 550);
    const subjects = (await listMessages(HttpClient.admin(server.http), 'test.example/postmaster')).map(
      ({ subject }) => subject,
    );
    assert.deepEqual(subjects.toSorted(), ['for anybody@customer.example', 'for who+tag@test.example']);
  });

  test(
    'mail host: mail is delivered, read by IMAP, and users sign in under TLS only',
    { skip: skipWithout('dovecot') },
    async (t) => {
      const folder = await temporaryFolder(t);
      await chmod(folder, 0o755);
      const account = mailAccount();
      const config = await runnable('mail-host.json5', folder);
      await mkdir(join(folder, 'data'), { mode: 0o700 });
      await giveTo(account, join(folder, 'data'));
      const server = await ServerProcess.start(t, { folder, config, launcher: account.launcher });
      const user = 'anna@example.org';
      const added = await runPostern(['user', 'add', user], {
        cwd: folder,
        input: 'correct horse battery\n',
        launcher: account.launcher,
      });
      assert.equal(added.code, 0, added.stderr);

      await writeFile(join(folder, 'imap-users'), `${user}:{PLAIN}an imap password\n`);
      await chmod(join(folder, 'imap-users'), 0o644);
      const settings = changed(example('mail-host.dovecot.conf'), {
        'ssl = required': 'ssl = no\ndisable_plaintext_auth = no',
        'ssl_cert = </etc/postern/tls/cert.pem\nssl_key = </etc/postern/tls/key.pem\n': '',
        '/var/lib/postern/mail': join(folder, 'data', 'mail'),
        '/etc/dovecot/postern-users': join(folder, 'imap-users'),
        'mail_uid = postern': `mail_uid = ${account.uid}`,
        'mail_gid = postern': `mail_gid = ${account.gid}`,
      });
      const dovecot = await Dovecot.start(t, { mailRoot: join(folder, 'data', 'mail'), account, settings });
      await deliver(server.smtpPort, lines('Subject: for anna', '', 'by IMAP'), user);
      assert.equal(await answerTo(server.smtpPort, 'nobody@example.org'), 550);

      await assert.rejects(ImapClient.open(dovecot.port, user, 'wrong'), /NO/);
      const imap = await ImapClient.open(dovecot.port, user, 'an imap password');
      await imap.command('SELECT INBOX');
      const [message] = await imap.fetch('UID FETCH 1:* (FLAGS RFC822.SIZE BODY[])');
      assert.match(message?.body?.toString() ?? '', /Subject: for anna/);
      assert.match(
        (await imap.command('LIST "" "*"')).map(({ text }) => text).join('\n'),
        /\\Drafts[^]*\\Sent|\\Sent[^]*\\Drafts/,
      );

      // Folders that come and go over HTTP, in the same IMAP session.
      const admin = HttpClient.admin(server.http);
      const folders = '/store/example.org/anna/folders';
      const listed = async () => (await imap.command('LIST "" "*"')).map(({ text }) => text.split(' ').at(-1));
      await admin.json(folders, { json: { name: 'Projects' } }, 201);
      assert.ok((await listed()).includes('Projects'), (await listed()).join());
      await imap.command('STATUS Projects (MESSAGES)');
      await admin.json(folders, { json: { name: '2026', parent: 'Projects' } }, 201);
      assert.ok((await listed()).includes('Projects/2026'));
      await admin.json(`${folders}/Projects`, { method: 'PATCH', json: { name: 'Work' } });
      const renamed = await listed();
      assert.ok(renamed.includes('Work/2026') && !renamed.includes('Projects'), renamed.join());
      await admin.request(`${folders}/Work?recursive=true`, { method: 'DELETE' });
      assert.ok(!(await listed()).some((name) => name?.startsWith('Work')));
      await imap.logout();
      assert.deepEqual(await dovecot.complaints(), []);

      const submission = await SmtpClient.greeted({ port: await server.portOf('submission') });
      assert.doesNotMatch((await submission.command('EHLO client.example')).raw, /AUTH/);
      await submission.command('STARTTLS');
      await submission.startTls();
      assert.match((await submission.command('EHLO client.example')).raw, /AUTH/);
      submission.close();
    },
  );
});

const withPostfix = skipWithoutRoot('Postfix changes its user') || skipWithout('postfix');

test(
  'in front of Postfix: its replies are the client’s, and it knows who that is',
  { skip: withPostfix },
  async (t) => {
    const folder = await temporaryFolder(t);
    const door = await freePort();
    const services = changed(example('in-front-of-postfix.master.cf'), {
      '127.0.0.1:10025 inet n - y ': `127.0.0.1:${door} inet n - n `,
    });
    // Nobody is behind it: what it takes stays in its queue.
    const postfix = await Postfix.start(t, await freePort(), { services, settings: ['relay_domains = example.org'] });
    const config = changed(await runnable('in-front-of-postfix.json5', folder), {
      '127.0.0.1:10025': `127.0.0.1:${door}`,
    });
    const server = await ServerProcess.start(t, { folder, config });
    const client = await SmtpClient.greeted({ port: server.smtpPort, localAddress: '127.0.0.9' });
    await client.command('MAIL FROM:<program@elsewhere.example>');
    const refused = await client.command('RCPT TO:<ben@example.net>');
    assert.match(refused.raw, /^554 5\.7\.1 .*Relay access denied/);
    assert.equal((await client.command('RCPT TO:<anna@example.org>')).code, 250);
    const taken = await client.data(lines('Subject: through', '', 'text'));
    const queueId = /queued as (\w+)/.exec(taken.raw)?.[1];
    assert.ok(queueId !== undefined, taken.raw);
    client.close();
    const logged = await postfix.untilLogged(new RegExp(`postfix/postern/smtpd.* ${queueId}: client=`));
    assert.match(logged.join('\n'), /\[127\.0\.0\.9\]/);
  },
);

const withLmtp = skipWithout('dovecot') || skipWithout('lmtp');

test('LMTP to Dovecot: it says who there is, keeps the mail and shows it by IMAP', { skip: withLmtp }, async (t) => {
  const folder = await temporaryFolder(t);
  await chmod(folder, 0o755);
  const account = mailAccount();
  const [user, home, port] = ['anna@example.org', join(folder, 'anna'), await freePort()];
  await mkdir(home);
  await giveTo(account, home);
  await writeFile(join(folder, 'users'), `${user}:{PLAIN}an imap password:${account.uid}:${account.gid}::${home}\n`);
  const settings = changed(example('dovecot-lmtp.dovecot.conf'), {
    'ssl = required': 'ssl = no\ndisable_plaintext_auth = no',
    'ssl_cert = </etc/dovecot/private/cert.pem\nssl_key = </etc/dovecot/private/key.pem\n': '',
    '/etc/dovecot/postern-users': join(folder, 'users'),
    'port = 24': `port = ${port}`,
  });
  const dovecot = await Dovecot.start(t, { mailRoot: folder, account, settings });
  const config = changed(await runnable('dovecot-lmtp.json5', folder), { '127.0.0.1:24': `127.0.0.1:${port}` });
  const server = await ServerProcess.start(t, { folder, config });
  await deliver(server.smtpPort, lines('Subject: by LMTP', '', 'text'), user);
  assert.equal(await answerTo(server.smtpPort, 'nobody@example.org'), 550);
  const imap = await ImapClient.open(dovecot.port, user, 'an imap password');
  await imap.command('SELECT INBOX');
  const [message] = await imap.fetch('UID FETCH 1:* (FLAGS RFC822.SIZE BODY[])');
  assert.match(message?.body?.toString() ?? '', /Subject: by LMTP/);
  await imap.logout();
});

describe('what stands beside the examples, statically', () => {
  for (const name of ['mail-host.dovecot.conf', 'dovecot-lmtp.dovecot.conf']) {
    test(`doveconf reads ${name}`, { skip: skipWithout('doveconf') }, () => {
      const { status, stdout, stderr } = spawnSync(
        findPeer('doveconf') ?? '',
        ['-n', '-c', join(exampleFolder, name)],
        { encoding: 'utf8' },
      );
      assert.equal(status, 0, stderr);
      assert.match(stdout, /^mail_location = /m);
    });
  }

  test(
    'postconf reads the line for master.cf, and Postern calls where it listens',
    { skip: skipWithout('postconf') },
    async (t) => {
      const folder = await temporaryFolder(t);
      await writeFile(join(folder, 'main.cf'), 'compatibility_level = 3.6\n');
      await writeFile(join(folder, 'master.cf'), example('in-front-of-postfix.master.cf'));
      const { status, stdout, stderr } = spawnSync(findPeer('postconf') ?? '', ['-c', folder, '-M'], {
        encoding: 'utf8',
      });
      assert.equal(status, 0, stderr);
      const [place = ''] = stdout.trim().split(/\s+/);
      assert.match(stdout, /smtpd_authorized_xclient_hosts=127\.0\.0\.1/);
      assert.ok(example('in-front-of-postfix.json5').includes(`hosts: ['${place}']`), place);
    },
  );
});
