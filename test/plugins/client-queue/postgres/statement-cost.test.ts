import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import type { SharedDatabase, SqlTransaction } from '../../../../core/contracts/cluster.js';
import { OutageLog } from '../../../../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { newEntry } from '../../../kit/relay-queue/entries.js';
import { memoryMessage } from '../../../kit/relay-queue/harness.js';
import { suiteEnding } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { fillTables, nodeOf, seenAs } from '../../cluster/cluster-fixture.js';

interface Plan {
  readonly Plan: { readonly 'Shared Hit Blocks': number; readonly 'Shared Read Blocks': number };
  readonly 'Execution Time': number;
}

/** What a statement would cost by the plan that serves any values, as the server has it; nothing of it stays. */
async function measured(sql: SqlTransaction, text: string, values: readonly unknown[]): Promise<Plan> {
  await sql.query('savepoint before');
  await sql.query('set local plan_cache_mode = force_generic_plan');
  await sql.query(`prepare measured as ${text}`);
  const rows = await sql.query<{ 'QUERY PLAN': readonly Plan[] }>(
    `explain (analyze, buffers, format json) execute measured (${values.map(literal).join()})`,
  );
  await sql.query('deallocate measured');
  await sql.query('rollback to savepoint before');
  const plan = rows[0]?.['QUERY PLAN'][0];
  assert.ok(plan);
  return plan;
}

/** Of strings without quotes, numbers, and arrays of them. */
const literal = (value: unknown): string => `'${Array.isArray(value) ? `{${value.join()}}` : String(value)}'`;

describe('the cost of statements in PostgreSQL', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables, settings: { autovacuum: 'off' } });
  });

  /** A node whose statements of this beginning are measured. */
  async function open(t: TestContext, node: string, beginning: RegExp) {
    const cluster = nodeOf(server, { node, sessionMs: 60_000 });
    await cluster.join();
    const clock = new HandClock(systemClock.now());
    const blocks: number[] = [];
    const measuring = (sql: SqlTransaction): SqlTransaction => ({
      query: async (text, values) => {
        if (beginning.test(text)) {
          const { Plan: plan, 'Execution Time': ms } = await measured(sql, text, values ?? []);
          blocks.push(plan['Shared Hit Blocks'] + plan['Shared Read Blocks']);
          t.diagnostic(`${blocks.at(-1)} blocks, ${ms.toFixed(1)} ms`);
        }
        return sql.query(text, values);
      },
    });
    const database: SharedDatabase = {
      query: (purpose, text, values) => database.transaction(purpose, (sql) => sql.query(text, values)),
      transaction: (purpose, work) => cluster.database.transaction(purpose, (sql) => work(measuring(sql))),
    };
    const { log } = rememberingLog();
    const queue = new PostgresRelayQueue({
      cluster: seenAs(cluster, { clock, database }),
      outages: await OutageLog.open(await temporaryFolder(t), { log }),
      log,
      bounds: { keepFinishedMs: 86_400_000, maxEntries: 1_000_000 },
      maxWaitMs: 60_000,
      random: () => 0,
    });
    t.after(async () => {
      await queue.close();
      await cluster.leave();
    });
    const accept = async (uid: string, sender: string): Promise<void> => {
      const entry = newEntry(clock.now(), { uid, sender, to: ['a@open.example'] });
      const prepared = await queue.prepare(entry, memoryMessage());
      await prepared.commit();
      prepared.release();
    };
    const claim = () => {
      const room = (destination: string): number => (destination === 'closed.example' ? 0 : 10);
      return queue.claim({ now: clock.now(), limit: 100, leaseMs: 60_000, room });
    };
    return { queue, clock, blocks, accept, claim };
  }

  const analyze = (): Promise<string> => server.psql('vacuum analyze postern.recipient', 'template');
  const insert = (name: string, state: number): Promise<string> =>
    server.psql(
      `insert into postern.recipient (uid, idx, address, destination, state, lane, turn, due, queued_at)
       select '${name}' || n, 0, 'a@closed.example', 'closed.example', ${state}, 0, n, 1, 1 from generate_series(1, 300000) n`,
      'template',
    );
  const empty = (): Promise<string> =>
    server.psql('truncate postern.recipient, postern.entry, postern.body_0', 'template');

  for (const planner of ['has counted them', 'counted when nothing waited'] as const) {
    test(`a claim reads little beside 300,000 messages that may not go, and a sender with 100,000 keeps nobody waiting: PostgreSQL ${planner}`, async (t) => {
      await empty();
      if (planner === 'counted when nothing waited') {
        await insert('delivered', 7);
        await analyze();
      }
      await insert('closed', 2);
      const { queue, clock, blocks, accept, claim } = await open(t, 'mx1', /^with want as/);
      await accept('big0', 'big@home.example');
      await server.psql(
        `insert into postern.entry (uid, birth, subject, size, queued_at, expires_at, envelope, body, body_table)
         select 'big' || n, birth, subject, size, queued_at, expires_at, envelope, body, body_table
         from postern.entry, generate_series(1, 99999) n where uid = 'big0';
         insert into postern.recipient (uid, idx, address, destination, state, lane, turn, due, queued_at)
         select 'big' || n, 0, 'a@open.example', 'open.example', 2, 0, ${clock.now()} + n * 1000, 1, 1 from generate_series(1, 99999) n`,
        'template',
      );
      if (planner === 'has counted them') await analyze();
      await queue.catchUp(true);
      const few = ['few1', 'few2', 'few3'];
      for (const uid of few) await accept(uid, 'few@home.example');
      const leases = await claim();
      assert.equal(leases.length, 10);
      const uids = leases.map(({ uid }) => uid);
      assert.deepEqual(
        few.filter((uid) => !uids.includes(uid)),
        [],
      );
      assert.ok((blocks[0] ?? Infinity) < 1000);
    });
  }

  test('a node reads the messages of another one without the 100,000 beside them', async (t) => {
    await empty();
    const first = await open(t, 'mx1', /^$/);
    await server.psql(
      `insert into postern.body (table_number, id, part, data)
       select 0, 'other' || n, 0, '' from generate_series(1, 100000) n`,
      'template',
    );
    for (let n = 0; n < 10; n += 1) await first.accept(`own${n}`, 'a@home.example');
    await first.queue.offer();
    const second = await open(t, 'mx2', /^select id, data from postern\.body_/);
    await second.queue.catchUp(true);
    const leases = await second.claim();
    const texts = await Promise.all(leases.map(({ uid }) => second.queue.bytes(uid)));
    assert.equal(texts.filter((text) => text !== undefined).length, 10);
    assert.ok((second.blocks[0] ?? Infinity) < 100);
  });

  test('leases of dead nodes are looked for without reading all of the queue', async (t) => {
    await empty();
    const { queue, blocks, accept, claim } = await open(t, 'mx1', /^(with found as|select distinct r\.uid)/);
    await insert('active', 0);
    await server.psql("update postern.recipient set session = 'mx9:9'", 'template');
    await analyze();
    await server.psql('update postern.recipient set session = null, state = 7', 'template');
    await accept('one', 'a@home.example');
    assert.equal((await claim()).length, 1);
    blocks.length = 0;
    await queue.catchUp(true);
    assert.equal(blocks.length, 2);
    assert.ok(
      blocks.every((count) => count < 100),
      blocks.join(),
    );
  });
});
