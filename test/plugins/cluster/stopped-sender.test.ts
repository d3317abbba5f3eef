import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { here } from '../../chaos/chaos.js';
import { NodeProcess } from '../../chaos/node-process.js';
import { freePort } from '../../support/free-port.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { until, untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';

const longMs = 120_000;
const database = 'mail';

describe('a server that is stopped behind the text of a message', { skip: skipWithout('postgres') }, () => {
  for (const [size, lines] of [
    ['1 KB', 20],
    ['20 MB', 400_000],
  ] as const) {
    test(`of ${size} sends no dot when it goes on: the message arrives once`, async (t) => {
      const server = await Postgres.start(t, { durable: true, tcp: true, fill: fillTables });
      await server.database(database);
      const sink = await SmtpSink.start(t);
      const folder = await temporaryFolder(t);
      const start = async (name: string, more: { readonly stopBeforeDot?: number } = {}) => {
        await mkdir(join(folder, name));
        const place = { module: here('./server-node.js'), folder: join(folder, name), sinkPort: sink.port };
        const smtpPort = await freePort();
        const life = { sessionMs: 3000, fence: 'both', name, smtpPort } as const;
        return { smtpPort, process: await NodeProcess.start(t, server, database, { ...place, ...life, ...more }) };
      };
      const text = `Subject: large\r\n\r\n${'all work and no play makes a dull boy, says Jack\r\n'.repeat(lines)}`;
      const stopped = await start('mx1', { stopBeforeDot: 1 });
      const client = await until(
        'it greets',
        () => SmtpClient.greeted({ port: stopped.smtpPort, timeoutMs: longMs }).catch(() => undefined),
        longMs,
      );
      await client.command('MAIL FROM:<a@from.example>');
      await client.command('RCPT TO:<b@far.example>');
      assert.equal((await client.data(text)).code, 250);
      client.close();
      await stopped.process.stopping;
      assert.equal(sink.messages.length, 0);
      await start('mx2');
      await untilTrue('another one sends it', () => sink.messages.length > 0, longMs);
      stopped.process.signal('SIGCONT');
      const again = "select count(*) from postern.session where node = 'mx1' and not dead";
      await untilTrue('the first one is back', async () => (await server.psql(again, database)) === '1', longMs);
      const open = 'select count(*) from postern.entry where finished_at is null';
      await untilTrue('nothing is left', async () => (await server.psql(open, database)) === '0', longMs);
      assert.equal(sink.messages.length, 1);
      assert.ok(sink.messages[0]?.text.subarray(-text.length).equals(Buffer.from(text)));
    });
  }
});
