import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { before, describe, test } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import type { SharedDatabase, SqlPurpose, SqlTransaction } from '../../../../core/contracts/cluster.js';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { claiming, type EntryWishes, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { isThe, memoryMessage, type TestContext } from '../../../kit/relay-queue/harness.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { Proxy } from '../../../support/proxy.js';
import { emptyTables, fillTables, nodeOf, seenAs } from '../../cluster/cluster-fixture.js';

/** Answers of the database that never come, and what two nodes make of the same message. */
describe('a queue in PostgreSQL whose answers are lost', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  let proxy: Proxy;
  const suite: Ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(suite, { tcp: true, fill: fillTables });
    proxy = await Proxy.start(suite, server.port);
  });

  type Transaction = SharedDatabase['transaction'];

  /** A queue over an empty database, or another one over the same. */
  async function open(t: TestContext, node = 'mx1', around?: (real: Transaction) => Transaction) {
    if (node === 'mx1') await server.psql(emptyTables, 'template');
    const cluster = nodeOf(server, { node, ...(node === 'mx1' && { port: proxy.port }) });
    await cluster.join();
    const clock = new HandClock(systemClock.now());
    const real = cluster.database;
    const database: SharedDatabase = {
      query: (...given) => real.query(...given),
      transaction: <T>(purpose: SqlPurpose, work: (sql: SqlTransaction) => Promise<T>) => {
        const usual: Transaction = (given, what) => real.transaction(given, what);
        return (around?.(usual) ?? usual)(purpose, work);
      },
    };
    const quiet = { ring: () => undefined, onRing: () => () => undefined };
    const timed = seenAs(cluster, { clock, database, ...quiet });
    const { log } = rememberingLog();
    const bounds = { keepFinishedMs: 86_400_000, maxEntries: 1000 };
    const queue = new PostgresRelayQueue({ cluster: timed, log, bounds, maxWaitMs: 0, random: () => 0 });
    t.after(async () => {
      await queue.close();
      await cluster.leave();
    });
    const claim = () => queue.claim(claiming(clock.now()));
    const accept = async (wishes: EntryWishes = {}, body?: string) => {
      const prepared = await queue.prepare(newEntry(clock.now(), wishes), memoryMessage(body));
      await prepared.commit();
      prepared.release();
    };
    return { queue, clock, claim, accept, cluster };
  }

  const count = async (table: string): Promise<number> =>
    Number(await server.psql(`select count(*) from postern.${table}`, 'template'));

  /** Repeats for as long as there is no connection. */
  async function whenThere<T>(work: () => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await work();
      } catch (error) {
        if (tries > 50) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  test('a message whose COMMIT was not answered is there once, and may be sent', async (t) => {
    let isFirst = true;
    const { accept, claim } = await open(t, 'mx1', (usual) => async (purpose, work) => {
      if (purpose !== 'accept' || !isFirst) return usual(purpose, work);
      isFirst = false;
      await usual(purpose, work);
      // As behind a lost connection, but within the patience.
      return usual(purpose, work);
    });
    await accept({ uid: 'once' });
    assert.equal(await count('entry'), 1);
    assert.deepEqual(
      (await claim()).map(({ uid }) => uid),
      ['once'],
    );
  });

  test('a message that was refused without an answer is withdrawn, as soon as it is decided', async (t) => {
    const { accept, queue, clock } = await open(t);
    const dropped = proxy.dropAnswer('commit');
    await assert.rejects(accept({ uid: 'refused' }, 'large '.repeat(100_000)), isThe('unavailable'));
    await dropped;
    assert.equal(await count('entry'), 1);
    await whenThere(() => queue.catchUp(true));
    assert.equal(await count('entry'), 1, 'a transaction that is under way may end yet');
    clock.advance(30);
    await whenThere(() => queue.catchUp(true));
    assert.deepEqual([await count('entry'), await count('recipient')], [0, 0]);
  });

  for (const where of ['mx1', 'mx2']) {
    test(`what was refused without an answer, and is known to ${where} when it comes again, is not withdrawn`, async (t) => {
      const first = await open(t);
      const dropped = proxy.dropAnswer('commit');
      await assert.rejects(first.accept({ uid: 'again' }), isThe('unavailable'));
      await dropped;
      const second = where === 'mx1' ? first : await open(t, where);
      // A repeated transaction is answered with 250 for that.
      await whenThere(() => assert.rejects(second.accept({ uid: 'again' }), isThe('conflict')));
      first.clock.advance(30);
      await whenThere(() => first.queue.catchUp(true));
      assert.equal(await count('entry'), 1);
      await first.queue.catchUp(true);
      assert.deepEqual(
        (await first.claim()).map(({ uid }) => uid),
        ['again'],
      );
    });
  }

  test('a message that another node answers for as well is not taken back', async (t) => {
    const [first, second] = [await open(t), await open(t, 'mx2')];
    const prepared = await first.queue.prepare(newEntry(first.clock.now(), { uid: 'both' }), memoryMessage());
    await prepared.commit();
    await assert.rejects(second.accept({ uid: 'both' }), isThe('conflict'));
    await prepared.abort();
    await first.queue.catchUp(true);
    assert.deepEqual(
      (await first.claim()).map(({ uid }) => uid),
      ['both'],
    );
  });

  test('the parts of a message are not those of another one with its name', async (t) => {
    const [first, second] = [await open(t), await open(t, 'mx2')];
    const body = 'Subject: large\r\n\r\n' + 'x'.repeat(600_000);
    const one = await first.queue.prepare(newEntry(first.clock.now(), { uid: 'named' }), memoryMessage(body));
    const other = await second.queue.prepare(newEntry(second.clock.now(), { uid: 'named' }), memoryMessage(body));
    await other.abort();
    await one.commit();
    one.release();
    const text = await buffer(await first.queue.open('named'));
    assert.equal(text.subarray(-600_000).equals(Buffer.alloc(600_000, 'x')), true);
  });

  test('an outcome whose COMMIT was not answered is written, and not told as lost', async (t) => {
    const { accept, claim, queue, clock } = await open(t);
    await accept();
    const [lease] = await claim();
    assert.ok(lease);
    const dropped = proxy.dropAnswer('commit');
    const outcome = settlement(lease, 'deferred', { at: clock.now() });
    await assert.rejects(queue.settle(lease, outcome));
    await dropped;
    await whenThere(() => queue.settle(lease, outcome));
    assert.equal((await queue.find(lease.uid))?.recipients[0]?.attempts, 1);
  });

  test('a lease whose answer is on its way is not given back', async (t) => {
    let isAsked = false;
    let answer: () => void = () => undefined;
    let asked: () => void = () => undefined;
    const given = new Promise<void>((resolve) => (asked = resolve));
    const late = new Promise<void>((resolve) => (answer = resolve));
    const first = await open(t, 'mx1', (usual) => async (purpose, work) => {
      const done = await usual(purpose, work);
      if (purpose !== 'claim' || isAsked) return done;
      isAsked = true;
      asked();
      await late;
      return done;
    });
    await first.accept();
    const claimed = first.claim();
    await given;
    first.clock.advance(60);
    await first.queue.catchUp(true);
    answer();
    const [lease] = await claimed;
    assert.ok(lease);
    const second = await open(t, 'mx2');
    await second.queue.catchUp(true);
    second.clock.advance(120);
    assert.deepEqual(await second.claim(), []);
    await first.queue.settle(lease, settlement(lease, 'delivered', { at: first.clock.now() }));
  });

  test('a lease whose answer was lost is given to somebody', async (t) => {
    const [first, second] = [await open(t), await open(t, 'mx2')];
    await first.accept({ uid: 'unknown' });
    const dropped = proxy.dropAnswer('commit');
    await assert.rejects(first.claim());
    await dropped;
    assert.equal(await server.psql('select state from postern.recipient', 'template'), '0');
    first.clock.advance(15);
    await whenThere(() => first.queue.catchUp(true));
    second.clock.advance(15);
    await second.queue.catchUp(true);
    assert.deepEqual(
      (await second.claim()).map(({ uid }) => uid),
      ['unknown'],
    );
  });

  test('an outcome counts when it comes late, though another recipient was settled meanwhile', async (t) => {
    const [first, second] = [await open(t), await open(t, 'mx2')];
    await first.accept({ uid: 'two', to: ['a@one.example', 'b@two.example'] });
    const leases = await first.claim();
    const [one, two] = ['one.example', 'two.example'].map((name) => leases.find((l) => l.destination === name));
    assert.ok(one !== undefined && two !== undefined);
    const session = first.cluster.session ?? '';
    await server.psql(`update postern.session set dead = true where key = '${session}'`, 'template');
    await second.queue.catchUp(true);
    const [again] = await second.claim();
    assert.equal(again?.uid, 'two');
    await second.queue.settle(again, settlement(again, 'delivered', { at: second.clock.now() }));
    const late = again.destination === 'one.example' ? two : one;
    await whenThere(() => first.queue.settle(late, settlement(late, 'delivered', { at: first.clock.now() })));
    assert.equal((await second.queue.find('two'))?.state, 'delivered');
  });

  test('suspects that may not go anywhere do not keep the others', async (t) => {
    const { accept, claim, queue, clock } = await open(t);
    for (let nth = 0; nth < 30; nth += 1) await accept({ to: [`a${nth}@closed.example`] });
    await accept({ uid: 'free', to: ['a@open.example'] });
    await claim();
    await server.psql(
      "update postern.recipient set state = 1, lane = 2, token = null, session = null, due = case when destination = 'open.example' then 1 else 0 end",
      'template',
    );
    await server.psql('update postern.entry set crashes = 1', 'template');
    await queue.catchUp(true);
    const room = (destination: string): number => (destination === 'closed.example' ? 0 : 5);
    const leases = await queue.claim(claiming(clock.now(), { room }));
    assert.deepEqual(
      leases.map(({ uid }) => uid),
      ['free'],
    );
  });

  test('a message that the database cannot take for its content is refused alone', async (t) => {
    const { queue, clock } = await open(t);
    const wishes = [{ uid: 'bad', expiresAt: 1e20 }, { uid: 'good' }];
    const prepared = [];
    for (const one of wishes) prepared.push(await queue.prepare(newEntry(clock.now(), one), memoryMessage()));
    const results = await Promise.allSettled(prepared.map((one) => one.commit()));
    assert.deepEqual(
      results.map(({ status }) => status),
      ['rejected', 'fulfilled'],
    );
  });

  test('a destination that no index takes is refused before it keeps others from being claimed', async (t) => {
    const { queue, clock } = await open(t);
    const to = [{ address: 'a@long.example', destination: 'x'.repeat(3000) }];
    await assert.rejects(queue.prepare(newEntry(clock.now(), { to }), memoryMessage()), isThe('invalid'));
  });
});
