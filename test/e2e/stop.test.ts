import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { untilTrue } from '../support/until.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** Resolves when nothing listens on the port any more. */
async function refused(port: number): Promise<void> {
  for (;;) {
    const socket = connect({ host: '127.0.0.1', port });
    const [event] = await Promise.race([
      once(socket, 'connect').then(() => ['connect']),
      once(socket, 'close').then(() => ['close']),
    ]).catch(() => ['error']);
    socket.destroy();
    if (event !== 'connect') return;
  }
}

describe('a server that is told to stop', { concurrency: 2 }, () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`exits with 0 after ${signal}`, async (t) => {
      const server = await ServerProcess.start(t, { folder: await temporaryFolder(t) });
      assert.deepEqual(await server.kill(signal), { code: 0, signal: null });
    });
  }

  test('takes no new session, finishes the transaction that runs, and keeps the message', async (t) => {
    const folder = await temporaryFolder(t);
    const server = await ServerProcess.start(t, { folder });
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
    assert.equal((await client.command('DATA')).code, 354);
    client.write('Subject: in the middle\r\n\r\nfirst half\r\n');

    server.signal('SIGTERM');
    await refused(server.smtpPort);
    client.write('second half\r\n.\r\n');
    assert.equal((await client.readReply()).code, 250);
    await client.waitForEnd();
    assert.deepEqual(await server.exit, { code: 0, signal: null });

    const again = await ServerProcess.start(t, { folder });
    const messages = await listMessages(HttpClient.admin(again.http));
    assert.deepEqual(
      messages.map(({ subject }) => subject),
      ['in the middle'],
    );
  });

  test('says 421 to a session that waits', async (t) => {
    const server = await ServerProcess.start(t, { folder: await temporaryFolder(t) });
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    server.signal('SIGTERM');
    assert.equal((await client.readReply()).code, 421);
    assert.deepEqual(await server.exit, { code: 0, signal: null });
  });
});

test('a destination that never answers the dot and a slow client share one deadline', async (t) => {
  const sink = await SmtpSink.start(t, { steps: { dot: { silent: true } } });
  const server = await ServerProcess.start(t, {
    folder: await temporaryFolder(t),
    config: `{
      shutdownSeconds: 3,
      smtp: { listeners: [{ port: 0 }], relayNetworks: ['127.0.0.0/8'] },
      plugins: { 'client-queue': {
        routes: { next: { mx: ['127.0.0.1'], port: ${sink.port}, tls: 'never' } },
        defaultRoute: 'next',
      } },
    }`,
  });
  const client = await SmtpClient.greeted({ port: server.smtpPort });
  const envelope = ['MAIL FROM:<a@sender.example>', 'RCPT TO:<b@far.example>'];
  await client.pipeline(envelope);
  await client.command('DATA');
  client.write('Subject: stuck\r\n\r\nx\r\n.\r\n');
  assert.equal((await client.readReply()).code, 250);
  await untilTrue('the attempt', () => sink.connections > 0);
  await client.pipeline(envelope);
  assert.equal((await client.command('DATA')).code, 354);
  client.write('Subject: idle\r\n');

  const began = performance.now();
  server.signal('SIGTERM');
  assert.deepEqual(await server.exit, { code: 0, signal: null });
  const seconds = (performance.now() - began) / 1000;
  assert.ok(seconds < 6, `${seconds} s`);
});
