import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { test } from 'node:test';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';
import { WholeNodes } from '../../chaos/whole-nodes.js';

const longMs = 120_000;
const names = ['mx1', 'mx2', 'mx3'];
const database = 'mail';

test(
  'a message that kills the nodes that send it is held, and takes no other along once it is a suspect',
  { skip: skipWithout('postgres') },
  async (t) => {
    const server = await Postgres.start(t, { durable: true, fill: fillTables });
    await server.database(database);
    const ask = (sql: string): Promise<string> => server.psql(sql, database);
    const greeted = new Map<number, string>();
    const deaths: { readonly name: string; readonly suspects: number }[] = [];
    let kills: Promise<void> = Promise.resolve();
    const kill = async (name: string): Promise<void> => {
      await nodes.node(name).kill('SIGKILL');
      const suspects = `select count(distinct uid) from postern.recipient where state = 0 and lane = 2 and session like '${name}:%'`;
      deaths.push({ name, suspects: Number(await ask(suspects)) });
      await nodes.start(name);
    };
    const sink = await SmtpSink.start(t, {
      steps: {
        ehlo: ({ line, connection }) => void greeted.set(connection, line.split(/[ .]/)[1] ?? ''),
        rcpt: ({ line, connection }) => {
          if (!line.includes('poison@')) return undefined;
          const name = greeted.get(connection) ?? '';
          kills = kills.then(() => kill(name));
          return { silent: true };
        },
        dot: () => ({ after: pause(50), say: '250 2.0.0 Sunk' }),
      },
      forgetText: true,
    });
    const nodes: WholeNodes = await WholeNodes.start(t, {
      names,
      hosts: [server.folder],
      database,
      sinkPort: sink.port,
      sessionSeconds: 3,
    });
    const sending = nodes.send(300, 6000);
    assert.equal(await nodes.handIn('mx1', 'poison@one.example', 'Subject: poison\r\n\r\nx\r\n'), 250);
    const held = `select count(*) from postern.recipient where address = 'poison@one.example' and state = 3`;
    await untilTrue('it is held', async () => (await ask(held)) === '1', longMs);
    await sending;
    await kills;
    t.diagnostic(deaths.map(({ name, suspects }) => `${name}: ${suspects}`).join(', '));
    assert.ok(deaths.length === 2 || deaths.length === 3, `${deaths.length} nodes died`);
    for (const { suspects } of deaths) assert.ok(suspects <= 1, `${suspects} suspects at once`);
    const missing = () => nodes.missing(new Set(sink.messages.flatMap(({ recipients }) => recipients)));
    await untilTrue('all others have arrived', () => missing().length === 0, longMs);
  },
);
