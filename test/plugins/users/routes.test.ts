import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cheapHash } from '../../core/auth/cheap-hash.js';
import { openServer } from './users-server.js';
import { user } from './users-site.js';

const anna = user('anna@example.org', {
  aliases: ['info@example.org'],
  quota: 1024,
  passwordHash: cheapHash('anna-secret'),
});
const dora = user('dora@example.net', { disabled: true, passwordHash: cheapHash('dora-secret') });
const users = [anna, dora, user('postmaster@example.org')];
const names = ['dora@example.net', 'anna@example.org', 'postmaster@example.org'];

describe('the users over JSON', () => {
  it('are counted and named for everybody with the role read, with details for admins only', async (test) => {
    const { call } = await openServer(test, { users });
    const expected = { source: 'users.json', count: 3, users: names, nextCursor: null };
    assert.deepEqual((await call('GET', '/users', undefined, 'reader')).body, expected);
    assert.deepEqual((await call('GET', '/users', undefined, 'operator')).body, expected);
    const { body } = await call('GET', '/users');
    const [, details] = body['details'] as object[];
    assert.deepEqual(details, {
      username: 'anna@example.org',
      domain: 'example.org',
      aliases: ['info@example.org'],
      quota: 1024,
      disabled: false,
      hasPassword: true,
      createdAt: anna.createdAt,
    });
  });

  it('are filtered by a part of a name or alias, and come in pages that meet', async (test) => {
    const { call } = await openServer(test, { users });
    assert.deepEqual((await call('GET', '/users?q=INFO')).body['users'], ['anna@example.org']);
    assert.deepEqual((await call('GET', '/users?q=INFO', undefined, 'operator')).body['users'], []);
    assert.deepEqual((await call('GET', '/users?q=ANNA', undefined, 'reader')).body['users'], ['anna@example.org']);
    const seen: unknown[] = [];
    for (let path = '/users?limit=1'; path !== '';) {
      const { body } = await call('GET', path);
      seen.push(...(body['users'] as string[]));
      const next = body['nextCursor'];
      path = typeof next === 'string' ? `/users?limit=1&cursor=${next}` : '';
    }
    assert.deepEqual(seen, names);
    for (const query of ['limit=0', 'queue=x', 'cursor=junk', 'cursor=%3D', `cursor=${'A'.repeat(40)}`]) {
      assert.equal((await call('GET', `/users?${query}`)).status, 400, query);
    }
  });

  it('exist or not, with 200 for both', async (test) => {
    const { call } = await openServer(test, { users });
    const exists = (name: string) => call('GET', `/users/${encodeURIComponent(name)}/exists`, undefined, 'reader');
    for (const [name, expected] of [
      ['anna@example.org', true],
      ['Anna@Example.org', true],
      ['info@example.org', false],
      ['nobody@example.org', false],
      ['x', false],
      ['a b"<', false],
    ] as const) {
      const { status, body } = await exists(name);
      assert.equal(status, 200, name);
      assert.deepEqual(body, { source: 'users.json', username: name, exists: expected });
    }
  });

  it('authenticate with 200 and one shape for right, wrong, unknown and disabled', async (test) => {
    const { call, metrics } = await openServer(test, { users });
    for (const [username, password, authenticated] of [
      ['anna@example.org', 'anna-secret', true],
      ['anna@example.org', 'wrong', false],
      ['nobody@example.org', 'wrong', false],
      ['dora@example.net', 'dora-secret', false],
    ] as const) {
      const { status, body, headers } = await call('POST', '/users/authenticate', { username, password }, 'operator');
      assert.equal(status, 200);
      assert.deepEqual(body, { source: 'users.json', username, authenticated });
      assert.equal(headers.get('cache-control'), 'no-store');
    }
    assert.equal((await call('POST', '/users/authenticate', { username: 'x', password: 'y' }, 'reader')).status, 403);
    const exposed = await metrics();
    assert.match(exposed, /postern_authentications_total\{via="http",result="accepted"\} 1\n/);
    assert.match(exposed, /postern_authentications_total\{via="http",result="refused"\} 3\n/);
    assert.match(exposed, /postern_users 3\n/);
  });

  it('answer 429 with Retry-After after repeated failures, known user or not', async (test) => {
    const { call } = await openServer(test, { users, options: { attempts: { limit: 2 } } });
    for (const username of ['anna@example.org', 'nobody@example.org']) {
      const attempt = (password: string) => call('POST', '/users/authenticate', { username, password }, 'operator');
      const statuses = (await Promise.all(Array.from({ length: 20 }, () => attempt('wrong')))).map(
        ({ status }) => status,
      );
      assert.equal(statuses.filter((status) => status === 200).length, 2, username);
      assert.equal(statuses.filter((status) => status === 429).length, 18, username);
      const { status, headers, body } = await attempt('anna-secret');
      assert.equal(status, 429);
      assert.ok(Number(headers.get('retry-after')) > 0);
      assert.equal(body['detail'], 'Too many failed sign-ins for this user.');
    }
  });
});

