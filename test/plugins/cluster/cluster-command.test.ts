import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import pg from 'pg';
import { clusterCheck } from '../../../plugins/cluster/doctor-check.js';
import { systemClock } from '../../../core/clock.js';
import { suiteEnding } from '../../support/ending.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { untilTrue } from '../../support/until.js';
import { appPassword, cluster, joined, settingsOf, superuserPassword, wantPasswords } from './cluster-site.js';

describe('postern cluster', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  const settings = (rest: object = {}, own: object = {}) =>
    settingsOf({ hosts: [`127.0.0.1:${server.port}`], password: appPassword, tls: 'off', ...rest }, own);
  const asked = [superuserPassword];
  before(async () => {
    server = await Postgres.start(ending, { tcp: true });
    await wantPasswords(server);
  });

  test('init makes database, roles and schema, and migrate the tables, with exactly the rights that servers need', async (t) => {
    const made = await cluster('init', settings(), { answers: asked });
    assert.deepEqual([made.status, made.error], [0, '']);
    assert.match(made.output, /^Password of postgres in the database: The database postern was made\./);
    assert.match(made.output, /Next: postern cluster migrate\n$/);
    const again = await cluster('init', settings(), { answers: asked });
    assert.equal(again.error, '');
    await server.psql("alter role postern_owner password 'of the owner'");
    const migrated = await cluster('migrate', settings(), { answers: ['of the owner'] });
    assert.deepEqual([migrated.status, migrated.error], [0, '']);
    assert.match(migrated.output, /The tables have version \d+ now\.\n$/);
    const unchanged = await cluster('migrate --user postgres', settings(), { answers: asked });
    assert.match(unchanged.output, /nothing was to be done\.\n$/);
    assert.equal(
      await server.psql("select rolpassword like 'SCRAM-SHA-256$4096:%' from pg_authid where rolname = 'postern_app'"),
      't',
    );
    const owners = `select distinct tableowner from pg_tables where schemaname = 'postern'`;
    assert.equal(await server.psql(owners, 'postern'), 'postern_owner');

    const { port } = server;
    const app = new pg.Client({
      host: '127.0.0.1',
      port,
      user: 'postern_app',
      password: appPassword,
      database: 'postern',
    });
    await app.connect();
    t.after(() => app.end());
    await app.query("insert into postern.document (name, version, data) values ('x', 1, '')");
    await app.query("update postern.document set data = 'y'");
    await app.query('delete from postern.document');
    await app.query('lock table postern.body_3 in access exclusive mode; truncate postern.body_3');
    await app.query("insert into postern.config_set (at, files) values (1, '[]')");
    await app.query(
      'insert into postern.config_current (number, move, at) select number, 1, 1 from postern.config_set',
    );
    await app.query('select from postern.config_current for update');
    await app.query('delete from postern.config_current');
    await app.query('delete from postern.config_set');
    for (const refused of [
      'create table postern.own (a int)',
      'create table public.own (a int)',
      'create temporary table own (a int)',
      'create schema own',
      'drop table postern.entry',
      'alter table postern.entry add column own int',
      'truncate postern.entry',
      'truncate postern.body',
      'truncate postern.body_old',
      'update postern.schema set version = 9',
      "update postern.config_set set files = '{}'",
      "copy postern.body to '/tmp/own'",
      "select pg_read_file('/etc/passwd')",
      'set role postern_owner',
    ])
      await assert.rejects(
        app.query(refused),
        /permission denied|must be owner|must be member|must be superuser/,
        refused,
      );
    const reader = (text: string) => server.psql(`set role postern_read; ${text}`, 'postern');
    await reader('select uid, subject from postern.entry');
    await assert.rejects(reader('select envelope from postern.entry'), /permission denied/);
    for (const hidden of [
      'data from postern.body',
      'line from postern.audit',
      'files from postern.config_set',
      'data from postern.document',
      'digest from postern.sign_in',
    ])
      await assert.rejects(reader(`select ${hidden}`), /permission denied/);
  });

  test('init --print prints what psql takes, without a database', async () => {
    const { output, status } = await cluster('init --print', {});
    assert.equal(status, 0);
    assert.match(output, /\\password postern_app/);
    await server.psql('create database printed');
    await server.psql(output.replaceAll('database "postern"', 'database "printed"'), 'printed');
    const owner = "select nspowner::regrole from pg_namespace where nspname = 'postern'";
    assert.equal(await server.psql(owner, 'printed'), 'postern_owner');
  });

  test('status names nodes and database, with and without a server; drain, undrain and forget change them', async (t) => {
    const none = await cluster('status', settings());
    assert.match(none.output, /^No node has joined yet\.\nDatabase 127\.0\.0\.1:\d+: PostgreSQL \d+/);
    const node = await joined(t, settings({}, { node: 'mx2' }), '1.2.3');
    const { output } = await cluster('status', settings());
    assert.match(output, /^mx2 {2}up {2}version 1\.2\.3, beat [\d.]+ s ago, 0 leases\n/);
    assert.match(output, /A commit waits for no standby\.\n/);
    const json = JSON.parse((await cluster('status --json', settings())).output) as { nodes: { node: string }[] };
    assert.equal(json.nodes[0]?.node, 'mx2');

    assert.match((await cluster('forget mx2', settings())).error, /mx2 is not dead/);
    const drained = await cluster('drain mx2 --json', settings());
    assert.deepEqual(JSON.parse(drained.output), { node: 'mx2', draining: true });
    await untilTrue('the node has heard that it drains', () => node.draining);
    assert.match((await cluster('status', settings())).output, /^mx2 {2}draining/);
    assert.equal((await cluster('undrain mx2', settings())).status, 0);
    await untilTrue('the node has heard that the drain is over', () => !node.draining);
    await node.leave();
    assert.match((await cluster('status', settings())).output, /^mx2 {2}dead/);
    assert.match((await cluster('drain mx2', settings())).error, /No node that lives calls itself mx2/);
    const forgotten = await cluster('forget mx2 --json', settings());
    assert.deepEqual(JSON.parse(forgotten.output), { node: 'mx2', forgotten: true });
    assert.match((await cluster('status', settings())).output, /^No node has joined yet/);
    assert.match((await cluster('forget mx2', settings())).error, /No node calls itself mx2/);

    const calls: unknown[] = [];
    const owner = (method: string, path: string, body?: unknown) => {
      calls.push([method, path, body]);
      return Promise.resolve({ status: 200, body: { node: 'mx2', state: 'draining' } });
    };
    assert.equal((await cluster('drain mx2', settings(), { owner })).status, 0);
    assert.deepEqual(calls, [['POST', '/cluster/drain', { node: 'mx2' }]]);
  });

  test('wrong usage ends with 2, and a refusal with 1 and a sentence', async () => {
    for (const words of ['', 'drain', 'status more', 'status --print', 'drain --user', 'nothing'])
      assert.equal((await cluster(words, settings())).status, 2, words);
    const alone = await cluster('status', {});
    assert.deepEqual([alone.status, alone.error.split(':')[0]], [1, 'There is no cluster']);
    const wrong = await cluster('status', settings({ password: 'wrong' }));
    assert.match(wrong.error, /^The database refuses the password of postern_app/);
    assert.equal(wrong.output, '');
    assert.match((await cluster('migrate', settings())).error, /asks for the password of postern_owner/);
    assert.match((await cluster('status', settings({ name: 'printed' }))).error, /tables of the cluster are missing/);
    assert.match(
      (await cluster('status', settings({ hosts: ['127.0.0.1:1'] }))).error,
      /^127\.0\.0\.1:1 does not answer: .*ECONNREFUSED/,
    );
  });

  test('the doctor says what is well, and what could be lost', async () => {
    const find = async (options: Parameters<typeof clusterCheck.run>[0]['options']) => {
      const input = { options, clock: systemClock } as unknown as Parameters<typeof clusterCheck.run>[0];
      return (await clusterCheck.run(input)).map(({ state, is }) => `${state}: ${is}`);
    };
    assert.deepEqual(await find({}), ['skipped: There is no cluster: plugins.cluster.database is not set.']);
    const found = (await find(settings())).join('\n');
    assert.match(found, /^problem: The database runs with fsync and full_page_writes off/);
    assert.match(found, /ok: The tables have version \d+; this program knows version \d+\./);
    assert.match(found, /ok: The role postern_app can change rows and no table\./);
    assert.match(found, /advice: A commit waits for no standby/);
    assert.match(found, /ok: No old snapshot/);
    assert.match(found, /ok: The clock of this machine agrees/);
    const boss = (await find(settings({ user: 'postgres', password: superuserPassword }))).join('\n');
    assert.match(boss, /advice: The role postgres is a superuser\./);
    assert.match(
      (await find(settings({ password: 'wrong' }))).join('\n'),
      /^problem: The database refuses the password/,
    );
    const bare = await find(settings({ name: 'printed' }));
    assert.match(bare.join('\n'), /problem: The tables of the cluster are missing\./);
  });
});
