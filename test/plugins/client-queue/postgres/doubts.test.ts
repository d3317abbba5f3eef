import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { before, describe, test } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import type { SharedDatabase, SqlPurpose, SqlTransaction } from '../../../../core/contracts/cluster.js';
import { OutageLog } from '../../../../plugins/client-queue/postgres/outage-log.js';
import { PostgresRelayQueue } from '../../../../plugins/client-queue/postgres/postgres-relay-queue.js';
import { type FileLayer, nodeFiles } from '../../../../core/disk/file-layer.js';
import type { Lease, RecipientSettlement } from '../../../../core/contracts/relay-queue-store.js';
import { FaultyFiles } from '../../../core/spool/faulty-files.js';
import { problem } from '../../../../core/problem.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { claiming, type EntryWishes, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { isThe, memoryMessage, type TestContext } from '../../../kit/relay-queue/harness.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { Proxy } from '../../../support/proxy.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { untilTrue } from '../../../support/until.js';
import { emptyTables, fillTables, nodeOf, seenAs } from '../../cluster/cluster-fixture.js';

/** The whole statement: connections are also told about `read committed`. */
const commit = 'commit\0';

/** A statement that fails with this SQLSTATE. */
const raise = (state: string): string => `do $$ begin raise exception using errcode = '${state}'; end $$`;

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
  interface Wishes {
    readonly around?: (real: Transaction) => Transaction;
    readonly isAway?: () => boolean;
    readonly maxWaitMs?: number;
    readonly files?: FileLayer;
    /** Of an earlier process of the node; its tables are kept. */
    readonly folder?: string;
  }

  /** A queue over an empty database, or another one over the same. */
  async function open(t: TestContext, node = 'mx1', wishes: Wishes = {}) {
    const { around, maxWaitMs = 0, files = nodeFiles, folder = await temporaryFolder(suite) } = wishes;
    if (node === 'mx1' && wishes.folder === undefined) await server.psql(emptyTables, 'template');
    const cluster = nodeOf(server, { node, ...(node === 'mx1' && { port: proxy.port }) });
    await cluster.join();
    const clock = new HandClock(systemClock.now());
    const real = cluster.database;
    const refuseWhileAway = (): void => {
      if (wishes.isAway?.() === true) throw problem('unavailable', 'The database does not answer.');
    };
    const database: SharedDatabase = {
      query: async (...given) => {
        refuseWhileAway();
        return real.query(...given);
      },
      transaction: async <T>(purpose: SqlPurpose, work: (sql: SqlTransaction) => Promise<T>) => {
        refuseWhileAway();
        const usual: Transaction = (given, what) => real.transaction(given, what);
        return (around?.(usual) ?? usual)(purpose, work);
      },
    };
    const quiet = { ring: () => undefined, onRing: () => () => undefined };
    const timed = seenAs(cluster, { clock, database, ...quiet });
    const { log, sentences } = rememberingLog();
    const bounds = { keepFinishedMs: 86_400_000, maxEntries: 1000 };
    const outages = await OutageLog.open(folder, { log, files });
    const queue = new PostgresRelayQueue({ cluster: timed, outages, log, bounds, maxWaitMs, random: () => 0 });
    const process = { isKilled: false };
    t.after(async () => {
      if (!process.isKilled) await queue.close();
      await cluster.leave();
    });
    /** It writes nothing more, as after SIGKILL. The next process of the node. */
    const kill = (next: Wishes = {}) => {
      process.isKilled = true;
      return open(t, node, { ...next, folder });
    };
    const claim = () => queue.claim(claiming(clock.now()));
    const accept = async (wishes: EntryWishes = {}, body?: string) => {
      const prepared = await queue.prepare(newEntry(clock.now(), wishes), memoryMessage(body));
      await prepared.commit();
      prepared.release();
    };
    return { queue, clock, claim, accept, cluster, outages, sentences, folder, kill };
  }

  const refused = async (sql: SqlTransaction): Promise<never> => {
    await sql.query(raise('57P01'));
    throw new Error('it was not refused');
  };
  const complaints = (sentences: readonly string[]): readonly string[] =>
    sentences.filter((one) => one.startsWith('possible duplicate'));

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

  test('a message whose COMMIT was not answered is accepted within the timeout, once', async (t) => {
    const { accept, queue, claim } = await open(t, 'mx1', { maxWaitMs: 20_000 });
    const dropped = proxy.dropAnswer(commit);
    await accept({ uid: 'once' });
    await dropped;
    await whenThere(() => queue.catchUp(true));
    assert.equal(await count('entry'), 1);
    assert.deepEqual(
      (await claim()).map(({ uid }) => uid),
      ['once'],
    );
  });

  for (const by of ['this process', 'the next one, when this one is killed']) {
    test(`a message that was refused without an answer is withdrawn by ${by}`, async (t) => {
      const first = await open(t);
      const dropped = proxy.dropAnswer(commit);
      await assert.rejects(first.accept({ uid: 'refused' }, 'large '.repeat(100_000)), isThe('unavailable'));
      await dropped;
      assert.equal(await count('entry'), 1);
      const { queue, outages } = by === 'this process' ? first : await first.kill();
      assert.equal(outages.doubts.size, 1);
      await whenThere(() => queue.catchUp());
      assert.deepEqual([await count('entry'), await count('recipient')], [0, 0]);
      assert.equal(outages.doubts.size, 0);
    });
  }

  test('a transaction that is under way may end after its message was refused, and is undone then', async (t) => {
    let lost: () => void = () => undefined;
    let end: () => void = () => undefined;
    let ended: Promise<unknown> = Promise.resolve();
    let isFirst = true;
    const { accept, queue, outages } = await open(t, 'mx1', {
      around: (usual) => (purpose, work) => {
        if (purpose !== 'accept' || !isFirst) return usual(purpose, work);
        isFirst = false;
        const [given, gone] = [
          new Promise<void>((resolve) => (end = resolve)),
          new Promise<void>((resolve) => (lost = resolve)),
        ];
        ended = usual(purpose, async (sql) => {
          await work(sql);
          lost();
          await given;
        });
        return gone.then(() => Promise.reject(new Error('lost')));
      },
    });
    await assert.rejects(accept({ uid: 'under-way' }), isThe('unavailable'));
    await queue.catchUp();
    assert.equal(outages.doubts.size, 1);
    end();
    await ended;
    assert.equal(await count('entry'), 1);
    await queue.catchUp();
    assert.deepEqual([await count('entry'), outages.doubts.size], [0, 0]);
  });

  test('a message that was refused, and never reached the database, is forgotten', async (t) => {
    const { accept, queue, outages } = await open(t, 'mx1', {
      around: (usual) => (purpose, work) =>
        purpose === 'accept' && outages.doubts.size === 0 ? Promise.reject(new Error('lost')) : usual(purpose, work),
    });
    await assert.rejects(accept({ uid: 'never-there' }), isThe('unavailable'));
    assert.equal(outages.doubts.size, 1);
    await queue.catchUp();
    assert.deepEqual([await count('entry'), outages.doubts.size], [0, 0]);
  });

  test('a doubt that is settled while its record is being written leaves none', async (t) => {
    const { accept, queue, outages, kill } = await open(t);
    const keep = outages.keep.bind(outages);
    let write: () => void = () => undefined;
    const promise = new Promise<void>((resolve) => (write = resolve));
    outages.keep = async (...given) => {
      await promise;
      return keep(...given);
    };
    const dropped = proxy.dropAnswer(commit);
    const refused = assert.rejects(accept({ uid: 'slow-disk' }), isThe('unavailable'));
    await dropped;
    await untilTrue('it is withdrawn', async () => {
      await whenThere(() => queue.catchUp());
      return (await count('entry')) === 0;
    });
    write();
    await refused;
    assert.equal(outages.doubts.size, 0);
    assert.equal((await kill()).outages.doubts.size, 0);
  });

  test('a message that was refused, and is on its way when the database is back, is told in the log', async (t) => {
    const [first, second] = [await open(t), await open(t, 'mx2')];
    const dropped = proxy.dropAnswer(commit);
    await assert.rejects(first.accept({ uid: 'both' }), isThe('unavailable'));
    await dropped;
    await server.psql(`update postern.session set dead = true where key like 'mx1:%'`, 'template');
    await second.queue.catchUp(true);
    assert.equal((await second.claim()).length, 1);
    await server.psql('update postern.recipient set attempts = 1', 'template');
    await whenThere(() => first.queue.catchUp());
    assert.ok(first.sentences.some((one) => one.startsWith('possible duplicate: a message that was refused')));
  });

  test('a database without room refuses at once with 452', async (t) => {
    const { accept, outages } = await open(t, 'mx1', {
      maxWaitMs: 60_000,
      around: (usual) => (purpose, work) =>
        usual(purpose, async (sql) => {
          const done = await work(sql);
          if (purpose === 'accept') await sql.query(raise('53100'));
          return done;
        }),
    });
    await assert.rejects(accept(), isThe('storage-full'));
    assert.deepEqual([await count('entry'), outages.doubts.size], [0, 0]);
  });

  test('a database that is away makes messages wait, no more than fit into memory', async (t) => {
    let isAway = true;
    t.after(() => void (isAway = false));
    const { queue, clock } = await open(t, 'mx1', { maxWaitMs: 60_000, isAway: () => isAway });
    const text = `Subject: x\r\n\r\n${'x'.repeat(200_000)}`;
    const waiting: Promise<void>[] = [];
    const handIn = async (): Promise<void> => {
      const prepared = await queue.prepare(newEntry(clock.now()), memoryMessage(text));
      waiting.push(prepared.commit());
      await setImmediate();
    };
    const handInMany = async (): Promise<void> => {
      for (let nth = 0; nth < 600; nth += 1) await handIn();
    };
    await assert.rejects(handInMany(), isThe('unavailable'));
    assert.ok(waiting.length > 300 && waiting.length < 500, `${waiting.length} of 200 KB`);
    isAway = false;
    await Promise.all(waiting);
    await handIn();
    await Promise.all(waiting);
  });

  test('when a message has waited in vain, others are refused before they are sent', async (t) => {
    let isAway = true;
    const { accept, queue } = await open(t, 'mx1', { isAway: () => isAway });
    await assert.rejects(accept(), isThe('unavailable'));
    assert.equal(queue.refusal(), undefined, 'it may be back already');
    await queue.look();
    assert.match(queue.refusal() ?? '', /try again later/);
    isAway = false;
    await queue.look();
    assert.equal(queue.refusal(), undefined);
    await accept();
  });

  test('a commit whose wait for the standby was cancelled is in doubt', async (t) => {
    const { accept, queue } = await open(t);
    const setStandby = (names: string) => server.alter(`set synchronous_standby_names = '${names}'`);
    await setStandby('nobody');
    t.after(() => setStandby(''));
    const accepted = accept({ uid: 'alone' });
    const refused = assert.rejects(accepted, isThe('unavailable'));
    const cancelled =
      "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and application_name like '%/accept'";
    await untilTrue('it waits', async () => (await server.psql(cancelled)).includes('t'));
    await refused;
    assert.equal(await count('entry'), 1);
    await setStandby('');
    await whenThere(() => queue.catchUp());
    assert.equal(await count('entry'), 0);
  });

  test('a commit that waits for the standby longer than its node is withdrawn when it happens', async (t) => {
    const first = await open(t, 'mx1', {
      around: (usual) => (purpose, work) => {
        const done = usual(purpose, work);
        // As when the connection is lost during COMMIT.
        return purpose === 'accept' && first.outages.doubts.size === 0
          ? Promise.race([done, waits().then(() => Promise.reject(new Error('lost')))])
          : done;
      },
    });
    const waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    const waits = () => untilTrue('it waits', async () => (await server.psql(waiting)) !== '0');
    const setStandby = (names: string) => server.alter(`set synchronous_standby_names = '${names}'`);
    await setStandby('nobody');
    t.after(() => setStandby(''));
    await assert.rejects(first.accept({ uid: 'waits' }), isThe('unavailable'));
    first.clock.advance(60);
    await first.queue.look();
    assert.deepEqual([await count('entry'), first.outages.doubts.size], [0, 1]);
    await setStandby('');
    await untilTrue('it is committed', async () => (await count('entry')) === 1);
    await whenThere(() => first.queue.catchUp());
    assert.deepEqual([await count('entry'), first.outages.doubts.size], [0, 0]);
  });

  for (const where of ['mx1', 'mx2']) {
    test(`what was refused without an answer, and is known to ${where} when it comes again, is not withdrawn`, async (t) => {
      const first = await open(t);
      const dropped = proxy.dropAnswer(commit);
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

  for (const where of ['mx1', 'mx2']) {
    test(`a message that two nodes answer for, as both found it there, is given to ${where}`, async (t) => {
      let meanwhile: (() => Promise<void>) | undefined;
      const first = await open(t, 'mx1', {
        maxWaitMs: 20_000,
        around: (usual) => async (purpose, work) => {
          const done = await usual(purpose, work);
          if (purpose !== 'accept' || meanwhile === undefined) return done;
          const other = meanwhile;
          meanwhile = undefined;
          await other();
          throw new Error('the answer to COMMIT is lost');
        },
      });
      const second = await open(t, 'mx2');
      // A repeated transaction is answered with 250 for that.
      meanwhile = () => assert.rejects(second.accept({ uid: 'both' }), isThe('conflict'));
      await assert.rejects(first.accept({ uid: 'both' }), isThe('conflict'));
      const { queue, claim } = where === 'mx1' ? first : second;
      await queue.catchUp(true);
      assert.deepEqual(
        (await claim()).map(({ uid }) => uid),
        ['both'],
      );
    });
  }

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
    const { accept, claim, queue, clock, sentences } = await open(t);
    await accept();
    const [lease] = await claim();
    assert.ok(lease);
    const dropped = proxy.dropAnswer(commit);
    await queue.settle(lease, settlement(lease, 'deferred', { at: clock.now() }));
    await dropped;
    await whenThere(() => queue.catchUp());
    assert.equal((await queue.find(lease.uid))?.recipients[0]?.attempts, 1);
    assert.deepEqual(complaints(sentences), []);
  });

  for (const [fate, notices] of [
    ['delivered', 0],
    ['bounced', 1],
  ] as const) {
    test(`an outcome (${fate}) that the database has not taken is written by the next process, before others take its lease`, async (t) => {
      const [first, second] = [await open(t), await open(t, 'mx2')];
      await first.accept({ uid: 'sent' });
      const [lease] = await first.claim();
      assert.ok(lease);
      const dropped = proxy.dropAnswer('begin');
      await first.queue.settle(lease, settlement(lease, fate, { at: first.clock.now() }));
      await dropped;
      const next = await first.kill();
      await second.queue.catchUp(true);
      assert.equal((await second.queue.find('sent'))?.state, 'active', 'the lease of the killed process is not taken');
      await whenThere(() => next.queue.catchUp());
      const found = await second.queue.find('sent');
      assert.deepEqual([found?.state, found?.notices.length], [fate, notices]);
      assert.equal(next.outages.outcomes.size, 0);
      assert.equal((await next.kill()).outages.outcomes.size, 0);
    });
  }

  for (const [what, taken] of [
    ['counts while nobody else has begun', false],
    ['is told as a possible duplicate when another node has begun', true],
  ] as const) {
    test(`an outcome from before an outage whose lease was lost ${what}`, async (t) => {
      const [first, second] = [await open(t), await open(t, 'mx2')];
      await first.accept({ uid: 'late' });
      const [lease] = await first.claim();
      assert.ok(lease);
      const dropped = proxy.dropAnswer('begin');
      await first.queue.settle(lease, settlement(lease, 'delivered', { at: first.clock.now() }));
      await dropped;
      await server.psql(`update postern.session set dead = true where key like 'mx1:%'`, 'template');
      await second.queue.catchUp(true);
      if (taken) assert.equal((await second.claim()).length, 1);
      await whenThere(() => first.queue.catchUp());
      assert.equal((await second.queue.find('late'))?.state, taken ? 'active' : 'delivered');
      const duplicate = 'possible duplicate: the outcome of an attempt came after its lease was lost';
      assert.deepEqual(complaints(first.sentences), taken ? [duplicate] : []);
    });
  }

  test('a lease whose outcome waits on the disk is not given back', async (t) => {
    const { accept, claim, queue, clock } = await open(t, 'mx1', {
      around: (usual) => (purpose, work) => (purpose === 'settle' ? usual(purpose, refused) : usual(purpose, work)),
    });
    await accept();
    const [lease] = await claim();
    assert.ok(lease);
    await queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    clock.advance(60);
    await queue.look();
    assert.equal(await server.psql('select state from postern.recipient', 'template'), '0');
    assert.match(queue.complaint() ?? '', /What came of 1 attempt waits on the disk/);
  });

  test('an outcome that the database refuses for its content keeps none of the others', async (t) => {
    const { accept, claim, queue, clock, outages, sentences } = await open(t);
    for (const uid of ['a', 'b', 'c']) await accept({ uid });
    const leases = await claim();
    assert.equal(leases.length, 3);
    await Promise.all(
      leases.map((lease) => {
        const outcome = settlement(lease, 'delivered', { at: clock.now() });
        const [result] = outcome.results;
        const bad = { index: 0, state: 'delivered', reply: { ...result?.reply, code: 1e9 } } as RecipientSettlement;
        return queue.settle(lease, lease.uid === 'b' ? { ...outcome, results: [bad] } : outcome);
      }),
    );
    const said = (sentence: string) => sentences.filter((one) => one === sentence).length;
    const counts = () => [
      said('outcomes that waited for the database are written'),
      said('the database refuses the outcome of an attempt'),
    ];
    await queue.catchUp();
    assert.equal(
      await server.psql('select count(*) from postern.entry where finished_at is not null', 'template'),
      '2',
    );
    await queue.catchUp();
    assert.deepEqual(counts(), [1, 1]);
    clock.advance(61);
    await queue.catchUp();
    assert.deepEqual(counts(), [1, 2]);
    assert.deepEqual(
      Array.from(outages.outcomes.values(), ({ uid }) => uid),
      ['b'],
    );
  });

  test('outcomes that the database is too slow to write together are written a few at a time', async (t) => {
    const sizes: number[] = [];
    const { accept, claim, queue, clock, outages } = await open(t, 'mx1', {
      around: (usual) => (purpose, work) =>
        usual(purpose, (sql) =>
          work({
            query: async (text, values) => {
              if (!text.startsWith('update postern.recipient r set state = u.state')) return sql.query(text, values);
              const size = (values as readonly (readonly string[])[])[0]?.length ?? 0;
              sizes.push(size);
              return size > 5 ? sql.query(raise('57014')) : sql.query(text, values);
            },
          }),
        ),
    });
    for (let n = 0; n < 30; n += 1) await accept({ uid: `uid${n}` });
    const leases = await claim();
    assert.equal(leases.length, 30);
    const settle = (lease: Lease) => queue.settle(lease, settlement(lease, 'delivered', { at: clock.now() }));
    await Promise.all(leases.map(settle));
    assert.equal(outages.outcomes.size, 30);
    for (let n = 0; n < 30 && outages.outcomes.size > 0; n += 1) await queue.catchUp().catch(() => undefined);
    assert.equal(outages.outcomes.size, 0, sizes.join());
    assert.equal(
      await server.psql('select count(*) from postern.entry where finished_at is not null', 'template'),
      '30',
    );
  });

  test('with a full disk the outcome stays in memory, and is written when the database is back', async (t) => {
    const files = new FaultyFiles();
    let isAway = true;
    const { accept, claim, queue, clock, sentences } = await open(t, 'mx1', {
      files,
      around: (usual) => (purpose, work) =>
        purpose === 'settle' && isAway ? usual(purpose, refused) : usual(purpose, work),
    });
    await accept();
    const [lease] = await claim();
    assert.ok(lease);
    files.order({ call: 'write', code: 'ENOSPC' });
    const outcome = settlement(lease, 'delivered', { at: clock.now() });
    await assert.rejects(queue.settle(lease, outcome));
    assert.ok(sentences.includes('the outcome of an attempt cannot be put on the disk while the database is away'));
    isAway = false;
    await queue.settle(lease, outcome);
    assert.equal((await queue.find(lease.uid))?.state, 'delivered');
  });

  test('a torn end of the log costs what was not on the disk yet, and nothing before it', async () => {
    const folder = await temporaryFolder(suite);
    const { log } = rememberingLog();
    const outcome = (uid: string, token: number) => ({ uid, token, settlement: { results: [] } });
    const before = await OutageLog.open(folder, { log });
    await before.keep('outcomes', outcome('whole', 1));
    await before.keep('outcomes', outcome('torn', 2));
    const [name = ''] = (await readdir(folder)).filter((one) => one.endsWith('.segment'));
    const bytes = await readFile(join(folder, name));
    await writeFile(join(folder, name), bytes.fill(0, bytes.indexOf('"torn"')));
    const after = await OutageLog.open(folder, { log });
    assert.deepEqual([...after.outcomes.values()], [outcome('whole', 1)]);
    await after.keep('doubts', { uid: 'later', birth: 'x' });
    await after.done([...after.outcomes.keys()]);
    const last = await OutageLog.open(folder, { log });
    assert.deepEqual([[...last.outcomes.values()], [...last.doubts.values()]], [[], [{ uid: 'later', birth: 'x' }]]);
  });

  test('of a log that can be read in part, what is done is forgotten', async () => {
    const [folder, files] = [await temporaryFolder(suite), new FaultyFiles()];
    const { log } = rememberingLog();
    const before = await OutageLog.open(folder, { log });
    for (let token = 0; token < 5; token += 1) {
      const text = 'x'.repeat(1_000_000);
      const reply = { code: 250, status: '2.0.0', text, host: null, at: 1 };
      await before.keep('outcomes', {
        uid: 'a',
        token,
        settlement: { results: [{ index: 0, state: 'delivered', reply }] },
      });
    }
    await before.close();
    for (let nth = 1; ; nth += 1) {
      files.order({ call: 'open', code: 'EIO', path: '.segment', nth });
      const after = await OutageLog.open(folder, { log, files });
      const { size } = after.outcomes;
      assert.ok(size < 5, 'it could never be read in part');
      await after.done([...after.outcomes.keys()]);
      assert.equal(after.outcomes.size, 0);
      if (size > 0) return;
    }
  });

  test('a lease whose answer is on its way is not given back', async (t) => {
    let isAsked = false;
    let answer: () => void = () => undefined;
    let asked: () => void = () => undefined;
    const given = new Promise<void>((resolve) => (asked = resolve));
    const late = new Promise<void>((resolve) => (answer = resolve));
    const first = await open(t, 'mx1', {
      around: (usual) => async (purpose, work) => {
        const done = await usual(purpose, work);
        if (purpose !== 'claim' || isAsked) return done;
        isAsked = true;
        asked();
        await late;
        return done;
      },
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
    const dropped = proxy.dropAnswer(commit);
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
