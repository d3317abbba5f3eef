import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startInProcess } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { SmtpClient } from '../support/smtp-client.js';
import { until } from '../support/until.js';
import { haproxy, ReverseProxy } from './reverse-proxy.js';

const config = `{
  smtp: {
    listeners: [{ port: 0, proxyProtocol: ['127.0.0.1'] }],
    limits: { clientsPerAddress: 1, exemptLoopback: false },
  },
}`;

test(
  'behind HAProxy, with the file of deploy/, each client counts by its own address',
  { skip: skipWithout('haproxy') },
  async (t) => {
    const server = await startInProcess(t, config);
    const proxy = await ReverseProxy.start(t, haproxy, server.portOf('mx'));
    const clients = await Promise.all(
      ['127.0.0.2', '127.0.0.3', '127.0.0.3'].map((localAddress) =>
        SmtpClient.connect({ port: proxy.httpsPort, localAddress }),
      ),
    );
    const codes = await Promise.all(clients.map(async (client) => (await client.readReply()).code));
    assert.deepEqual(
      codes.toSorted((a, b) => a - b),
      [220, 220, 421],
    );
    for (const client of clients) client.close();
    await until('the connections in the log', async () => {
      const log = JSON.stringify(await server.admin.json('/logs?q=connected'));
      return log.includes('127.0.0.2') && log.split('127.0.0.3').length > 2 ? true : undefined;
    });
  },
);
