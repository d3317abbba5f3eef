import assert from 'node:assert/strict';
import { before, beforeEach, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Cluster, PaceLimits, SharedDatabase } from '../../../../core/contracts/cluster.js';
import { NodeShares } from '../../../../plugins/cluster/shared/node-shares.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { untilTrue } from '../../../support/until.js';
import { emptyTables, fillTables, nodeOf, seenAs } from '../cluster-fixture.js';

const destination = 'one.example';
const one: PaceLimits = { maxConnections: 1, ratePerMinute: undefined, suspended: false };

describe('shares of limits, by a clock of the test', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });
  beforeEach(() => server.psql(emptyTables, 'template'));

  async function joined(t: Ending, node: string) {
    const made = nodeOf(server, { node });
    await made.join();
    t.after(() => made.leave());
    return made;
  }
  const sharesOf = async (t: Ending, node: string, own: Partial<Cluster>): Promise<NodeShares> =>
    new NodeShares(seenAs(await joined(t, node), own));
  const connectionsOf = (shares: NodeShares, limits: PaceLimits): number =>
    shares.of(destination, limits).maxConnections;
  const rows = (): Promise<string> =>
    server.psql(
      "select string_agg(connections || ' ' || wants, ', ' order by connections desc) from postern.share",
      'template',
    );

  /** A minute in which nobody says anything of the share. */
  async function minute(clock: HandClock, shares: NodeShares): Promise<void> {
    for (let seconds = 0; seconds < 60; seconds += 1) {
      clock.advance(1);
      await shares.look();
      // What it asks for it asks for within this time.
      await pause(30);
    }
  }

  test('what a node got for mail that is gone it gives back, and does not ask for again', async (t) => {
    const clock = new HandClock();
    const [node, other] = [await sharesOf(t, 'a', { clock }), await sharesOf(t, 'b', { clock })];
    const use = { running: 0, waiting: true, idleMs: 50 };
    other.use(destination, one, use);
    await untilTrue('it has the connection', () => connectionsOf(other, one) === 1);
    await minute(clock, other);
    assert.equal(await rows(), '');
    node.use(destination, one, use);
    await untilTrue('the first node has it', () => connectionsOf(node, one) === 1);
    assert.equal(connectionsOf(other, one), 0);
  });

  test('a node that got nothing, and whose mail is gone, wants nothing any more', async (t) => {
    const clock = new HandClock();
    const [node, other] = [await sharesOf(t, 'a', { clock }), await sharesOf(t, 'b', { clock })];
    node.use(destination, one, { running: 0, waiting: true, idleMs: 50 });
    await untilTrue('the first node has the connection', () => connectionsOf(node, one) === 1);
    node.use(destination, one, { running: 1, waiting: false, idleMs: 50 });
    other.use(destination, one, { running: 0, waiting: true, idleMs: 50 });
    await untilTrue('the second has asked', async () => (await rows()) === '1 false, 0 true');
    await minute(clock, other);
    assert.equal(await rows(), '1 false');
  });

  test('what a node is granted while it is about to give back stays its own', async (t) => {
    const clock = new HandClock();
    const node = await joined(t, 'a');
    let release: (() => void) | undefined;
    let held = Promise.resolve();
    let begun = 0;
    const database: SharedDatabase = {
      query: (...asked) => node.database.query(...asked),
      transaction: (purpose, work) =>
        node.database.transaction(purpose, async (sql) => {
          begun += 1;
          await held;
          return work(sql);
        }),
    };
    const shares = new NodeShares(seenAs(node, { clock, database }));
    const ten = { ...one, maxConnections: 10 };
    let running = 0;
    const use = (waiting: boolean): void => shares.use(destination, ten, { running, waiting, idleMs: 5000 });
    use(true);
    await untilTrue('it has all', () => connectionsOf(shares, ten) === 10);
    use(false);
    clock.advance(10);
    await shares.look();
    assert.equal(connectionsOf(shares, ten), 0);
    clock.advance(5);
    shares.onChange(() => {
      running = connectionsOf(shares, ten);
      if (running > 0) use(false);
    });
    held = new Promise((resolve) => (release = resolve));
    const before = begun;
    use(true);
    await untilTrue('it asks', () => begun > before);
    const looked = shares.look();
    release?.();
    await looked;
    await untilTrue('it has them again', () => running === 10);
    assert.equal(await rows(), '10 false');
    assert.equal(connectionsOf(shares, ten), 10);
  });

  /** A node that has all, and hears that another one wants a part. */
  async function asked(t: Ending, limits: PaceLimits) {
    const clock = new HandClock();
    let hear: (names: readonly string[] | null) => void = () => undefined;
    const onRing: Cluster['onRing'] = (_, listener) => {
      hear = listener;
      return () => undefined;
    };
    const shares = await sharesOf(t, 'a', { clock, onRing });
    const use = (running: number, waiting = false): void =>
      shares.use(destination, limits, { running, waiting, idleMs: 5000 });
    use(0, true);
    await untilTrue('it has a share', () => connectionsOf(shares, limits) > 0);
    use(60);
    let told = 0;
    shares.onChange(() => (told += 1));
    await server.psql(`insert into postern.share values ('${destination}', 'another', 0, true)`, 'template');
    hear([destination]);
    await untilTrue('it has less', () => told > 0);
    use(60);
    return { clock, shares, use };
  }

  test('what still runs is not given to another node, however long that takes', async (t) => {
    const { clock, shares, use } = await asked(t, { ...one, maxConnections: 60 });
    clock.advance(60);
    await shares.look();
    assert.equal(await rows(), '60 false, 0 true');
    use(30);
    clock.advance(4);
    await shares.look();
    assert.equal(await rows(), '60 false, 0 true', 'connections may still be open');
    clock.advance(1);
    await shares.look();
    assert.equal(await rows(), '30 false, 0 true');
  });

  test('a part of a rate is given to another node whatever still runs', async (t) => {
    const { clock, shares } = await asked(t, { ...one, maxConnections: Infinity, ratePerMinute: 600 });
    clock.advance(5);
    await shares.look();
    assert.equal(await rows(), '50 false, 0 true');
  });

  for (const waiting of [true, false]) {
    test(`a limit that is lowered holds for all nodes together while mail ${waiting ? 'waits' : 'runs'}`, async (t) => {
      const clock = new HandClock();
      const nodes = await Promise.all(['a', 'b', 'c'].map((node) => sharesOf(t, node, { clock })));
      const second = async (maxConnections: number, waits: boolean): Promise<void> => {
        const limits = { ...one, maxConnections };
        clock.advance(1);
        for (const shares of nodes) {
          const running = connectionsOf(shares, limits);
          shares.use(destination, limits, { running, waiting: waits, idleMs: 1000 });
          await shares.look();
        }
      };
      await untilTrue('each has a part', async () => {
        await second(10, true);
        return nodes.every((shares) => connectionsOf(shares, { ...one, maxConnections: 10 }) >= 3);
      });
      await untilTrue('no more than the limit', async () => {
        await second(2, waiting);
        return (await server.psql('select sum(connections) from postern.share', 'template')) === '2';
      });
    });
  }
});
