import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../support/ending.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';
import { WholeNodes } from '../../chaos/whole-nodes.js';

const longMs = 120_000;
const names = ['mx1', 'mx2', 'mx3'];

describe('limits of a site that three nodes share, while nodes are killed', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
    await server.database('connections');
    await server.database('rate');
  });

  const start = (t: typeof ending, database: string, sink: SmtpSink, destination: object): Promise<WholeNodes> =>
    WholeNodes.start(t, {
      names,
      hosts: [server.folder],
      database,
      sinkPort: sink.port,
      sessionSeconds: 4,
      queue: { destination },
    });

  /** Kills one node after the other as mail arrives; resolves when all of it has. */
  async function disturb(nodes: WholeNodes, sink: SmtpSink, sending: Promise<void>): Promise<void> {
    for (const [nth, name] of names.slice(0, 2).entries()) {
      const arrived = 100 * (nth + 1);
      await untilTrue('mail arrives', () => sink.messages.length >= arrived, longMs);
      await nodes.replace(name);
    }
    await sending;
    const missing = () => nodes.missing(new Set(sink.messages.flatMap(({ recipients }) => recipients)));
    await untilTrue('all of it has arrived', () => missing().length === 0, longMs);
  }

  test('never more than ten connections at once', async (t) => {
    const limit = 10;
    let [most, breaches] = [0, 0];
    /** A connection that was closed before the next one was opened may be seen later. */
    const watch = async (): Promise<void> => {
      for (let looks = 0; looks < 20; looks += 1, await pause(10)) {
        const { open } = sink;
        if (open > limit) continue;
        most = Math.max(most, open);
        return;
      }
      breaches += 1;
    };
    const greeting = () => void watch();
    // A hundred messages a second would use twenty connections.
    const dot = () => ({ after: pause(200), say: '250 2.0.0 Sunk' });
    const sink: SmtpSink = await SmtpSink.start(t, { steps: { greeting, dot }, forgetText: true });
    const nodes = await start(t, 'connections', sink, { maxConnections: limit });
    await disturb(nodes, sink, nodes.send(600, 6000));
    assert.equal(breaches, 0);
    assert.ok(most > limit / 2, `${most} connections at once`);
  });

  test('never more than 630 messages in a minute where 600 are the limit', async (t) => {
    const at: number[] = [];
    const dot = () => void at.push(performance.now());
    const sink = await SmtpSink.start(t, { steps: { dot }, forgetText: true });
    const nodes = await start(t, 'rate', sink, { ratePerMinute: 600 });
    // Nearly a tenth of them has a second destination.
    await disturb(nodes, sink, nodes.send(650, 10_000));
    const counts = at.map((from) => at.filter((one) => one >= from && one < from + 60_000).length);
    t.diagnostic(`${Math.max(...counts)} in a minute, ${at.length} in all`);
    assert.ok(Math.max(...counts) < 630, `${Math.max(...counts)} in a minute`);
  });
});
