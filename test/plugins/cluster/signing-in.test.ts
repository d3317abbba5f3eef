import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { type Ending, suiteEnding } from '../../support/ending.js';
import { type Answer, HttpClient } from '../../support/http-client.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { freeListeners, ServerProcess } from '../../support/server-process.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';

const password = 'a long enough secret';
const page = { Accept: 'text/html', 'Sec-Fetch-Site': 'same-origin', 'Sec-Fetch-Dest': 'document' };

interface Node {
  readonly process: ServerProcess;
  readonly folder: string;
}

describe('accounts and browser sessions of a cluster', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  let databases = 0;
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
  });
  const fresh = async (): Promise<string> => {
    const name = `site${(databases += 1)}`;
    await server.database(name);
    return name;
  };

  async function start(
    t: Ending,
    database: string,
    node: string,
    {
      http = {},
      env = {},
      ...given
    }: { readonly http?: object; readonly env?: Record<string, string>; readonly folder?: string } = {},
  ): Promise<Node> {
    const folder = given.folder ?? (await temporaryFolder(t));
    const cluster = {
      node,
      sessionSeconds: 4,
      database: { hosts: [server.folder], name: database, user: 'postgres', tls: 'off' },
    };
    const config = `{ smtp: { listeners: ${freeListeners} }, http: ${JSON.stringify(http)}, plugins: { cluster: ${JSON.stringify(cluster)} } }`;
    return { folder, process: await ServerProcess.start(t, { folder, config, env }) };
  }
  const shownPassword = async ({ process }: Node): Promise<string | undefined> => {
    await process.find(/^ {2}Settings/m);
    return /Password\s+(\S+)/.exec(process.output)?.[1];
  };
  const basic = ({ process }: Node, username: string, secret: string) =>
    new HttpClient(process.http, { username, password: secret });
  const status = async (node: Node, username: string, secret: string): Promise<number> =>
    (await basic(node, username, secret).request('/accounts', { accept: 'application/json' })).status;
  const add = (node: Node, as: string, username: string, role = 'admin') =>
    basic(node, 'admin', as).json('/accounts', { json: { username, password, role } }, 201);
  const signIn = ({ process }: Node, username: string): Promise<Answer> =>
    new HttpClient(process.http).request('/sign-in', { form: { username, password }, headers: page });
  const cookieOf = async (node: Node, username: string): Promise<string> => {
    const { status: code, headers } = await signIn(node, username);
    assert.equal(code, 303);
    return headers.get('set-cookie')?.split(';')[0] ?? '';
  };
  const answerWith = (
    { process }: Node,
    cookie: string,
    path = '/sessions',
    form?: Record<string, string>,
  ): Promise<Answer> =>
    new HttpClient(process.http).request(path, {
      accept: 'application/json',
      headers: { Cookie: cookie },
      ...(form !== undefined && { form }),
    });
  const statusWith = async (node: Node, cookie: string): Promise<number> => (await answerWith(node, cookie)).status;
  const isOut = (node: Node, cookie: string): Promise<void> =>
    untilTrue('the session has ended', async () => (await statusWith(node, cookie)) === 401);

  test('nodes that start at once for the first time have one admin, whose password one of them shows', async (t) => {
    const database = await fresh();
    const nodes = await Promise.all(['mx1', 'mx2', 'mx3'].map((node) => start(t, database, node)));
    for (const { process } of nodes) await process.find(/postern user add|Try it|Settings/);
    const passwords = (await Promise.all(nodes.map(shownPassword))).filter((shown) => shown !== undefined);
    assert.equal(passwords.length, 1, 'one of them made it');
    for (const node of nodes) {
      await untilTrue('it is known', async () => (await status(node, 'admin', passwords[0] ?? '')) === 200);
    }
    const [first] = nodes;
    assert.ok(first !== undefined);
    await first.process.kill('SIGTERM');
    const again = await start(t, database, 'mx1', { folder: first.folder });
    assert.equal(await shownPassword(again), undefined);
    assert.equal(await status(again, 'admin', passwords[0] ?? ''), 200);
  });

  test('an account that is made, changed or removed at one node is so at all, and at those that join', async (t) => {
    const database = await fresh();
    const one = await start(t, database, 'mx1');
    const other = await start(t, database, 'mx2');
    const admin = (await shownPassword(one)) ?? '';
    await add(one, admin, 'anna');
    await untilTrue('she is known', async () => (await status(other, 'anna', password)) === 200);
    const { source } = (await basic(other, 'anna', password).json('/accounts/anna')) as { source: string };
    assert.equal(source, 'cluster');
    assert.match(await basic(other, 'anna', password).page('/accounts'), /the database of the cluster/);

    // Both change the accounts at once: no change is lost.
    const names = Array.from({ length: 8 }, (_, number) => `user${number}`);
    const json = (username: string) => ({ json: { username, password, role: 'read' } });
    await Promise.all(
      names.map((name, nth) => basic(nth % 2 === 0 ? one : other, 'anna', password).json('/accounts', json(name), 201)),
    );
    const listed = async (node: Node) =>
      ((await basic(node, 'anna', password).json('/accounts')) as { accounts: { username: string }[] }).accounts.map(
        ({ username }) => username,
      );
    for (const node of [one, other]) {
      await untilTrue('all are there', async () => {
        const there = new Set(await listed(node));
        return names.every((name) => there.has(name));
      });
    }
    const taken = await basic(other, 'anna', password).request('/accounts', {
      ...json('user0'),
      accept: 'application/json',
    });
    assert.equal(taken.status, 409);

    const cookie = await cookieOf(other, 'anna');
    const change = { method: 'PATCH', json: { password: 'another long secret' } };
    await basic(one, 'anna', password).json('/accounts/anna', change);
    await untilTrue('the old password is void', async () => (await status(other, 'anna', password)) === 401);
    assert.equal(await status(other, 'anna', 'another long secret'), 200);
    assert.equal(await statusWith(other, cookie), 401);

    // A node that others can reach may start: somebody has chosen an account.
    const late = await start(t, database, 'mx3', { http: { host: '0.0.0.0' } });
    assert.equal(await status(late, 'anna', 'another long secret'), 200);
  });

  test('begin with those of the first node that has a file; a removed one does not return', async (t) => {
    const database = await fresh();
    const alone = await temporaryFolder(t);
    const config = `{ smtp: { listeners: ${freeListeners} } }`;
    const first = { folder: alone, process: await ServerProcess.start(t, { folder: alone, config, env: {} }) };
    const admin = (await shownPassword(first)) ?? '';
    await add(first, admin, 'anna');
    await add(first, admin, 'bob');
    await first.process.kill('SIGTERM');
    const file = await readFile(join(alone, 'data', 'accounts.json'), 'utf8');
    const one = await start(t, database, 'mx1', { folder: alone });
    const folder = await temporaryFolder(t);
    const other = await start(t, database, 'mx2', { folder });
    assert.equal(await shownPassword(other), undefined);
    assert.equal(await status(other, 'anna', password), 200);
    await basic(other, 'anna', password).request('/accounts/bob', { method: 'DELETE' });
    await untilTrue('he is gone', async () => (await status(one, 'bob', password)) === 401);
    await one.process.kill('SIGKILL');
    assert.equal(await readFile(join(alone, 'data', 'accounts.json'), 'utf8'), file);
    const again = await start(t, database, 'mx1', { folder: alone });
    assert.deepEqual([await status(again, 'bob', password), await status(again, 'anna', password)], [401, 200]);
  });

  describe('a session', () => {
    let one: Node;
    let other: Node;
    let database: string;
    before(async () => {
      database = await fresh();
      one = await start(ending, database, 'mx1', { http: { limits: { sessionsPerAccount: 3 } } });
      other = await start(ending, database, 'mx2', { http: { limits: { sessionsPerAccount: 3 } } });
      for (const name of ['anna', 'bob', 'eve']) await add(one, (await shownPassword(one)) ?? '', name);
      await untilTrue('they are known', async () => (await status(other, 'eve', password)) === 200);
    });
    const idsOf = async (node: Node, cookie: string) =>
      ((await answerWith(node, cookie)).text.match(/"id":"([^"]+)"/g) ?? []).length;

    test('is known to the other node at once, is listed there, and the database has no token', async () => {
      const cookie = await cookieOf(one, 'anna');
      assert.equal(await statusWith(other, cookie), 200);
      assert.equal(await idsOf(other, cookie), 1);
      const kept = await server.psql('select digest, id from postern.sign_in', database);
      assert.equal(kept.includes(cookie.split('=')[1] ?? ''), false);
      assert.equal(await statusWith(other, `${cookie}x`), 401);
      assert.equal(await statusWith(other, cookie.slice(0, -1)), 401);
    });

    test('that is ended at one node is over at the other, with its streams', async () => {
      const cookie = await cookieOf(one, 'anna');
      assert.equal(await statusWith(other, cookie), 200);
      const stream = await fetch(`${other.process.http}/logs/stream`, {
        headers: { Cookie: cookie, Accept: 'text/event-stream' },
      });
      assert.equal(stream.status, 200);
      const out = await answerWith(one, cookie, '/sign-out', {});
      assert.equal(out.status, 200);
      assert.equal(await statusWith(one, cookie), 401);
      await isOut(other, cookie);
      await stream.text();
    });

    test('ends with all others of its account but the one that says so', async () => {
      const mine = await cookieOf(other, 'bob');
      const theirs = [await cookieOf(one, 'bob'), await cookieOf(other, 'bob')];
      const strangers = await cookieOf(one, 'anna');
      for (const cookie of theirs) assert.equal(await statusWith(one, cookie), 200);
      const { text } = await answerWith(other, mine, '/sessions/end', { others: 'true' });
      assert.deepEqual(JSON.parse(text), { ended: 2 });
      for (const cookie of theirs) {
        assert.equal(await statusWith(other, cookie), 401);
        await isOut(one, cookie);
      }
      assert.deepEqual([await statusWith(one, mine), await statusWith(one, strangers)], [200, 200]);
    });

    test('of an account that has too many ends at both nodes, the one unused longest first', async () => {
      const cookies: string[] = [];
      for (const node of [one, other, one, other]) cookies.push(await cookieOf(node, 'eve'));
      const [oldest = '', ...rest] = cookies;
      for (const node of [one, other]) {
        await isOut(node, oldest);
        for (const cookie of rest) assert.equal(await statusWith(node, cookie), 200);
      }
    });

    test('that is too old, or unused for too long, is over though nobody has ended it', async () => {
      const [old, idle] = [await cookieOf(one, 'anna'), await cookieOf(one, 'bob')];
      // Neither node knows of it from a request before.
      const digest = (cookie: string) =>
        createHash('sha256')
          .update(cookie.split('=')[1] ?? '')
          .digest('base64url');
      const back = (column: string, cookie: string, days: number) =>
        server.psql(
          `update postern.sign_in set ${column} = ${column} - ${days * 86_400_000} where digest = '${digest(cookie)}'`,
          database,
        );
      await back('since', old, 8);
      await back('last_used', idle, 1);
      assert.deepEqual([await statusWith(other, old), await statusWith(other, idle)], [401, 401]);
      await cookieOf(one, 'eve');
      assert.equal(
        await server.psql(
          `select count(*) from postern.sign_in where digest in ('${digest(old)}', '${digest(idle)}')`,
          database,
        ),
        '0',
      );
    });

    test('is over when its row is gone: one that no node knows at once, others at the next look', async () => {
      const cookie = await cookieOf(one, 'anna');
      await server.psql('delete from postern.sign_in', database);
      assert.equal(await statusWith(other, cookie), 401);
      await untilTrue('it has looked', async () => (await statusWith(one, cookie)) === 401, 45_000);
    });

    test('goes on while the database is away, and Basic does; nobody begins one, changes wait', async () => {
      const [known, unknown] = [await cookieOf(one, 'anna'), await cookieOf(other, 'bob')];
      assert.equal(await statusWith(one, known), 200);
      await server.stop('immediate');
      assert.equal((await answerWith(one, known, '/cluster')).status, 200);
      assert.equal((await answerWith(one, unknown, '/cluster')).status, 503);
      assert.equal(await status(one, 'eve', password), 200);
      assert.equal((await signIn(one, 'anna')).status, 503);
      assert.equal((await answerWith(one, known, '/sign-out', {})).status, 503);
      const json = { username: 'late', password, role: 'read' };
      assert.equal((await basic(one, 'eve', password).request('/accounts', { json })).status, 503);
      await server.start();
      await untilTrue('it is back', async () => (await signIn(one, 'anna')).status === 303);
      assert.deepEqual([await statusWith(one, known), await statusWith(one, unknown)], [200, 200]);
      assert.equal(await status(one, 'late', password), 401);
    });
  });

  test('a node that is killed right after a change has told nobody: the other finds it', async (t) => {
    const database = await fresh();
    const one = await start(t, database, 'mx1');
    const other = await start(t, database, 'mx2');
    const admin = (await shownPassword(one)) ?? '';
    await add(one, admin, 'anna');
    await untilTrue('she is known', async () => (await status(other, 'anna', password)) === 200);
    const cookie = await cookieOf(other, 'anna');
    const removed = basic(one, 'admin', admin).request('/accounts/anna', { method: 'DELETE' });
    await untilTrue(
      'it is committed',
      async () =>
        !(await server.psql("select data from postern.document where name = 'http-accounts'", database)).includes(
          'anna',
        ),
    );
    process.kill(one.process.pid, 'SIGKILL');
    await removed.catch(() => undefined);
    await untilTrue('it is found', async () => (await status(other, 'anna', password)) === 401, 45_000);
    assert.equal(await statusWith(other, cookie), 401);
  });

  test('a database that stops in the middle of sign-ins leaves no half of one', async (t) => {
    const database = await fresh();
    const one = await start(t, database, 'mx1');
    await add(one, (await shownPassword(one)) ?? '', 'anna');
    const answers = Array.from({ length: 12 }, () => signIn(one, 'anna'));
    await Promise.race(answers);
    await server.stop('immediate');
    const ended = await Promise.all(answers);
    await server.start();
    for (const { status: code, headers } of ended) {
      assert.ok(code === 303 || code === 503, `${code}`);
      assert.equal(headers.has('set-cookie'), code === 303);
    }
    const cookies = ended.flatMap(({ headers }) => headers.get('set-cookie')?.split(';')[0] ?? []);
    for (const cookie of cookies) await untilTrue('it counts', async () => (await statusWith(one, cookie)) === 200);
  });
});
