import assert from 'node:assert/strict';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../support/ending.js';
import { HttpClient } from '../../support/http-client.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { ServerProcess } from '../../support/server-process.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';

const longMs = 60_000;

describe('nodes whose database is away for longer than a session', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
    await server.database('outage');
  });

  async function send(port: number, id: string): Promise<number> {
    const client = await SmtpClient.greeted({ port, timeoutMs: longMs });
    try {
      await client.command('MAIL FROM:<a@from.example>');
      await client.command('RCPT TO:<b@far.example>');
      return (await client.data(`Message-ID: <${id}@test.example>\r\n\r\nx\r\n`)).code;
    } finally {
      client.close();
    }
  }

  async function metric({ http }: ServerProcess, name: string): Promise<number> {
    const { text } = await HttpClient.admin(http).request('/metrics', { accept: 'text/plain' });
    return Number(new RegExp(`^postern_cluster_${name} (\\d+)$`, 'm').exec(text)?.[1]);
  }
  /** Outcomes on the disk of a node. */
  const waiting = (node: ServerProcess): Promise<number> => metric(node, 'waiting_outcomes');

  test('send nothing again that was delivered before or in it, though one of them is killed', async (t) => {
    const folder = await temporaryFolder(t);
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (open = resolve));
    let dots = 0;
    const dot = () => {
      dots += 1;
      return { after: gate, say: '250 2.0.0 taken' };
    };
    const sink = await SmtpSink.start(t, { steps: { dot } });
    const start = async (node: string): Promise<ServerProcess> => {
      await mkdir(join(folder, node), { recursive: true });
      const config = {
        hostname: `${node}.example`,
        smtp: { relayNetworks: ['127.0.0.0/8'], listeners: [{ mode: 'mx', port: 0 }] },
        plugins: {
          cluster: {
            node,
            sessionSeconds: 6,
            database: { hosts: [server.folder], name: 'outage', user: 'postgres', tls: 'off' },
          },
          'client-queue': {
            routes: { sink: { mx: ['127.0.0.1'], port: sink.port, tls: 'never' } },
            defaultRoute: 'sink',
            retry: { firstSeconds: 1, maxSeconds: 2 },
          },
        },
      };
      return ServerProcess.start(t, { folder: join(folder, node), config: JSON.stringify(config) });
    };
    const [killed, other] = [await start('mx1'), await start('mx2')];
    const early = ['1', '2', '3', '4', '5', '6'];
    for (const [nth, id] of early.entries()) {
      assert.equal(await send((nth % 2 === 0 ? killed : other).smtpPort, id), 250);
    }
    await untilTrue('all of them are at the dot', () => dots === early.length, longMs);
    await server.stop('immediate');
    open();
    const kept = async (): Promise<number> => (await waiting(killed)) + (await waiting(other));
    await untilTrue('all outcomes are on disks', async () => (await kept()) === early.length, 15_000);
    const ofKilled = await waiting(killed);
    await killed.kill('SIGKILL');
    const again = await start('mx1');
    assert.equal(await waiting(again), ofKilled);
    await untilTrue('the session of the other one has ended', async () => (await metric(other, 'fenced_total')) > 0);
    const late = Promise.all(['7', '8'].map((id) => send(other.smtpPort, id)));
    await server.start();
    assert.deepEqual(await late, [250, 250]);
    const left = (): Promise<string> =>
      server.psql('select count(*) from postern.entry where finished_at is null', 'outage');
    await untilTrue('everything is settled', async () => (await left()) === '0', longMs);
    const ids = sink.messages.map(({ text }) => /<(\d+)@/.exec(text.toString())?.[1] ?? '');
    assert.deepEqual(
      ids.toSorted((a, b) => a.localeCompare(b)),
      [...early, '7', '8'],
    );
    assert.deepEqual([await waiting(again), await waiting(other)], [0, 0]);
    const logs = ['mx1', 'mx2'].map((node) => join(folder, node, 'data', 'logs'));
    for (const place of logs) {
      for (const name of await readdir(place)) {
        assert.doesNotMatch(await readFile(join(place, name), 'utf8'), /possible duplicate/);
      }
    }
  });
});
