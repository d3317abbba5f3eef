import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import { behindTrace, maildirMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until } from '../support/until.js';

const changing = `
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { change, definePlugin, next, parseAddress } from 'postern/plugin';

const never = new Promise(() => undefined);
const hangs = () => existsSync(join(import.meta.dirname, 'hang'));

export default definePlugin({
  name: 'changing',
  setup({ smtp }) {
    const sender = { change: 'sender', address: parseAddress('srs0=1=anna@example.org') };
    smtp.on('message', { timeLimitMs: 600_000 }, ({ message }) => {
      const [, subject] = message.headers.find(([name]) => name === 'Subject') ?? [];
      if (subject === 'hang') return change({ change: 'body', async *write(body) { yield* body; yield await never; } });
      return change(sender, { change: 'body', async *write(body) { yield* body; yield 'Footer\\n'; } });
    });
    smtp.on('attempt', { timeLimitMs: 600_000 }, () => (hangs() ? never : next()));
  },
});
`;

test('what hooks have changed is signed, and a kill while one hangs loses nothing that got a 250', async (t) => {
  const folder = await temporaryFolder(t);
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  await writeFile(join(folder, 'key.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
  await writeFile(join(folder, 'changing.mjs'), changing);
  await writeFile(join(folder, 'hang'), '');
  const sink = await SmtpSink.start(t);
  const config = `{
    sitePlugins: ['./changing.mjs'],
    smtp: { listeners: [{ port: 0 }], relayNetworks: ['127.0.0.1'] },
    plugins: { 'client-queue': {
      routes: { next: { mx: ['127.0.0.1'], port: ${sink.port}, tls: 'never' } },
      defaultRoute: 'next',
      dkim: { 'example.org': { selector: 's1', key: 'key.pem' } },
    } },
  }`;
  const server = await ServerProcess.start(t, { folder, config });
  const send = async (subject: string, to: string) => {
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    for (const line of ['MAIL FROM:<anna@example.com>', `RCPT TO:<${to}>`, 'DATA']) await client.command(line);
    client.write(`From: anna@example.org\r\nSubject: ${subject}\r\n\r\nHello\r\n.\r\n`);
    return client;
  };
  assert.equal((await (await send('kept', 'postmaster@localhost')).readReply()).code, 250);
  assert.equal((await (await send('queued', 'ben@sink.example')).readReply()).code, 250);
  const hanging = await send('hang', 'postmaster@localhost');
  await server.kill('SIGKILL');
  await assert.rejects(hanging.readReply());

  await rm(join(folder, 'hang'));
  await ServerProcess.start(t, { folder, config });
  const kept = await maildirMessages(join(folder, 'data', 'mail', 'localhost', 'postmaster'));
  assert.deepEqual(
    kept.map((raw) => behindTrace(raw).toString()),
    ['From: anna@example.org\r\nSubject: kept\r\n\r\nHello\r\nFooter\r\n'],
  );
  assert.match(kept[0]?.toString() ?? '', /^Return-Path: <srs0=1=anna@example\.org>\r\n/);

  await until('the queued mail is sent', () => sink.messages[0]);
  const [sent] = sink.messages;
  assert.equal(sent?.sender, 'srs0=1=anna@example.org');
  assert.match(String(sent?.text), /Footer\r\n$/);
  const record = `v=DKIM1; k=rsa; p=${publicKey.export({ type: 'spki', format: 'der' }).toString('base64')}`;
  const { results } = await dkimVerify(sent?.text ?? '', { resolver: () => Promise.resolve([[record]]) });
  assert.deepEqual(
    results.map(({ status, signingDomain }) => [status.result, signingDomain]),
    [['pass', 'example.org']],
  );
});
