import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { ComponentHealth } from '../../../../core/contracts/health.js';
import type { SourceSnapshot } from '../../../../core/contracts/configuration-source.js';
import { ConfigurationSets } from '../../../../plugins/cluster/configuration/sets.js';
import { SetSource } from '../../../../plugins/cluster/configuration/set-source.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { isThe } from '../../../kit/relay-queue/harness.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { untilTrue } from '../../../support/until.js';
import { emptyTables, fillTables, nodeOf } from '../cluster-fixture.js';

describe('a set of configuration files', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
  });
  const fresh = async (): Promise<void> => void (await server.psql(emptyTables, 'template'));

  /** A node with its source, and a clock that the test moves. */
  async function opened(t: Ending, name: string) {
    const cluster = nodeOf(server, { node: name });
    await cluster.join();
    t.after(() => cluster.leave());
    let now = 0;
    const components: Record<string, ComponentHealth> = {};
    const health = { status: () => 'up' as const, changes: 0, uptime: () => 0, components: () => ({ ...components }) };
    const sets = new ConfigurationSets(cluster.database, () => cluster.clock.now());
    const clock = { now: () => now, monotonic: () => now };
    const source = new SetSource({ cluster, sets, health, clock, log: rememberingLog().log });
    let rung = 0;
    source.watch(() => (rung += 1));
    return {
      cluster,
      sets,
      source,
      components,
      rung: () => rung,
      look: (dryRun = false): Promise<SourceSnapshot> =>
        source.look({ maxBytes: 1e6, signal: new AbortController().signal, dryRun }),
      pass: async (ms: number): Promise<void> => {
        now += ms;
        await source.check();
      },
    };
  }
  type Node = Awaited<ReturnType<typeof opened>>;

  const textOf = async (snapshot: SourceSnapshot): Promise<string> => (await snapshot.read('base.json5')).toString();
  const pushed = ({ sets }: Node, text: string): Promise<number> => sets.add([{ name: 'base.json5', text }], 'boss');
  const used = async (node: Node, number: number): Promise<void> => {
    await node.sets.use(number, 'boss');
    node.source.changed();
  };
  const statesOf = async ({ sets }: Node) =>
    (await sets.state()).nodes.map(({ node, number, state }) => `${node} ${number ?? '-'} ${state}`);
  const waits = (pattern: RegExp) => (error: Error) => isThe('conflict')(error) && pattern.test(error.message);

  test('is applied by one node after the other, each with 10 s in which its health must not fall', async (t) => {
    await fresh();
    const [one, other] = [await opened(t, 'a'), await opened(t, 'b')];
    await assert.rejects(one.look(), isThe('unavailable'));
    const number = await pushed(one, '{}');
    const rung = other.rung();
    await used(one, number);
    await untilTrue('the other node is told', () => other.rung() > rung);
    const snapshot = await one.look();
    assert.equal(await textOf(snapshot), '{}');
    assert.equal(snapshot.wanted, true);
    assert.deepEqual(await statesOf(one), [`a - applying`, `b - none`]);
    await assert.rejects(other.look(), waits(/waits: a applies it/));
    assert.equal((await other.look(true)).wanted, false, 'who only compares has no turn');
    await one.source.done({ status: 'applied' });
    await one.pass(9000);
    assert.deepEqual(await statesOf(one), [`a ${number} checking`, `b - none`]);
    assert.equal((await one.look()).wanted, false);
    await assert.rejects(other.look(), waits(/waits/));
    await other.source.done({ status: 'refused', why: 'it has no turn' });
    const before = other.rung();
    await one.pass(1000);
    await untilTrue('the other node is told', () => other.rung() > before);
    await other.look();
    await other.source.done({ status: 'unchanged' });
    assert.deepEqual(await statesOf(one), [`a ${number} applied`, `b ${number} applied`], 'nothing is to be checked');
  });

  test('that one node refuses stops, until a set is put to use again', async (t) => {
    await fresh();
    const [one, other] = [await opened(t, 'a'), await opened(t, 'b')];
    const [good, bad] = [await pushed(one, '{}'), await pushed(one, '{ x: 1 }')];
    for (const node of [one, other]) {
      await used(one, good);
      await node.look();
      await node.source.done({ status: 'unchanged' });
    }
    await used(one, bad);
    await one.look();
    await one.source.done({ status: 'refused', why: 'There is no x.' });
    assert.deepEqual((await one.sets.state()).current?.stopped, { node: 'a', why: 'There is no x.' });
    assert.deepEqual(await statesOf(other), [`a ${good} refused`, `b ${good} stopped`]);
    for (const node of [one, other]) await assert.rejects(node.look(), waits(/Set 2 is stopped: a: There is no x\./));
    await used(other, good);
    for (const node of [other, one]) {
      assert.equal((await node.look()).wanted, true);
      await node.source.done({ status: 'unchanged' });
    }
    assert.deepEqual(await statesOf(other), [`a ${good} applied`, `b ${good} applied`]);
  });

  test('after which the health of a node falls stops; maintenance and what was wrong before do not count', async (t) => {
    await fresh();
    const [one, other] = [await opened(t, 'a'), await opened(t, 'b')];
    const since = '2026-01-01T00:00:00.000Z';
    one.components['disk'] = { status: 'degraded', since, why: 'It is full.' };
    await used(one, await pushed(one, '{}'));
    await one.look();
    await one.source.done({ status: 'applied' });
    one.components['maintenance'] = { status: 'degraded', since, why: 'Maintenance mode is on.' };
    await one.pass(5000);
    assert.deepEqual(await statesOf(one), ['a 1 checking', 'b - none']);
    one.components['listener mx'] = { status: 'down', since, why: 'The port is taken.' };
    await one.pass(1000);
    assert.deepEqual(await statesOf(one), ['a 1 failed', 'b - none']);
    await assert.rejects(
      other.look(),
      waits(/a: Its health fell within 10 s: listener mx is down: The port is taken\./),
    );
  });

  test('that ended a node stops', async (t) => {
    await fresh();
    const [one, other] = [await opened(t, 'a'), await opened(t, 'b')];
    await used(one, await pushed(one, '{}'));
    await one.look();
    await one.cluster.leave();
    await assert.rejects(other.look(), waits(/Set 1 is stopped: a: It ended while it applied the set/));
    assert.equal((await other.sets.state()).current?.stopped?.node, 'a');
    await used(other, 1);
    assert.equal((await other.look()).wanted, true);
  });

  test('that could not be offered gives the turn back; one that replaces it takes the turn over', async (t) => {
    await fresh();
    const [one, other] = [await opened(t, 'a'), await opened(t, 'b')];
    await used(one, await pushed(one, '{}'));
    await one.look();
    await one.source.done({ status: 'postponed' });
    await other.look();
    await other.source.done({ status: 'applied' });
    await assert.rejects(one.look(), waits(/b applies it/));
    const next = await pushed(one, '{ y: 2 }');
    await used(other, next);
    assert.equal(await textOf(await other.look()), '{ y: 2 }');
    await other.pass(20_000);
    assert.deepEqual(await statesOf(one), ['a - waiting', 'b 1 applying'], 'the check of the first set is over');
  });

  test('is put to use in one order for all, and older ones are forgotten', async (t) => {
    await fresh();
    const one = await opened(t, 'a');
    const numbers = await Promise.all(Array.from({ length: 110 }, () => pushed(one, '{}')));
    await used(one, await pushed(one, '{}'));
    assert.equal((await one.sets.list()).length, 100);
    await assert.rejects(one.sets.use(1, 'boss'), isThe('not-found'));
    await Promise.all(numbers.slice(-5).map((number) => one.sets.use(number, 'boss')));
    assert.equal(await server.psql('select move from postern.config_current', 'template'), '6');
  });
});
