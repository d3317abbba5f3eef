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
});
