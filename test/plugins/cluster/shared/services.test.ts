import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { AttemptLimiter } from '../../../../core/auth/rate.js';
import { systemClock } from '../../../../core/clock.js';
import type { AttemptLimits, Cluster, PaceLimits } from '../../../../core/contracts/cluster.js';
import { problem } from '../../../../core/problem.js';
import { DatabaseAnswers } from '../../../../plugins/cluster/shared/idempotency-responses.js';
import { DatabaseUsers } from '../../../../plugins/cluster/shared/database-users.js';
import { SharedAttempts } from '../../../../plugins/cluster/shared/shared-attempts.js';
import { DatabaseDocuments } from '../../../../plugins/cluster/shared/database-documents.js';
import { DatabaseSessions } from '../../../../plugins/cluster/shared/browser-sessions.js';
import { openCopies } from '../../../../plugins/cluster/shared/node-copies.js';
import { NodeDuties } from '../../../../plugins/cluster/shared/node-duties.js';
import { NodeShares } from '../../../../plugins/cluster/shared/node-shares.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { isThe } from '../../../kit/relay-queue/harness.js';
import {
  documentsContract,
  keptAnswersContract,
  siteSharesContract,
  userRecordsContract,
} from '../../../support/cluster-contracts.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { freePort } from '../../../support/free-port.js';
import { skipWithout } from '../../../support/peers.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { Postgres } from '../../../support/postgres.js';
import { untilTrue } from '../../../support/until.js';
import { emptyTables, fillTables, forgettable, nodeOf, seenAs } from '../cluster-fixture.js';

