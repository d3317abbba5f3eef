import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import type { SharedDatabase, SqlRow, SqlTransaction } from '../../../../core/contracts/cluster.js';
import { entryStates } from '../../../../core/contracts/queue-entry.js';
import { OutageLog } from '../../../../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import { damageHolds } from '../../../../plugins/client-queue/queue/hold-reasons.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { claiming, type EntryWishes, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { memoryMessage } from '../../../kit/relay-queue/harness.js';
import { suiteEnding } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { emptyTables, fillTables, nodeOf, seenAs } from '../../cluster/cluster-fixture.js';

/** Damage, and what a newer version of the server may write: one entry of three, `b`. */
describe('entries in PostgreSQL that this version cannot read', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });
  const psql = (text: string): Promise<string> => server.psql(text, 'template');

  /** Over an empty database, which has the three entries for all, or another one over the same. */
  async function open(t: TestContext, node = 'mx1', wishes: EntryWishes = {}) {
    if (node === 'mx1') await psql(emptyTables);
    const cluster = nodeOf(server, { node });
    await cluster.join();
    const clock = new HandClock(systemClock.now());
    const network = { isLost: false };
    const disk: { damaged?: string } = {};
    const refuse = (): never => {
      throw Object.assign(new Error('missing chunk number 0 for toast value'), { code: 'XX001' });
    };
    const reading = (sql: SqlTransaction): SqlTransaction => ({
      query: async <R extends SqlRow>(text: string, values: readonly unknown[] = []) => {
        if (text.includes('md5(envelope)') && [values[0]].flat().includes(disk.damaged)) refuse();
        const rows = await sql.query<R>(text, values);
        const isRead = ({ uid, envelope }: R): boolean => uid === disk.damaged && typeof envelope === 'string';
        return rows.some(isRead) ? refuse() : rows;
      },
    });
    const database: SharedDatabase = {
      query: (purpose, ...given) =>
        reading({ query: (...asked) => cluster.database.query(purpose, ...asked) }).query(...given),
      transaction: (purpose, work) =>
        network.isLost
          ? Promise.reject(new Error('lost'))
          : cluster.database.transaction(purpose, (sql) => work(reading(sql))),
    };
    const { log, sentences } = rememberingLog();
    const outages = await OutageLog.open(await temporaryFolder(t), { log });
    const bounds = { keepFinishedMs: 86_400_000, maxEntries: 1000 };
    const queue = new PostgresRelayQueue({
      cluster: seenAs(cluster, { clock, database }),
      outages,
      log,
      bounds,
      maxWaitMs: 2000,
      random: () => 0,
    });
    t.after(async () => {
      await queue.close();
      await cluster.leave();
    });
    if (node === 'mx1') {
      for (const uid of ['a', 'b', 'c']) {
        const prepared = await queue.prepare(newEntry(clock.now(), { ...wishes, uid }), memoryMessage());
        await prepared.commit();
        prepared.release();
      }
      await queue.offer();
    }
    const claim = async () => {
      const leases = await queue.claim(claiming(clock.now()));
      return leases.toSorted((one, other) => (one.uid < other.uid ? -1 : 1));
    };
    /** Sends what it is given until there is nothing more. What a process has died with comes one at a time. */
    const sendAll = async (): Promise<readonly string[]> => {
      const sent: string[] = [];
      for (let [round, failures] = [0, 0]; round < 5; round += 1) {
        const leases = await claim().catch((error: unknown) => {
          failures += 1;
          if (failures > 1) throw error;
          return [];
        });
        for (const lease of leases) {
          await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
          sent.push(lease.uid);
        }
      }
      return sent.toSorted();
    };
    const die = () => psql(`update postern.session set dead = true where key = '${cluster.session ?? ''}'`);
    return { queue, clock, claim, sendAll, outages, sentences, network, disk, die };
  }

  const uidsOf = (some: readonly { readonly uid: string }[]): readonly string[] => some.map(({ uid }) => uid);
  const damage = (column: string): Promise<string> => psql(`update postern.entry set ${column} where uid = 'b'`);
  const isHeld = async ({ queue }: { readonly queue: PostgresRelayQueue }): Promise<void> => {
    const { items } = await queue.list({ filter: { state: ['held'] }, limit: 10 });
    assert.deepEqual(
      items.map(({ uid, hold, sender, recipients }) => [uid, hold, sender, recipients[0]?.address]),
      [['b', damageHolds.unreadable, 'sender@home.example', 'rcpt@one.example']],
    );
    await queue.catchUp(true);
    assert.match(queue.complaint() ?? '', /^1 message is held because of damage/);
  };
  /** With a field that this version does not know. */
  const envelopeOfNewer = `envelope = jsonb_set(envelope::jsonb, '{rest}',
    to_jsonb(((envelope::jsonb ->> 'rest')::jsonb || '[{}, [{}], "new"]')::text))::text`;

  for (const [what, column] of [
    ['is damaged', "envelope = '{}'"],
    ['is of a newer version', envelopeOfNewer],
  ] as const) {
    test(`one whose envelope ${what} is held, and the others are sent`, async (t) => {
      const node = await open(t);
      await damage(column);
      const leases = await node.claim();
      assert.deepEqual(uidsOf(leases), ['a', 'c']);
      await isHeld(node);
      assert.ok(node.sentences.includes('a message in the queue cannot be read, and is held'));
      assert.equal((await node.queue.find('b'))?.state, 'held');
      for (const lease of leases) {
        await node.queue.settle(lease, settlement(lease, 'delivered', { at: node.clock.now() }));
      }
      // A version that can read it.
      await psql(
        "update postern.entry set envelope = (select envelope from postern.entry where uid = 'a') where uid = 'b'",
      );
      await node.queue.mutate({ uids: ['b'] }, { operation: 'release' }, node.clock.now());
      assert.deepEqual(uidsOf(await node.claim()), ['b']);
    });

    test(`of a dead node, one whose envelope ${what} is held, and the others are sent`, async (t) => {
      const [first, second] = [await open(t), await open(t, 'mx2')];
      assert.equal((await first.claim()).length, 3);
      await damage(column);
      await first.die();
      await second.queue.catchUp(true);
      assert.deepEqual(await second.sendAll(), ['a', 'c']);
      await isHeld(second);
    });
  }

  test('of a dead node, one whose history is damaged is held, and the others are sent', async (t) => {
    const [first, second] = [await open(t), await open(t, 'mx2')];
    assert.equal((await first.claim()).length, 3);
    await damage("history = '{}'");
    await first.die();
    await second.queue.catchUp(true);
    assert.deepEqual(await second.sendAll(), ['a', 'c']);
    await isHeld(second);
  });

  for (const lane of ['new', 'died with'] as const) {
    test(`one that the disk of the database has lost a part of is held, and the others are sent (${lane})`, async (t) => {
      const node = await open(t);
      if (lane === 'died with') {
        await psql('update postern.recipient set lane = 2; update postern.entry set crashes = 1');
        await node.queue.catchUp(true);
      }
      node.disk.damaged = 'b';
      assert.deepEqual(await node.sendAll(), ['a', 'c']);
      const { items, total } = await node.queue.list({ filter: { state: entryStates }, limit: 10 });
      assert.deepEqual([uidsOf(items).toSorted(), total], [['a', 'c'], 3]);
      delete node.disk.damaged;
      await isHeld(node);
    });
  }

  for (const [what, column, left] of [
    ['envelope is damaged is written, and so are those of the others', "envelope = '{}'", []],
    ['history is damaged waits, and those of the others are written', "history = '{}'", ['b']],
  ] as const) {
    test(`the outcome of one whose ${what}`, async (t) => {
      const { queue, clock, claim, outages, network } = await open(t);
      const leases = await claim();
      network.isLost = true;
      for (const lease of leases) await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
      assert.equal(outages.outcomes.size, 3);
      network.isLost = false;
      await damage(column);
      await queue.catchUp();
      assert.deepEqual(uidsOf([...outages.outcomes.values()]), left);
      const finished = await psql('select count(*) from postern.entry where finished_at is not null');
      assert.equal(Number(finished), 3 - left.length);
    });
  }

  test('one whose notices are damaged is held when its time is over, and the others expire and are told', async (t) => {
    const { queue, clock, claim } = await open(t, 'mx1', { expiresAt: systemClock.now() + 60_000, warnAt: null });
    for (const lease of await claim()) {
      await queue.settle(
        lease,
        settlement(lease, 'deferred', { at: clock.now(), nextAttempt: clock.now() + 3600_000 }),
      );
    }
    await damage("notices = '{}'");
    clock.advance(120);
    await psql(`update postern.entry set last_attempt = expires_at + 1`);
    await queue.housekeep(clock.now());
    const states = "select string_agg(uid || state, ' ' order by uid) from postern.recipient";
    assert.equal(await psql(states), 'a5 b3 c5');
    const notices = await queue.notices(10);
    assert.deepEqual(
      notices.map(({ entry, notice }) => [entry.uid, notice.kind]),
      [
        ['a', 'failed'],
        ['c', 'failed'],
      ],
    );
  });
});
