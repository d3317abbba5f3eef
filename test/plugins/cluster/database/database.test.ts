import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { before, describe, test } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import { isProblem } from '../../../../core/problem.js';
import { Database } from '../../../../plugins/cluster/database/database.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { until, untilTrue } from '../../../support/until.js';
import { fillTables, nodeOf } from '../cluster-fixture.js';

describe('the connections of a node', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  let standby: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
    standby = await Postgres.start(ending, { fill: fillTables });
  });

  function open(t: Ending & { after: unknown }, hosts: readonly string[], user = 'postgres') {
    const { log, sentences } = rememberingLog();
    const settings = { hosts: [...hosts], name: 'template', user, tls: 'off' as const };
    const database = new Database({ settings, applicationName: 'test', queryTimeoutMs: 4000, clock: systemClock, log });
    t.after(() => database.close());
    return { database, sentences };
  }

  const raise = (state: string): string => `do $$ begin raise exception using errcode = '${state}'; end $$`;

  test('a server that has become read-only is left for the next one that can be written', async (t) => {
    const { database } = open(t, [server.folder, standby.folder]);
    const write = () => database.query('settle', 'create table if not exists postern.trial ()');
    await write();
    assert.equal(database.host, server.folder);
    const readOnly = (value: string) => server.alter(`set default_transaction_read_only = ${value}`);
    await readOnly('on');
    t.after(() => readOnly('off'));
    await until('the other server is used', async () => {
      await write().catch(() => undefined);
      return database.host === standby.folder || undefined;
    });
    await until('it is written', () =>
      write().then(
        () => true,
        () => undefined,
      ),
    );
    assert.equal(database.fault, undefined);
  });

  test('a transaction sees what others commit while it runs, whatever the default of the database is', async (t) => {
    const setDefault = (level: string) =>
      server.psql(`alter database template set default_transaction_isolation = '${level}'`, 'template');
    await setDefault('repeatable read');
    t.after(async () => void (await setDefault('read committed')));
    const { database } = open(t, [server.folder]);
    for (const purpose of ['accept', 'claim', 'settle', 'pages', 'bodies'] as const) {
      const seen = await database.transaction(purpose, async (client) => {
        const isThere = async (): Promise<boolean> =>
          (await client.query('select from postern.document where name = $1', [purpose])).rowCount === 1;
        const before = await isThere();
        await server.psql(`insert into postern.document values ('${purpose}', 1, '')`, 'template');
        return [before, await isThere()];
      });
      assert.deepEqual(seen, [false, true], purpose);
    }
  });

  test('a transaction that collides with others is tried three times', async (t) => {
    const node = nodeOf(server);
    t.after(() => node.leave());
    for (const state of ['40P01', '40001', '55P03']) {
      let tries = 0;
      const work = (failures: number) =>
        node.database.transaction('settle', async (sql) => {
          tries += 1;
          if (tries <= failures) await sql.query(raise(state));
          return tries;
        });
      assert.equal(await work(2), 3, state);
      tries = 0;
      await assert.rejects(work(3), { code: state });
    }
  });

  test('with too few connections for a node it works with those that it has', async (t) => {
    await server.psql('create role crowded login connection limit 3', 'template');
    const { database, sentences } = open(t, [server.folder], 'crowded');
    const first = await database.query<{ pid: number }>('accept', 'select pg_backend_pid() as pid');
    await database.query('claim', 'select 1');
    await database.query('settle', 'select 1');
    await assert.rejects(
      database.query('pages', 'select 1'),
      (error) => isProblem(error) && error.problem === 'unavailable',
    );
    // The second one of its purpose waits for the first one.
    const both = await Promise.all(
      [1, 2].map(() => database.query<{ pid: number }>('accept', 'select pg_backend_pid() as pid, pg_sleep(0.1)')),
    );
    const pids = new Set(both.map(({ rows }) => rows[0]?.pid));
    assert.deepEqual(pids, new Set([first.rows[0]?.pid]));
    assert.equal(database.fault, undefined);
    assert.deepEqual([...new Set(sentences)], ['the database has too few connections for this node']);
    await server.psql('alter role crowded connection limit -1', 'template');
    await until('it makes more as soon as it may', async () => {
      const each = [1, 2].map(() =>
        database.query<{ pid: number }>('accept', 'select pg_backend_pid() as pid, pg_sleep(0.1)'),
      );
      const [one, other] = (await Promise.all(each)).map(({ rows }) => rows[0]?.pid);
      return one === other ? undefined : true;
    });
  });

  test('a query that waits for a connection when all are given up keeps no other from connecting', async (t) => {
    const { database } = open(t, [server.folder]);
    const sleeping = [1, 2, 3].map(() => database.query('pages', 'select pg_sleep(3)').catch(() => undefined));
    const running = "select count(*) from pg_stat_activity where query = 'select pg_sleep(3)' and state = 'active'";
    await untilTrue('all connections for pages are in use', async () => (await server.psql(running)) === '2');
    const lost = Object.assign(new Error('read-only'), { code: '25006' });
    await assert.rejects(
      database.use('fence', () => Promise.reject(lost)),
      lost,
    );
    await Promise.all(sleeping);
    await until('another one connects', () =>
      database.query('settle', 'select 1').then(
        () => true,
        () => undefined,
      ),
    );
  });

  /** A server whose answer to each connection is `say`; nothing for ever when absent. */
  async function fake(t: Ending & { after: unknown }, say?: Buffer) {
    const seen = { open: 0, most: 0, all: 0 };
    const listener = createServer((socket) => {
      seen.open += 1;
      seen.all += 1;
      seen.most = Math.max(seen.most, seen.open);
      socket.on('error', () => undefined);
      socket.on('close', () => (seen.open -= 1));
      socket.on('data', () => void (say !== undefined && socket.end(say)));
    }).listen(0, '127.0.0.1');
    await once(listener, 'listening');
    t.after(() => void listener.close());
    return { seen, host: `127.0.0.1:${(listener.address() as AddressInfo).port}` };
  }
  const purposes = ['fence', 'accept', 'accept', 'claim', 'settle', 'settle', 'pages', 'bodies'] as const;

  test('two connections at most are in the making', async (t) => {
    const { seen, host } = await fake(t);
    const { database } = open(t, [host]);
    const results = await Promise.allSettled(purposes.map((purpose) => database.query(purpose, 'select 1')));
    assert.ok(results.every(({ status }) => status === 'rejected'));
    assert.equal(seen.most, 2);
  });

  test('a server without connections for this node is asked ever more slowly', async (t) => {
    const text = Buffer.from('SFATAL\0C53300\0Msorry, too many clients already\0\0');
    const head = Buffer.from('E\0\0\0\0');
    head.writeInt32BE(text.length + 4, 1);
    const { seen, host } = await fake(t, Buffer.concat([head, text]));
    const { database } = open(t, [host]);
    for (let tries = 0; tries < 100; tries += 1) {
      await assert.rejects(database.query('claim', 'select 1'));
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.ok(seen.all > 1 && seen.all < 10, `${seen.all} connections for 100 queries`);
    assert.equal(database.fault, undefined);
  });

  test('a connection that the server ends is replaced', async (t) => {
    const { database } = open(t, [server.folder]);
    const pid = async (): Promise<number | undefined> =>
      (await database.query<{ pid: number }>('settle', 'select pg_backend_pid() as pid')).rows[0]?.pid;
    const before = await pid();
    await server.psql(`select pg_terminate_backend(${before})`);
    await untilTrue('another one is there', async () => {
      const now = await pid().catch(() => before);
      return now !== before;
    });
  });
});
