import assert from 'node:assert/strict';
import { before, beforeEach, describe, test } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { askFor, removeOldSessions } from '../../../plugins/cluster/database/server-state.js';
import { suiteEnding } from '../../support/ending.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { Proxy } from '../../support/proxy.js';
import { untilTrue } from '../../support/until.js';
import { emptyTables, fillTables, nodeOf } from './cluster-fixture.js';

describe('the session of a node', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables, tcp: true });
  });
  beforeEach(async () => {
    await server.psql(emptyTables, 'template');
  });
  const dead = (key: string): Promise<string> =>
    server.psql(`select dead from postern.session where key = '${key}'`, 'template');

  test('beats, and the fence says yes', async (t) => {
    const node = nodeOf(server);
    await node.join();
    t.after(() => node.leave());
    const key = node.session ?? '';
    assert.match(key, /^mx1:\d+$/);
    assert.equal(await node.mayEnd(key), true);
    assert.equal(node.mayEnd(key), true, 'a fresh answer is kept');
    assert.equal(await node.mayEnd('mx1:0'), false);
    const beat = (): Promise<string> => server.psql('select beat from postern.session', 'template');
    const before = await beat();
    await untilTrue('it has beaten', async () => (await beat()) > before);
    assert.ok(Math.abs(node.clock.now() - Date.now()) < 1000, 'it has the time of the database');
  });

  test('a node that was declared dead may send nothing, and joins anew', async (t) => {
    const node = nodeOf(server);
    await node.join();
    t.after(() => node.leave());
    const key = node.session ?? '';
    await server.psql('update postern.session set dead = true', 'template');
    await untilTrue('the fence says no', async () => !(await node.mayEnd(key)));
    await untilTrue('it has joined again', () => node.session !== undefined && node.session !== key);
    assert.equal(await node.mayEnd(key), false);
    assert.equal(node.fenced, 1);
  });

  test('a second start of the same data folder ends the first session, when it has told what came of its leases', async (t) => {
    const [one, other] = [nodeOf(server), nodeOf(server)];
    await one.join();
    t.after(() => one.leave());
    const key = one.session ?? '';
    await other.join();
    t.after(() => other.leave());
    assert.equal(await dead(key), 'f');
    await other.endEarlierSessions();
    assert.deepEqual([await dead(key), await dead(other.session ?? '')], ['t', 'f']);
  });

  test('another server with the name of a living node is refused, and takes over when that one is silent', async (t) => {
    const [one, other] = [nodeOf(server), nodeOf(server, { instance: 'other' })];
    await one.join();
    await assert.rejects(other.join(), /Another server of the cluster calls itself mx1/);
    await other.leave();
    await one.leave();
    await server.psql('update postern.session set dead = false', 'template');
    const third = nodeOf(server, { instance: 'third' });
    await third.join();
    t.after(() => third.leave());
    assert.match(third.session ?? '', /^mx1:/);
  });

  test('a node whose beat the database has forgotten says so, and joins anew', async (t) => {
    const node = nodeOf(server);
    await node.join();
    t.after(() => node.leave());
    const key = node.session ?? '';
    const beat = (): Promise<string> => server.psql('select beat from postern.session', 'template');
    await untilTrue('it has beaten', async () => Number(await beat()) > 1);
    await server.psql('update postern.session set beat = 0', 'template');
    await untilTrue('it has joined again', () => node.session !== undefined && node.session !== key);
    assert.ok(node.sentences.includes('this node has left the cluster: the database has forgotten a beat'));
    assert.equal(node.fenced, 1);
    assert.ok(node.forgottenAt !== undefined);
  });

  test('a node that was cut off finds out that the database has forgotten it, and gets no key a second time', async (t) => {
    const proxy = await Proxy.start(t, server.port);
    const node = nodeOf(server, { port: proxy.port });
    await node.join();
    t.after(() => node.leave());
    const key = node.session ?? '';
    proxy.silence();
    await untilTrue('the node has no session', () => node.session === undefined);
    const sequence = 'alter sequence postern.session_number restart';
    await server.psql(`delete from postern.session; ${sequence}`, 'template');
    proxy.heal();
    await untilTrue('it has joined again', () => node.session !== undefined);
    assert.notEqual(node.session, key);
    assert.ok(node.forgottenAt !== undefined);
    assert.ok(node.sentences.some((sentence) => sentence.startsWith('the database has forgotten commits')));
  });

  test('a node that lost its session, and whose database has forgotten nothing, raises no alarm', async (t) => {
    const node = nodeOf(server);
    await node.join();
    t.after(() => node.leave());
    const key = node.session ?? '';
    await server.psql('update postern.session set dead = true', 'template');
    await untilTrue('it has joined again', () => node.session !== undefined && node.session !== key);
    assert.equal(node.forgottenAt, undefined);
  });

  test('a node whose program has become too old for the tables leaves, says so, and is back when they suit it', async (t) => {
    const node = nodeOf(server);
    await node.join();
    t.after(() => node.leave());
    const key = node.session ?? '';
    const newer = (least: number): Promise<string> =>
      server.psql(
        `insert into postern.schema (version, least_reader, script_hash) values (2, ${least}, '')`,
        'template',
      );
    const asBefore = (): Promise<string> => server.psql('delete from postern.schema where version = 2', 'template');
    t.after(async () => void (await asBefore()));
    await newer(1);
    const beat = async (): Promise<number> => Number(await server.psql('select beat from postern.session', 'template'));
    const before = await beat();
    await untilTrue('it goes on beside a newer one', async () => (await beat()) > before + 1);
    assert.deepEqual([node.session, node.outdated], [key, undefined]);
    await asBefore();
    await newer(2);
    await untilTrue('it has left', () => node.session === undefined);
    assert.match(node.outdated ?? '', /have version 2, which needs a newer server\. This one knows version 1/);
    assert.equal(await node.mayEnd(key), false);
    assert.equal(await dead(key), 'f', 'the others see it silent');
    await asBefore();
    await untilTrue('it has joined again', () => node.session !== undefined);
    assert.equal(node.outdated, undefined);
  });

  test('a node whose network is silent stops before the others declare it dead', async (t) => {
    const proxy = await Proxy.start(t, server.port);
    const sessionMs = 4000;
    const cut = nodeOf(server, { port: proxy.port, sessionMs });
    const other = nodeOf(server, { node: 'mx2', sessionMs });
    await cut.join();
    await other.join();
    t.after(async () => {
      await cut.leave();
      await other.leave();
    });
    const key = cut.session ?? '';
    assert.equal(await cut.mayEnd(key), true);
    proxy.silence();
    await untilTrue('the node has no session', () => cut.session === undefined);
    assert.equal(await dead(key), 'f', 'the others wait longer');
    assert.equal(await cut.mayEnd(key), false);
    await untilTrue('the other one has declared it dead', async () => (await dead(key)) === 't');
    proxy.heal();
    await untilTrue('it has joined again', () => cut.session !== undefined);
    assert.notEqual(cut.session, key);
  });

  test('a machine that slept may send nothing before its next beat', async (t) => {
    let asleep = 0;
    const clock = { now: () => systemClock.now() + asleep, monotonic: () => systemClock.monotonic() };
    const node = nodeOf(server, { clock, sessionMs: 30_000 });
    await node.join();
    t.after(() => node.leave());
    const key = node.session ?? '';
    assert.equal(await node.mayEnd(key), true);
    asleep = 20_000;
    assert.equal(await node.mayEnd(key), false);
  });

  test('after an outage of the database nobody is declared dead for it', async (t) => {
    const [one, other] = [nodeOf(server), nodeOf(server, { node: 'mx2' })];
    await one.join();
    await other.join();
    t.after(async () => {
      await one.leave();
      await other.leave();
    });
    await server.stop('immediate');
    await new Promise((resolve) => setTimeout(resolve, 3000));
    await server.start();
    await untilTrue('both have joined again', () => one.session !== undefined && other.session !== undefined);
    const said = [...one.sentences, ...other.sentences].filter((sentence) => sentence.includes('counts as dead'));
    assert.deepEqual(said, []);
  });

  test('rows of the long dead are removed, but none that leases name, and no key comes twice', async (t) => {
    const node = nodeOf(server);
    await node.join();
    t.after(() => node.leave());
    const psql = (sql: string) => server.psql(sql, 'template');
    const add = (key: string, name: string, days: number, isDead = true) =>
      psql(`insert into postern.session (key, node, instance, dead, joined_at, report) values ('${key}', '${name}', 'x', ${isDead},
        now() - interval '40 days', jsonb_build_object('beatAt', extract(epoch from now() - interval '${days} days') * 1000))`);
    await add('gone:1', 'gone', 31);
    await add('recent:1', 'recent', 29);
    await add('leased:1', 'leased', 31);
    await add('frozen:1', 'frozen', 31, false);
    await add('boxes:1', 'boxes', 35);
    await add('boxes:2', 'boxes', 31);
    await psql(`insert into postern.recipient (uid, idx, address, destination, state, lane, turn, due, queued_at, session)
      values ('u', 0, 'a@b.example', 'b.example', 0, 0, 0, 0, 0, 'leased:1')`);
    await psql("insert into postern.mailbox_owner (username, revision, node) values ('ann@a.example', 1, 'boxes')");
    await psql("insert into postern.share values ('site', 'gone:1', 5, false), ('site', 'recent:1', 5, false)");
    await psql("update postern.session set joined_at = now() where key = 'boxes:2'");
    const keys = async () => (await psql('select key from postern.session order by key')).split('\n');
    const own = node.session ?? '';
    const ask = askFor(node.database);
    await removeOldSessions(ask);
    assert.deepEqual(await keys(), ['boxes:2', 'frozen:1', 'leased:1', own, 'recent:1']);
    assert.equal(await psql('select session from postern.share'), 'recent:1');

    // When they are many, those without a beat for an hour go, the oldest first.
    await psql('delete from postern.recipient');
    await psql(`insert into postern.session (key, node, instance, dead, joined_at, report) select 'many:' || n, 'many', 'x', true,
      now() - n * interval '1 minute', jsonb_build_object('beatAt', extract(epoch from now() - n * interval '1 minute') * 1000)
      from generate_series(1, 1100) n`);
    await removeOldSessions(ask);
    const left = await keys();
    assert.equal(left.length, 1000 + 1, 'the frozen one lives, as far as anybody knows');
    assert.ok(
      left.includes(own) && left.includes('many:1') && !left.includes('many:1100') && !left.includes('leased:1'),
    );
    await node.leave();
    await psql("update postern.session set joined_at = now() - interval '40 days', report = '{}' where dead");
    const next = nodeOf(server);
    await next.join();
    t.after(() => next.leave());
    await removeOldSessions(askFor(next.database));
    assert.equal((await keys()).includes(own), false);
    assert.ok(Number(next.session?.split(':')[1]) > Number(own.split(':')[1]));
  });
});