describe('what nodes share', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });

  async function joined(t: Ending, node: string) {
    const made = nodeOf(server, { node });
    await made.join();
    t.after(() => made.leave());
    return made;
  }
  const usersOf = async (t: Ending, node: Cluster, folder?: string): Promise<DatabaseUsers> =>
    new DatabaseUsers(node, (await openCopies(folder ?? (await temporaryFolder(t)))).users);
  const documentsOf = async (t: Ending, node: Cluster, folder?: string): Promise<DatabaseDocuments> =>
    new DatabaseDocuments(node, (await openCopies(folder ?? (await temporaryFolder(t)))).documents);
  let count = 0;
  const fresh = async (): Promise<void> => void (await server.psql(emptyTables, 'template'));

  documentsContract('the database', async (t) => {
    await fresh();
    return async () => documentsOf(t, await joined(t, `d${(count += 1)}`));
  });

  siteSharesContract('nodes', async (t) => {
    await fresh();
    return async () => new NodeShares(await joined(t, `s${(count += 1)}`));
  });

  userRecordsContract('the database', async (t) => {
    await fresh();
    return async () => {
      const records = await usersOf(t, await joined(t, `u${(count += 1)}`));
      await records.pull();
      return records;
    };
  });

  keptAnswersContract('the database', async (t) => {
    await fresh();
    const { log } = rememberingLog();
    return async () => new DatabaseAnswers(await joined(t, `k${(count += 1)}`), log);
  });

  test('a node that starts while the database is away knows what it knew before', async (t) => {
    await fresh();
    const folder = await temporaryFolder(t);
    const ann = { username: 'ann@a.example', passwordHash: null, aliases: [], quota: null, disabled: false };
    const node = await joined(t, 'a');
    const users = await usersOf(t, node, folder);
    await users.add({ ...ann, createdAt: '2026-01-02T03:04:05.000Z' });
    await users.save();
    const documents = await documentsOf(t, node, folder);
    const version = await documents.get('x').replace('older', undefined);
    await documents.get('x').read();
    await documents.get('x').replace('text', version);
    await documents.get('none').read();
    const away = nodeOf(server, { node: 'a', port: await freePort() });
    t.after(() => away.leave());
    assert.equal((await usersOf(t, away, folder)).named('ann@a.example')?.username, 'ann@a.example');
    const again = await documentsOf(t, away, folder);
    assert.equal((await again.get('x').read())?.text, 'text');
    assert.equal(await again.get('none').read(), undefined);
    await assert.rejects(again.get('never read').read(), isThe('unavailable'));
    await assert.rejects(again.get('x').replace('other', 1), isThe('unavailable'));
  });

  test('users of an older database that was restored are those of that', async (t) => {
    await fresh();
    const users = await usersOf(t, await joined(t, 'a'));
    const ann = { username: 'ann@a.example', passwordHash: null, aliases: [], quota: null, disabled: false };
    await users.add({ ...ann, createdAt: '2026-01-02T03:04:05.000Z' });
    await server.psql('delete from postern.principal; update postern.revision set value = 0', 'template');
    await users.pull();
    assert.equal(users.named('ann@a.example'), undefined);
  });

  for (const later of [['bob'], ['bob', 'cid', 'dan']]) {
    test(`users that the database has forgotten are none, and ${later.length} later ones are known everywhere`, async (t) => {
      await fresh();
      const deaf = seenAs(await joined(t, 'a'), { onRing: () => () => undefined });
      const [one, other] = [await usersOf(t, deaf), await usersOf(t, await joined(t, 'b'))];
      const user = (name: string) => ({
        username: `${name}@a.example`,
        passwordHash: null,
        aliases: [],
        quota: null,
        disabled: false,
        createdAt: '2026-01-02T03:04:05.000Z',
      });
      const names = (users: DatabaseUsers) => users.list().map(({ username }) => username.split('@')[0]);
      await one.add(user('zoe'));
      const forget = await forgettable(server);
      await one.add(user('ann'));
      await other.pull();
      assert.deepEqual(
        [names(one), names(other)],
        [
          ['ann', 'zoe'],
          ['ann', 'zoe'],
        ],
      );
      await forget();
      for (const name of later) await other.add(user(name));
      assert.deepEqual(names(other), [...later, 'zoe']);
      await one.pull();
      assert.deepEqual(names(one), [...later, 'zoe']);
    });
  }

  test('before the users were read, none is unknown', async (t) => {
    await fresh();
    const records = await usersOf(t, await joined(t, 'a'));
    assert.throws(() => records.named('ann@a.example'), isThe('unavailable'));
    await records.pull();
    assert.equal(records.named('ann@a.example'), undefined);
  });

  test('a user that one node adds, renames and removes is so at the other', async (t) => {
    await fresh();
    const [one, other] = [await usersOf(t, await joined(t, 'a')), await usersOf(t, await joined(t, 'b'))];
    await other.pull();
    const ann = {
      username: 'ann@a.example',
      passwordHash: null,
      aliases: ['x@a.example'],
      quota: null,
      disabled: false,
    };
    await one.add({ ...ann, createdAt: '2026-01-02T03:04:05.000Z' });
    await untilTrue('the other node knows her', () => other.named('x@a.example')?.username === 'ann@a.example');
    await one.change('ann@a.example', (record) => ({ ...record, aliases: ['y@a.example'], disabled: true }));
    await untilTrue('the other node knows the change', () => other.named('y@a.example')?.disabled === true);
    assert.equal(other.named('x@a.example'), undefined);
    await one.remove('ann@a.example');
    await untilTrue('she is gone', () => other.named('ann@a.example') === undefined && other.count === 0);
  });

  test('failed sign-ins at one node count at the others', async (t) => {
    await fresh();
    const limiter = (): AttemptLimiter =>
      new AttemptLimiter({ limit: 3, windowSeconds: 60, maxKeys: 100, clock: systemClock });
    const [here, there] = [limiter(), limiter()];
    const limitsOf = (counts: AttemptLimiter): AttemptLimits => ({
      add: () => () => undefined,
      all: () => new Map([['smtp', counts]]),
    });
    const nodes = [
      new SharedAttempts(await joined(t, 'a'), limitsOf(here)),
      new SharedAttempts(await joined(t, 'b'), limitsOf(there)),
    ];
    for (let times = 0; times < 3; times += 1) here.record('192.0.2.1');
    for (const node of nodes) await node.exchange();
    assert.ok(there.retryAfter('192.0.2.1') > 0);
    assert.equal(there.retryAfter('192.0.2.2'), 0);
  });

  test('a document that another node has changed is told', async (t) => {
    await fresh();
    const [one, other] = [await documentsOf(t, await joined(t, 'a')), await documentsOf(t, await joined(t, 'b'))];
    let told = 0;
    one.get('x').watch(() => (told += 1));
    await untilTrue('the change is told', async () => {
      await other.get('x').replace('text', (await other.get('x').read())?.version);
      return told > 0;
    });
    assert.equal((await one.get('x').read())?.text, 'text');
  });

  test('a document whose last change the database has forgotten is told, and its version is no other one', async (t) => {
    await fresh();
    const deaf = seenAs(await joined(t, 'a'), { onRing: () => () => undefined });
    const [one, other] = [await documentsOf(t, deaf), await documentsOf(t, await joined(t, 'b'))];
    const version = await other.get('x').replace('older', undefined);
    const forget = await forgettable(server);
    const lost = await one.get('x').replace('lost', version);
    await one.get('y').replace('lost', undefined);
    await forget();
    await other.get('x').replace('text', version);
    assert.equal(await one.get('x').replace('late', lost), undefined);
    const told: string[] = [];
    for (const name of ['x', 'y', 'z']) one.get(name).watch(() => told.push(name));
    await one.look();
    assert.deepEqual(told, ['x', 'y']);
    assert.equal((await one.get('x').read())?.text, 'text');
    assert.equal(await one.get('y').read(), undefined);
    await one.look();
    assert.deepEqual(told, ['x', 'y']);
  });

  test('what a node that was killed has told nobody is found by a look', async (t) => {
    await fresh();
    const killed = seenAs(await joined(t, 'a'), { ring: () => undefined });
    const node = await joined(t, 'b');
    const [one, other] = [await documentsOf(t, killed), await documentsOf(t, node)];
    let told = 0;
    other.get('x').watch(() => (told += 1));
    const version = await one.get('x').replace('older', undefined);
    await other.get('x').read();
    await one.get('x').replace('text', version);
    const before = told;
    await other.look();
    assert.ok(told > before);
    assert.equal((await other.get('x').read())?.text, 'text');
  });

  for (const fault of ['storage-full', 'unavailable'] as const) {
    test(`a document is what the database has, though the node cannot copy it: ${fault}`, async (t) => {
      await fresh();
      const one = (await documentsOf(t, await joined(t, 'a'))).get('x');
      const copies = (await openCopies(await temporaryFolder(t))).documents;
      let isFull = false;
      const deaf = seenAs(await joined(t, 'b'), { onRing: () => () => undefined });
      const other = new DatabaseDocuments(deaf, {
        get data() {
          return copies.data;
        },
        update: (change) => (isFull ? Promise.reject(problem(fault)) : copies.update(change)),
        look: () => copies.look(),
        watch: (listener) => copies.watch(listener),
      });
      const read = async () => (await other.get('x').read())?.text;
      const version = await one.replace('older', undefined);
      assert.equal(await read(), 'older');
      isFull = true;
      await one.replace('text', version);
      assert.equal(await read(), 'text');
      let told = 0;
      other.get('x').watch(() => (told += 1));
      await other.look();
      assert.equal(told, 1, 'its copy is outdated');
      isFull = false;
      assert.equal(await read(), 'text');
      assert.equal(copies.data['x']?.text, 'text');
      await other.look();
      assert.equal(told, 1);
    });
  }

  test('browser sessions are bounded for each account and in all, and their last use never goes back', async (t) => {
    await fresh();
    const [one, other] = [new DatabaseSessions(await joined(t, 'a')), new DatabaseSessions(await joined(t, 'b'))];
    const bounds = { perAccount: 2, inAll: 3, sinceAfter: 0, usedAfter: 0 };
    const add = (digest: string, username: string, at: number, more: object = {}) =>
      one.add(
        {
          id: `id ${digest}`,
          digest,
          username,
          role: 'read',
          passwordHash: 'hash',
          address: '::1',
          browser: 'Firefox',
          since: at,
          lastUsed: at,
        },
        { ...bounds, ...more },
      );
    const digests = async (username: string) => (await other.of(username)).map(({ digest }) => digest).toSorted();
    const ended = new Set<string>();
    other.watch((those) => those?.forEach((digest) => ended.add(digest)));
    await add('a1', 'anna', 1);
    await add('a2', 'anna', 2);
    await other.use(new Map([['a1', 9]]));
    await one.use(new Map([['a1', 8]]));
    assert.equal((await one.read(['a1', 'nothing']))[0]?.lastUsed, 9);
    await add('a3', 'anna', 3);
    assert.deepEqual(await digests('anna'), ['a1', 'a3']);
    await untilTrue('the other node is told', () => ended.has('a2'));
    await add('b1', 'bob', 4);
    await add('b2', 'bob', 5);
    assert.deepEqual([await digests('anna'), await digests('bob')], [['a1'], ['b1', 'b2']]);
    await add('c1', 'carl', 20, { usedAfter: 5 });
    assert.deepEqual([await digests('anna'), await digests('bob')], [['a1'], ['b2']]);
    await add('c2', 'carl', 21, { sinceAfter: 6 });
    assert.deepEqual([await digests('anna'), await digests('bob'), await digests('carl')], [[], [], ['c1', 'c2']]);
    // Sign-ins at once do not refuse each other.
    await Promise.all(Array.from({ length: 20 }, (_, nth) => add(`d${nth}`, 'dora', 30 + nth)));
    await add('d20', 'dora', 60);
    assert.equal((await digests('dora')).length, 2);
    await one.remove(['d20']);
    assert.equal((await digests('dora')).includes('d20'), false);
  });

  test('a duty is of one node, and goes to another one when that leaves', async (t) => {
    await fresh();
    const [first, second] = [nodeOf(server, { node: 'a' }), await joined(t, 'b')];
    await first.join();
    const [one, other] = [new NodeDuties(first), new NodeDuties(second)];
    for (const duties of [one, other]) assert.equal(duties.has('x'), false, 'nobody has it before it was asked for');
    await one.take();
    await other.take();
    assert.deepEqual([one.has('x'), other.has('x')], [true, false]);
    await first.leave();
    await other.take();
    assert.deepEqual([one.has('x'), other.has('x')], [false, true]);
  });

  const limits: PaceLimits = { maxConnections: 10, ratePerMinute: undefined, suspended: false };
  const site = 'site:mx.example.org';

  test('nodes never have more of a site than its limit, and the second one gets its part', async (t) => {
    await fresh();
    const nodes = [new NodeShares(await joined(t, 'a')), new NodeShares(await joined(t, 'b'))];
    const share = (nth: number): number => nodes[nth]?.of(site, limits).maxConnections ?? 0;
    const granted = async (): Promise<number> =>
      Number(await server.psql('select coalesce(sum(connections), 0) from postern.share', 'template'));
    const work = (nth: number): void =>
      nodes[nth]?.use(site, limits, { running: share(nth), waiting: true, idleMs: 50 });
    work(0);
    await untilTrue('the first has all', () => share(0) === 10);
    await untilTrue('the second has half', async () => {
      work(0);
      work(1);
      for (const one of nodes) await one.look();
      assert.ok((await granted()) <= 10);
      assert.ok(share(0) + share(1) <= 10);
      return share(1) === 5;
    });
    assert.equal(share(0), 5);
  });

  test('a drained node does not take its share again because another one asks for it', async (t) => {
    await fresh();
    let hear: (names: readonly string[] | null) => void = () => undefined;
    const onRing: Cluster['onRing'] = (_, listener) => {
      hear = listener;
      return () => undefined;
    };
    const shares = new NodeShares(seenAs(await joined(t, 'a'), { draining: true, onRing }));
    const share = (): number => shares.of(site, limits).maxConnections;
    shares.use(site, limits, { running: 0, waiting: true, idleMs: 60_000 });
    await untilTrue('it has all', () => share() === 10);
    await server.psql(`insert into postern.share values ('${site}', 'another', 0, true)`, 'template');
    await shares.look();
    assert.equal(share(), 0);
    const row = (): Promise<string> => server.psql('select xmin from postern.share where connections > 0', 'template');
    const before = await row();
    hear([site]);
    await untilTrue('it has heard', async () => (await row()) !== before);
    assert.equal(share(), 0);
  });

  test('a site with one connection has one in the whole cluster, and the next node gets it when it is free', async (t) => {
    await fresh();
    const only = { ...limits, maxConnections: 1 };
    const first = nodeOf(server, { node: 'a' });
    await first.join();
    const [one, other] = [new NodeShares(first), new NodeShares(await joined(t, 'b'))];
    const use = { running: 0, waiting: true, idleMs: 0 };
    one.use(site, only, use);
    await untilTrue('the first has it', () => one.of(site, only).maxConnections === 1);
    other.use(site, only, use);
    const asked = 'select count(*) from postern.share where wants';
    await untilTrue('the second has asked', async () => (await server.psql(asked, 'template')) === '1');
    for (const shares of [one, other]) await shares.look();
    assert.equal(await server.psql('select sum(connections) from postern.share', 'template'), '1');
    assert.equal(other.of(site, only).maxConnections, 0);
    await first.leave();
    assert.equal(one.of(site, only).maxConnections, 0, 'its session has ended');
    await untilTrue('the second has it', async () => {
      await other.look();
      return other.of(site, only).maxConnections === 1;
    });
  });
});
