import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Cluster } from '../../../core/contracts/cluster.js';
import type { UserRecord } from '../../../core/contracts/user-records.js';
import { isProblem } from '../../../core/problem.js';
import { DatabaseUsers } from '../../../plugins/cluster/shared/database-users.js';
import { openCopies } from '../../../plugins/cluster/shared/node-copies.js';
import { type Ending, suiteEnding } from '../../support/ending.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { runPostern } from '../../support/server-process.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { fillTables, nodeOf } from './cluster-fixture.js';

const user = (username: string, aliases: readonly string[] = []): UserRecord => {
  return {
    username,
    passwordHash: null,
    aliases,
    quota: null,
    disabled: false,
    createdAt: '2026-01-02T03:04:05.000Z',
  };
};

test('init --print and the refusal of status need no data folder', async (t) => {
  const folder = await temporaryFolder(t);
  const printed = await runPostern(['cluster', 'init', '--print'], { cwd: folder });
  assert.equal(printed.code, 0, printed.stderr);
  assert.match(printed.stdout, /create role "postern_owner"/);
  const refused = await runPostern(['cluster', 'status'], { cwd: folder });
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /There is no cluster/);
});

test('a database that stops answering in the middle of a question about users is away', async (t) => {
  const silent = () => Promise.reject(new Error('Query read timeout'));
  const database = { query: silent, transaction: silent } as unknown as Cluster['database'];
  const cluster = { database, onRing: () => () => undefined, ring: () => undefined } as Partial<Cluster> as Cluster;
  const users = new DatabaseUsers(cluster, (await openCopies(await temporaryFolder(t))).users);
  const questions = [
    () => users.begin(() => Promise.resolve([])),
    () => users.pull(),
    () => users.add(user('ann@a.example')),
    () => users.change('ann@a.example', (record) => record),
    () => users.remove('ann@a.example'),
  ];
  for (const ask of questions) {
    await assert.rejects(ask, (error) => isProblem(error) && error.problem === 'unavailable');
  }
});

describe('the users of a cluster', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { fill: fillTables });
  });
  async function opened(t: Ending, name: string): Promise<DatabaseUsers> {
    const node = nodeOf(server, { node: name });
    await node.join();
    t.after(() => node.leave());
    const users = new DatabaseUsers(node, (await openCopies(await temporaryFolder(t))).users);
    await users.pull();
    return users;
  }

  test('begin with those of the first file, all or none, and those that were removed do not return', async (t) => {
    const [one, other] = [await opened(t, 'a'), await opened(t, 'b')];
    const twice = [user('ann@a.example'), user('bob@a.example', ['ann@a.example'])];
    await assert.rejects(one.begin(() => Promise.resolve(twice)));
    await one.pull();
    assert.equal(one.count, 0, 'none of them');
    const file = [user('ann@a.example'), user('bob@a.example')];
    const counts = await Promise.all([one, other].map((users) => users.begin(() => Promise.resolve(file))));
    assert.deepEqual(
      counts.toSorted((a, b) => a - b),
      [0, 2],
      'one server brings them',
    );
    await Promise.all([one.pull(), other.pull()]);
    assert.deepEqual([one.count, other.count], [2, 2]);
    for (const { username } of file) await one.remove(username);
    assert.equal(await (await opened(t, 'c')).begin(() => Promise.resolve(file)), 0);
    assert.equal(one.count, 0);
  });

  test('who is refused a name knows afterwards whose it is', async (t) => {
    const [one, other] = [await opened(t, 'd'), await opened(t, 'e')];
    const postmaster = user('postmaster@a.example');
    const both = await Promise.allSettled([one, other].map((users) => users.add(postmaster)));
    assert.equal(both.filter(({ status }) => status === 'rejected').length, 1);
    for (const users of [one, other]) assert.ok(users.named('postmaster@a.example') !== undefined);
  });
});
