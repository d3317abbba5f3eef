import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../support/ending.js';
import { HttpClient } from '../../support/http-client.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { ServerProcess } from '../../support/server-process.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';

describe('a server whose database is away', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
    await server.database('away');
  });

  const mail = async (port: number, to: string): Promise<number> => {
    const client = await SmtpClient.greeted({ port });
    try {
      await client.command('MAIL FROM:<a@b.example>');
      const { code } = await client.command(`RCPT TO:<${to}>`);
      return code === 250 ? (await client.data('Subject: x\r\n\r\nx\r\n')).code : code;
    } finally {
      client.close();
    }
  };

  test('starts, takes mail for its mailboxes, knows who is no user, and joins when the database is back', async (t) => {
    const folder = await temporaryFolder(t);
    const database = `{ hosts: ['${server.folder}'], name: 'away', user: 'postgres', tls: 'off' }`;
    const config = `{
      domains: ['home.example'], smtp: { relayNetworks: ['127.0.0.0/8'], listeners: [{ port: 0 }] },
      plugins: { cluster: { sessionSeconds: 2, database: ${database} } },
    }`;
    const first = await ServerProcess.start(t, { folder, config });
    assert.equal(await mail(first.smtpPort, 'postmaster@home.example'), 250);
    await first.kill('SIGTERM');
    await server.stop('immediate');
    const second = await ServerProcess.start(t, { folder, config });
    assert.equal(await mail(second.smtpPort, 'postmaster@home.example'), 250);
    assert.equal(await mail(second.smtpPort, 'nobody@home.example'), 550);
    await server.start();
    const health = async (): Promise<string> => {
      const found = (await HttpClient.admin(second.http).json('/health/extended')) as {
        components: Record<string, { status: string }>;
      };
      return found.components['cluster']?.status ?? '';
    };
    await untilTrue('it has joined', async () => /^up$/i.test(await health()));
    assert.equal(await mail(second.smtpPort, 'far@away.example'), 250);
    const { items } = (await HttpClient.admin(second.http).json('/client/queue/list')) as { items: unknown[] };
    assert.equal(items.length, 1);
  });

  test('is degraded while it can take mail without the queue, and down when it can take none', async (t) => {
    await server.database('health');
    const database = `{ hosts: ['${server.folder}'], name: 'health', user: 'postgres', tls: 'off' }`;
    const start = async (node: string, given: string, plugins = '') => {
      const config = `{
        ${given} smtp: { relayNetworks: ['127.0.0.0/8'], listeners: [{ port: 0 }] },
        plugins: { ${plugins} cluster: { node: '${node}', sessionSeconds: 2, commitTimeoutSeconds: 2, database: ${database} } },
      }`;
      return ServerProcess.start(t, { folder: await temporaryFolder(t), config });
    };
    const lmtp = `lmtp: { routes: [{ name: 'boxes', domains: ['boxes.example'], hosts: ['127.0.0.1'] }] },`;
    const proxy = `proxy: { rules: [{ name: 'in', rcpt: '.*@in.example', hosts: ['127.0.0.1'] }] },`;
    const relay = await start('relay', '');
    const others = [
      await start('home', "domains: ['home.example'],"),
      await start('boxes', '', lmtp),
      await start('proxy', '', proxy),
    ];
    const stateOf = async ({ http }: ServerProcess): Promise<string> => {
      const { text } = await HttpClient.admin(http).request('/health/extended', { accept: 'application/json' });
      const { components } = JSON.parse(text) as { components: Record<string, { status: string }> };
      return (components['cluster']?.status ?? '').toLowerCase();
    };
    const health = async ({ http }: ServerProcess): Promise<number> =>
      (await new HttpClient(http).request('/health')).status;
    for (const one of [relay, ...others]) assert.equal(await stateOf(one), 'up');
    await server.stop('immediate');
    // Before the timeout a message would still be taken.
    await untilTrue('it is known', async () => (await stateOf(relay)) !== 'up');
    const waiting = mail(relay.smtpPort, 'far@away.example');
    await untilTrue('the relay is down', async () => (await stateOf(relay)) === 'down');
    assert.equal(await health(relay), 503);
    assert.equal(await waiting, 451);
    assert.equal(await mail(relay.smtpPort, 'far@away.example'), 451);
    for (const one of others) {
      assert.equal(await stateOf(one), 'degraded');
      assert.equal(await health(one), 200);
    }
    await server.start();
    for (const one of [relay, ...others]) await untilTrue('all is well', async () => (await stateOf(one)) === 'up');
    assert.equal(await health(relay), 200);
    await untilTrue('it takes mail', async () => (await mail(relay.smtpPort, 'far@away.example')) === 250);
  });
});