describe('an admin over JSON', () => {
  it('adds a user, who can sign in then', async (test) => {
    const { call, stored, http } = await openServer(test, { users });
    const body = {
      username: 'Berta@example.net',
      password: 'a long enough secret',
      aliases: ['sales'],
      quota: '1.5 GB',
    };
    const { status, headers, body: made } = await call('POST', '/users', body);
    assert.equal(status, 201);
    assert.equal(headers.get('location'), '/users/berta%40example.net');
    assert.equal(made['username'], 'berta@example.net');
    assert.deepEqual(made['aliases'], ['sales@example.net']);
    assert.equal(made['quota'], 1.5 * 2 ** 30);
    assert.equal((await stored()).length, 4);
    const credentials = { username: 'berta@example.net', password: body.password };
    assert.equal((await call('POST', '/users/authenticate', credentials)).body['authenticated'], true);
    const told = JSON.stringify([made, http.log, http.audit, await stored()]);
    assert.ok(!told.includes(body.password), 'the password is nowhere');
    assert.ok(http.audit.some((line) => JSON.stringify(line).includes('add user')));
  });

  it('gets all errors of a new user, and nothing is written', async (test) => {
    const { call, stored } = await openServer(test, { users });
    const wrong: readonly (readonly [object, number, RegExp])[] = [
      [{ username: 'b@example.org', password: 'short' }, 422, /at least 10 characters/],
      [{ username: 'b@example.org', password: '' }, 422, /at least 10 characters/],
      [{ username: 'b@example.com' }, 422, /domain must be one of this server: example\.org, example\.net/],
      [{ username: '../b@example.org' }, 422, /local part/],
      [{ username: 'b@example.org', quota: 'much' }, 422, /500 MB/],
      [{ username: 'b@example.org', quota: 0 }, 422, /quota/],
      [{ username: 'b@example.org', aliases: ['a%b@example.org'] }, 422, /alias/],
      [{ username: 'b@example.org', role: 'admin' }, 422, /role/],
      [{}, 422, /username/],
      [{ username: 'anna@example.org' }, 409, /is taken/],
      [{ username: 'info@example.org' }, 409, /leads to anna@example\.org/],
    ];
    for (const [body, status, sentence] of wrong) {
      const answer = await call('POST', '/users', body);
      assert.equal(answer.status, status, JSON.stringify(body));
      assert.match(JSON.stringify(answer.body), sentence);
    }
    assert.equal((await stored()).length, 3);
  });

  it('changes only the given fields', async (test) => {
    const { call, stored } = await openServer(test, { users });
    const path = '/users/anna%40example.org';
    assert.equal((await call('PATCH', path, { quota: null })).body['quota'], null);
    assert.equal((await call('PATCH', path, { disabled: true })).status, 200);
    assert.deepEqual((await call('PATCH', path, {})).body['aliases'], ['info@example.org']);
    const record = (await stored()).find(({ username }) => username === 'anna@example.org');
    assert.deepEqual(record, { ...anna, quota: null, disabled: true });
    assert.equal((await call('PATCH', '/users/nobody%40example.org', { quota: 5 })).status, 404);
    assert.equal((await call('PATCH', path, { password: 'short' })).status, 422);
    assert.equal((await call('PATCH', path, { password: null })).status, 422);
    assert.equal((await call('PATCH', path, { username: 'b@example.org' })).status, 422);
  });

  it('loses none of a hundred changes at the same time', async (test) => {
    const many = Array.from({ length: 50 }, (_, index) => user(`u${index}@example.org`));
    const { call, stored } = await openServer(test, { users: [...users, ...many] });
    const answers = await Promise.all(
      many.flatMap(({ username }, index) => {
        const path = `/users/${encodeURIComponent(username)}`;
        return [call('PATCH', path, { quota: index + 1 }), call('PATCH', path, { aliases: [`alias${index}`] })];
      }),
    );
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    const byName = new Map((await stored()).map((record) => [record.username, record]));
    for (const [index, { username }] of many.entries()) {
      assert.equal(byName.get(username)?.quota, index + 1);
      assert.deepEqual(byName.get(username)?.aliases, [`alias${index}@example.org`]);
    }
  });

  it('may require that the user is unchanged', async (test) => {
    const { call, http } = await openServer(test, { users });
    const path = '/users/anna%40example.org';
    const tag = (await call('GET', path)).headers.get('etag') ?? '';
    const change = (ifMatch: string) =>
      http.get(path, {
        method: 'PATCH',
        headers: { 'Content-Type': 'application/json', 'If-Match': ifMatch },
        body: '{"quota":7}',
      });
    assert.equal((await change(tag)).status, 200);
    assert.equal((await change(tag)).status, 412);
  });

  it('is changed by one of many concurrent requests with the same version', async (test) => {
    const { call, http } = await openServer(test, { users });
    const path = '/users/anna%40example.org';
    let tag = (await call('GET', path)).headers.get('etag') ?? '';
    const change = async (method: string, body: string) => {
      const headers = { 'Content-Type': 'application/json', 'If-Match': tag };
      return (await http.get(path, { method, headers, body })).status;
    };
    const passwords = ['a horse on a battery', 'a staple in a mirror'];
    const changes = await Promise.all(passwords.map((password) => change('PATCH', JSON.stringify({ password }))));
    assert.deepEqual(new Set(changes), new Set([200, 412]), 'a password is no other than the one that was read');
    assert.equal(await change('PATCH', '{"quota":6}'), 412);
    tag = (await call('GET', path)).headers.get('etag') ?? '';
    const bodies = Array.from({ length: 8 }, (_, index) => `{"quota":${index + 7}}`);
    const statuses = await Promise.all([...bodies.map((body) => change('PATCH', body)), change('DELETE', '{}')]);
    assert.equal(statuses.filter((status) => status === 200).length, 1);
    assert.ok(
      statuses.every((status) => [200, 404, 412].includes(status)),
      statuses.join(' '),
    );
  });

  it('removes a user', async (test) => {
    const { call, stored } = await openServer(test, { users });
    const path = '/users/anna%40example.org';
    assert.deepEqual((await call('DELETE', path)).body, { username: 'anna@example.org', removed: true });
    assert.equal((await call('DELETE', path)).status, 404);
    assert.deepEqual(
      (await stored()).map(({ username }) => username),
      ['dora@example.net', 'postmaster@example.org'],
    );
  });

  it('cannot leave postmaster without a mailbox', async (test) => {
    const { call, stored } = await openServer(test, { users, options: { postmaster: 'info@example.org' } });
    const path = '/users/anna%40example.org';
    for (const answer of [
      await call('DELETE', path),
      await call('PATCH', path, { disabled: true }),
      await call('PATCH', path, { aliases: [] }),
    ]) {
      assert.equal(answer.status, 409);
      assert.match(String(answer.body['detail']), /postmaster/);
    }
    assert.deepEqual(await stored(), users);
    assert.equal((await call('DELETE', '/users/postmaster%40example.org')).status, 200);
  });

  it('is the only one who may change anything', async (test) => {
    const { call, stored } = await openServer(test, { users });
    const path = '/users/anna%40example.org';
    for (const as of ['reader', 'operator']) {
      assert.equal((await call('POST', '/users', { username: 'b@example.org' }, as)).status, 403);
      assert.equal((await call('PATCH', path, { disabled: true }, as)).status, 403);
      assert.equal((await call('DELETE', path, undefined, as)).status, 403);
      assert.equal((await call('GET', path, undefined, as)).status, 403);
    }
    assert.deepEqual(await stored(), users);
  });
});
