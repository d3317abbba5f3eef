import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { selfSigned } from '../support/certificate.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { SmtpClient } from '../support/smtp-client.js';
import { until } from '../support/until.js';

const { key, cert } = selfSigned('mail.example.org');

const configuration = (listener: object = {}): string =>
  JSON.stringify({
    smtp: {
      limits: { exemptLoopback: false, clientsPerAddress: 20, clients: 100 },
      listeners: [
        { name: 'tls', mode: 'mx', port: 0, tls: 'implicit', key, cert, ...listener },
        { name: 'plain', mode: 'mx', port: 0, tls: 'starttls', key, cert },
      ],
    },
  });

async function secured(server: InProcessServer, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const place = { port: server.portOf('tls'), host: '127.0.0.1', rejectUnauthorized: false };
  const socket = connectTls({ ...place, ...options });
  await once(socket, 'secureConnect');
  return socket;
}

const sessions = async (server: InProcessServer): Promise<number> => {
  const metrics = (await server.admin.request('/metrics/prometheus')).text;
  return Number(/^postern_smtp_sessions_refused_total\{listener="tls"\} (\d+)$/m.exec(metrics)?.[1] ?? 0);
};

describe('connections to a listener with implicit TLS that never shake hands', () => {
  test('F-R9 take no more than the places of their address, and leave them when they end', async (t) => {
    const server = await startInProcess(t, configuration());
    const sockets: Socket[] = [];
    t.after(() => sockets.forEach((socket) => socket.destroy()));
    for (let number = 0; number < 300; number += 1) {
      const socket = connect({ port: server.portOf('tls'), host: '127.0.0.1', localAddress: '127.0.0.2' });
      socket.on('error', () => undefined).resume();
      sockets.push(socket);
    }
    await until('the refused to be closed', () =>
      sockets.filter((one) => !one.destroyed).length <= 20 ? true : undefined,
    );
    const other = await secured(server, { localAddress: '127.0.0.3' } as ConnectionOptions);
    assert.match(String((await once(other, 'data'))[0]), /^220 /);
    other.destroy();
    await until('the refused to be counted', async () => ((await sessions(server)) >= 280 ? true : undefined));
    // Half with FIN, half with RST: both give their places back at once.
    sockets
      .filter((one) => !one.destroyed)
      .forEach((socket, index) => (index % 2 === 0 ? socket.end() : socket.resetAndDestroy()));
    const again = await until('a place for the same address', async () => {
      const socket = await secured(server, { localAddress: '127.0.0.2' } as ConnectionOptions).catch(() => undefined);
      return socket;
    });
    again.destroy();
  });
});

describe('TLS of a listener', () => {
  test('F-S12 takes no renegotiation', async (t) => {
    const server = await startInProcess(t, configuration());
    const socket = await secured(server, { maxVersion: 'TLSv1.2' });
    const outcome = await new Promise<string>((resolve) => {
      socket.once('error', () => resolve('refused')).once('close', () => resolve('refused'));
      if (!socket.renegotiate({}, (error) => resolve(error === null ? 'renegotiated' : 'refused'))) resolve('refused');
    });
    socket.destroy();
    assert.equal(outcome, 'refused');
  });

  test('F-I13 takes suites with ephemeral keys and authenticated encryption alone, unless old peers need more', async (t) => {
    const server = await startInProcess(t, configuration());
    const old = { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256' } as const;
    await assert.rejects(secured(server, old));
    (await secured(server, { maxVersion: 'TLSv1.2' })).destroy();
    (await secured(server)).destroy();
    const compatible = await startInProcess(t, configuration({ ciphers: 'compatible' }));
    (await secured(compatible, old)).destroy();
  });
});

describe('command words with letters beyond ASCII', () => {
  test('F-S14 are no commands', async (t) => {
    const server = await startInProcess(t, configuration());
    const client = await SmtpClient.greeted({ port: server.portOf('plain') });
    assert.equal((await client.command('RſET')).code, 500);
    assert.equal((await client.command('MAıL FROM:<a@b.example>')).code, 500);
    assert.equal((await client.command('MAIL FROM:<a@b.example> ſIZE=1')).code, 501);
    assert.equal((await client.command('MAIL FROM:<a@b.example> BODY=8BıTMIME')).code, 501);
    client.close();
  });
});
