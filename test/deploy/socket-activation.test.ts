import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { open, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { atEnd } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { Output } from '../support/output.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { projectRoot } from '../support/project.js';
import { adminPassword } from '../support/server-process.js';
import { ServiceManager } from '../support/service-manager.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const both = `{ http: { socket: 'http' }, smtp: { listeners: [{ socket: 'smtp' }] } }`;
const message = (subject: string) => lines(`Subject: ${subject}`, '', 'text');

describe('a server on sockets that a service manager has opened', () => {
  test('takes mail and requests there, and a reload keeps them', async (t) => {
    const folder = await temporaryFolder(t);
    const manager = await ServiceManager.open(t, { folder, config: both, sockets: ['smtp', 'http'] });
    const http = await manager.start();
    assert.equal(http, `http://127.0.0.1:${manager.portOf('http')}`);
    await deliver(manager.portOf('smtp'), message('one'));

    const session = await SmtpClient.greeted({ port: manager.portOf('smtp') });
    const reloaded = both.replace(`{ socket: 'smtp' }`, `{ socket: 'smtp', name: 'other' }`);
    await writeFile(join(folder, 'postern.json5'), reloaded);
    manager.signal('SIGHUP');
    await manager.find(/SIGHUP: changed: smtp\.listeners/);
    assert.equal((await session.command('NOOP')).code, 250);
    session.close();
    await deliver(manager.portOf('smtp'), message('two'));
    const subjects = (await listMessages(HttpClient.admin(http))).map(({ subject }) => subject);
    assert.deepEqual(subjects.toSorted(), ['one', 'two']);
    assert.equal(await manager.stop(), 0);
  });

  test('while it is restarted, connections wait and mail continues', async (t) => {
    const folder = await temporaryFolder(t);
    const config = `{ smtp: { listeners: [{ socket: 'smtp' }] } }`;
    const manager = await ServiceManager.open(t, { folder, config, sockets: ['smtp'] });
    // Who comes before the first start waits as well.
    const first = deliver(manager.portOf('smtp'), message('early'));
    await manager.start();
    await first;
    const outcomes: string[] = [];
    const restarted = new AbortController();
    const stream = (async () => {
      while (!restarted.signal.aborted)
        outcomes.push(await send(manager.portOf('smtp'), message(`number ${outcomes.length}`)));
    })();
    for (let round = 0; round < 3; round += 1) {
      assert.equal(await manager.stop(), 0);
      // Nobody accepts now.
      const waiting = SmtpClient.greeted({ port: manager.portOf('smtp') });
      await manager.start();
      (await waiting).close();
    }
    restarted.abort();
    await stream;
    assert.ok(!outcomes.includes('refused'), 'a connection was refused');
    assert.ok(outcomes.includes('accepted'));
    const [, http = ''] = await manager.find(/(?:postern ready http=(\S+)[^]*?){4}/);
    const subjects = new Set((await listMessages(HttpClient.admin(http))).map(({ subject }) => subject));
    const lost = outcomes.map((outcome, index) => ({ outcome, subject: `number ${index}` }));
    assert.deepEqual(
      lost.filter(({ outcome, subject }) => outcome === 'accepted' && !subjects.has(subject)),
      [],
    );
  });

  test('sockets that are missing, unclaimed or of another kind stop the start with a sentence', async (t) => {
    const cases: readonly (readonly [config: string, sockets: readonly string[], sentence: RegExp])[] = [
      [`{ smtp: { listeners: [{ socket: 'smtp' }] } }`, ['lmtp', 'smtp'], /Nothing takes what .* "lmtp"\. Add socket/],
      [both, ['smtp'], /HTTP cannot take the socket http: the service manager hands over "smtp"/],
      [
        `{ smtp: { listeners: [{ socket: 'a', fd: 3 }] } }`,
        ['a'],
        /smtp\.listeners\.0\.socket: give either fd or socket/,
      ],
      [
        `{ smtp: { listeners: [{ socket: 'a', mode: 'submission' }] } }`,
        ['a'],
        /a submission listener beyond loopback needs tls/,
      ],
    ];
    for (const [config, sockets, sentence] of cases) {
      const manager = await ServiceManager.open(t, { folder: await temporaryFolder(t), config, sockets });
      assert.equal(await manager.startAndEnd(), 1);
      await manager.find(sentence);
    }
  });

  test('a descriptor that is no listening TCP socket stops the start with a sentence', async (t) => {
    const folder = await temporaryFolder(t);
    const datagrams = createSocket('udp4').bind(0, '127.0.0.1');
    const local = createServer().listen(join(folder, 'socket'));
    await Promise.all([once(datagrams, 'listening'), once(local, 'listening')]);
    const file = await open(join(folder, 'file'), 'w+');
    atEnd(t, async () => {
      datagrams.close();
      local.close();
      await file.close();
    });
    const kinds = { datagrams: descriptorOf(datagrams), local: descriptorOf(local), file: file.fd };
    for (const [kind, fd] of Object.entries(kinds)) {
      for (const [config, who] of [
        [`{ smtp: { listeners: [{ socket: 'odd' }] } }`, 'SMTP listener mx'],
        [`{ http: { socket: 'odd' }, smtp: { listeners: [{ port: 0 }] } }`, 'HTTP'],
      ] as const) {
        const manager = await ServiceManager.open(t, { folder, config, sockets: [], others: { odd: fd } });
        assert.equal(await manager.startAndEnd(), 1, kind);
        await manager.find(
          new RegExp(
            `^${who} cannot (?:listen on|take) the socket odd: it is (?:not a socket that listens|no TCP socket)`,
            'm',
          ),
        );
      }
    }
  });

  test(
    'systemd-socket-activate starts it with the first connection',
    { skip: skipWithout('systemd-socket-activate') },
    async (t) => {
      const folder = await temporaryFolder(t);
      await writeFile(join(folder, 'postern.json5'), `{ smtp: { listeners: [{ socket: 'smtp' }] } }`);
      const port = await freePort();
      const command = [process.execPath, join(projectRoot, 'dist', 'core', 'postern.cjs'), 'start', '--http-port', '0'];
      const words = [`--listen=127.0.0.1:${port}`, '--fdname=smtp', `--setenv=POSTERN_ADMIN_PASSWORD=${adminPassword}`];
      const activate = findPeer('systemd-socket-activate') ?? '';
      const child = spawn('sh', ['-c', 'exec "$@" 2>&1', 'sh', activate, ...words, ...command], {
        cwd: folder,
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      const output = new Output(child);
      atEnd(t, async () => {
        child.kill('SIGKILL');
        if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      });
      await output.find(/^Listening on /m);
      await deliver(port, message('through systemd'));
      const [, http = ''] = await output.find(/^postern ready http=(\S+)/m);
      assert.deepEqual(
        (await listMessages(HttpClient.admin(http))).map(({ subject }) => subject),
        ['through systemd'],
      );
      child.kill('SIGTERM');
      assert.deepEqual(await once(child, 'exit'), [0, null]);
    },
  );
});

const descriptorOf = (socket: object): number => (socket as { readonly _handle: { readonly fd: number } })._handle.fd;

/** A message over a connection of its own; a session that the server ends with 421 is neither accepted nor refused. */
async function send(port: number, text: string): Promise<'accepted' | 'refused' | 'ended'> {
  const client = await SmtpClient.connect({ port }).catch(() => undefined);
  if (client === undefined) return 'refused';
  try {
    await client.readReply();
    await client.command('EHLO client.example');
    await client.command('MAIL FROM:<a@sender.example>');
    await client.command('RCPT TO:<postmaster@localhost>');
    return (await client.data(text)).code === 250 ? 'accepted' : 'ended';
  } catch {
    return 'ended';
  } finally {
    client.close();
  }
}
