import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { start } from '../../core/main.js';
import { defineEndpoint } from '../../core/http/endpoint.js';
import { basic } from '../core/http/opened-shell.js';
import { rawExchange, rawRequest, statusOf } from '../core/http/raw-exchange.js';
import { deliver } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { breaches } from './access-policy.js';
import { bodyOf, examplePath, HttpFixture, json } from './http-fixture.js';

const suite = suiteEnding();
const token = (text: string): string => `Basic ${Buffer.from(text, 'latin1').toString('base64')}`;

/** Everything that is no sign-in; it must all look the same. */
const noSignIn: Readonly<Record<string, readonly string[]>> = {
  'no credentials': [],
  'a wrong password': [basic('boss', 'planted-wrong-password')],
  'an empty password': [basic('boss', '')],
  'no colon': [token('boss')],
  'no base64': ['Basic ***'],
  'another scheme': ['Bearer abc'],
  'an empty token': ['Basic '],
  'a NUL': [token('boss:boss-secret\0')],
  'broken UTF-8': [token('boss:\xff\xfe')],
  'a token of 8 KB': [`Basic ${'A'.repeat(8192)}`],
};
const unsafe = ['POST', 'PUT', 'PATCH', 'DELETE'];

describe('who may ask the whole server what', () => {
  let fixture: HttpFixture;
  let tree: string;
  before(async () => {
    fixture = await HttpFixture.start(suite);
    tree = await fixture.tree();
  });

  test('H21 every endpoint has the access that the policy says', () => {
    assert.deepEqual(breaches(fixture.endpoints), []);
    assert.ok(fixture.endpoints.length > 20);
  });

  test('H21 a new endpoint without a rule, or one that is too open, is noticed', () => {
    const added = { summary: 'x', group: 'x', handle: () => ({}) };
    const undo = fixture.server.server.app.http.mount('probe', [
      defineEndpoint({ ...added, method: 'GET', path: '/new', access: 'public' }),
      defineEndpoint({ ...added, method: 'POST', path: '/store/open', access: 'public' }),
    ]);
    assert.deepEqual(breaches(fixture.endpoints), ['GET /new has no rule', 'POST /store/open is public, not operate']);
    undo();
    assert.deepEqual(breaches(fixture.endpoints), []);
  });

  test('H21 whatever is no sign-in gets the same 401 at every endpoint', async () => {
    const bodies = new Set<string>();
    const closed = fixture.endpoints.filter(({ access }) => access !== 'public');
    for (const { method, path } of closed) {
      for (const [name, tokens] of Object.entries(noSignIn)) {
        const headers = ['X-Request-Id: the-same-id', ...tokens.map((value) => `Authorization: ${value}`), ...json];
        const answer = await fixture.ask(method, examplePath(path), { as: null, headers, body: '{}' });
        assert.equal(statusOf(answer), 401, `${method} ${path} with ${name}`);
        assert.match(answer, /\r\nWWW-Authenticate: Basic realm="Postern", charset="UTF-8"\r\n/);
        bodies.add(bodyOf(answer));
      }
    }
    assert.equal(bodies.size, 1);
  });

  test('H21 an unknown user and an unknown address get that 401, too', async () => {
    const headers = ['X-Request-Id: the-same-id', `Authorization: ${basic('nobody', 'x')}`];
    const [user, address] = [
      await fixture.ask('GET', '/store', { as: null, headers }),
      await fixture.ask('GET', '/no/such/address', { as: null, headers: headers.slice(0, 1) }),
    ];
    assert.deepEqual([statusOf(user), statusOf(address)], [401, 401]);
    assert.equal(bodyOf(user), bodyOf(address));
  });

  test('H21 no other spelling or method leads around the sign-in', async () => {
    const spellings = (path: string) => [
      `${path}/`,
      `/${path}`,
      path.toUpperCase(),
      path.replace(/^\/(.)/, (_, c: string) => `/%${c.charCodeAt(0).toString(16)}`),
      `${path}%2f`,
      `${path};x`,
      `${path}%00`,
      `/health/..${path}`,
      `/health%2f..${path}`,
      `/.${path}`,
    ];
    for (const path of ['/store', '/users', '/config']) {
      for (const target of [path, ...spellings(path)]) {
        for (const method of ['GET', 'HEAD', 'OPTIONS', 'POST', 'TRACE', 'PROPFIND']) {
          const answer = await fixture.ask(method, target, { as: null, headers: ['X-HTTP-Method-Override: GET'] });
          assert.ok([400, 401, 404, 405].includes(statusOf(answer)), `${method} ${target}: ${answer.slice(0, 30)}`);
          assert.doesNotMatch(answer, /postmaster/);
        }
      }
    }
  });

  test('H21 a role that is too small is 403 at every endpoint', async () => {
    const tooSmall = { read: [], operate: ['reader'], admin: ['reader', 'operator'] } as const;
    for (const { method, path, access } of fixture.endpoints) {
      if (access !== 'operate' && access !== 'admin') continue;
      for (const as of tooSmall[access]) {
        const answer = await fixture.ask(method, examplePath(path), { as, headers: json, body: '{}' });
        assert.equal(statusOf(answer), 403, `${method} ${path} as ${as}`);
      }
    }
  });

  test('H17 a change that another site asks for is 403 at every endpoint', async () => {
    const sites = [
      ['Sec-Fetch-Site: cross-site'],
      ['Sec-Fetch-Site: same-site'],
      ['Sec-Fetch-Site: nonsense'],
      ['Origin: null'],
      ['Origin: http://evil.example'],
      [`Origin: http://127.0.0.1:${fixture.port}.evil.example`],
    ];
    for (const { method, path } of fixture.endpoints.filter(({ method }) => unsafe.includes(method))) {
      for (const site of sites) {
        const answer = await fixture.ask(method, examplePath(path), { headers: [...site, ...json], body: '{}' });
        assert.equal(statusOf(answer), 403, `${method} ${path} with ${site.join()}`);
      }
    }
  });

  test('H17 JSON as text, which a form of another site could send, is 415', async () => {
    const body = '{"username":"x@localhost","password":"rye bread and cheese"}';
    for (const path of ['/users', '/users/authenticate']) {
      const answer = await fixture.ask('POST', path, { headers: ['Content-Type: text/plain'], body });
      assert.equal(statusOf(answer), 415, path);
    }
  });

  test('H17 no GET has an effect', async () => {
    for (const { path } of fixture.endpoints.filter(({ method }) => method === 'GET')) {
      const answer = await fixture.ask('GET', examplePath(path), { headers: ['Sec-Fetch-Site: cross-site'] });
      assert.ok(statusOf(answer) < 500, path);
    }
    assert.equal(await fixture.tree(), tree);
  });

  test('H18 every answer forbids frames, sniffing and leaking its address', async () => {
    for (const target of ['/', '/store', '/nowhere', '/users?x=y']) {
      for (const as of ['boss', null] as const) {
        const answer = await fixture.ask('GET', target, { as, headers: ['Accept: text/html'] });
        assert.match(answer, /\r\nContent-Security-Policy: [^\r]*frame-ancestors 'none'/i, target);
        assert.doesNotMatch(answer, /Content-Security-Policy: [^\r]*unsafe-/i);
        assert.match(answer, /\r\nX-Frame-Options: DENY\r\n/i);
        assert.match(answer, /\r\nX-Content-Type-Options: nosniff\r\n/i);
        assert.match(answer, /\r\nReferrer-Policy: same-origin\r\n/i);
        assert.match(answer, /\r\nCache-Control: (?:no-store|private, no-cache)/i);
      }
    }
  });

  test('H19 other hosts are 421, two are 400, and what a proxy says is not believed', async () => {
    const headers = [`Authorization: ${basic('boss', 'boss-secret')}`, 'Connection: close'];
    const ask = (hosts: readonly string[], target = '/users') =>
      rawExchange(fixture.port, [`GET ${target} HTTP/1.1`, ...hosts, ...headers, '', ''].join('\r\n'));
    for (const host of ['evil.example', '127.0.0.1.evil.example', 'localhost@evil.example', '']) {
      assert.equal(statusOf(await ask([`Host: ${host}`])), 421, host);
    }
    assert.equal(statusOf(await ask(['Host: localhost', 'Host: evil.example'])), 400);
    assert.equal(statusOf(await ask(['Host: localhost'], 'http://evil.example/users')), 421);
    const forwarded = await ask(['Host: localhost', 'X-Forwarded-Host: evil.example', 'X-Forwarded-For: 203.0.113.9']);
    assert.equal(statusOf(forwarded), 200);
    assert.doesNotMatch(`${forwarded}${await fixture.logged()}`, /evil\.example:|203\.0\.113\.9/);
  });

  test('H20 no answer speaks of other origins', async () => {
    const headers = ['Origin: http://evil.example', 'Access-Control-Request-Method: DELETE'];
    for (const method of ['OPTIONS', 'GET']) {
      for (const path of ['/', '/users', '/store', '/nowhere']) {
        assert.doesNotMatch(await fixture.ask(method, path, { headers }), /Access-Control-/i);
      }
    }
  });

  for (const [name, http] of Object.entries({
    'an account with an empty password': { accounts: [{ username: 'a', password: '', role: 'admin' }] },
    'an account without a role': { accounts: [{ username: 'a', password: 'x' }] },
    'a rule with an empty password': { access: [{ match: '/metrics', username: 'a', password: '' }] },
    'a rule without a user': { access: [{ match: '/metrics', password: 'x' }] },
    'a rule that says nothing': { access: [{ match: '/metrics' }] },
    'a rule of an unknown role': { access: [{ match: '/metrics', role: 'everybody' }] },
  })) {
    test(`H22 ${name} stops the start`, async (t) => {
      const cwd = await temporaryFolder(t);
      await writeFile(join(cwd, 'postern.json5'), JSON.stringify({ http }));
      await assert.rejects(start({ httpPort: 0 }, { cwd, env: {}, print: () => undefined }), /postern\.json5/);
    });
  }

  test('H24 only clients that are signed in learn whether a user exists', async () => {
    const answers = await Promise.all(
      ['postmaster@localhost', 'nobody@localhost'].map((name) =>
        rawRequest(fixture.port, 'GET', `/users/${name}/exists`, ['X-Request-Id: the-same-id']),
      ),
    );
    assert.deepEqual(answers.map(statusOf), [401, 401]);
    assert.equal(new Set(answers.map(bodyOf)).size, 1);
  });

  test('H25 no credential is ever in a log', async () => {
    await fixture.ask('GET', '/users?password=planted-in-query');
    const text = await fixture.logged();
    for (const secret of ['planted-wrong-password', 'boss-secret', basic('boss', 'boss-secret').slice(6)]) {
      assert.ok(!text.includes(secret), secret);
    }
  });
});

describe('who guesses passwords over HTTP', () => {
  /** Status and number of the answers to requests that are sent all at once over one connection. */
  async function statuses(port: number, requests: readonly string[]): Promise<Readonly<Record<string, number>>> {
    const answers = await rawExchange(port, requests.join(''));
    const all = [...answers.matchAll(/HTTP\/1\.1 (\d{3}) [^]*?\r\n\r\n/g)];
    for (const [head, status = ''] of all) if (/429|503/.test(status)) assert.match(head, /\r\nRetry-After: \d+\r\n/);
    const counts: Record<string, number> = {};
    for (const [, status = ''] of all) counts[status] = (counts[status] ?? 0) + 1;
    return counts;
  }

  test('H23 of a thousand tries of a name ten are looked at, while mail comes in', async (t) => {
    const fixture = await HttpFixture.start(t, { http: { limits: { exemptLoopback: false } } });
    const last = (n: number) => (n === 999 ? ['Connection: close'] : []);
    const guess = (_: unknown, n: number) =>
      `${['GET /store HTTP/1.1', 'Host: localhost', `Authorization: ${basic('reader', `guess ${n}`)}`, ...last(n)].join('\r\n')}\r\n\r\n`;
    const [answered] = await Promise.all([
      statuses(fixture.port, Array.from({ length: 1000 }, guess)),
      deliver(fixture.server.portOf('mx'), 'Subject: through\r\n\r\nall the same\r\n'),
    ]);
    assert.deepEqual(answered, { 401: 10, 429: 990 });
  });

  test('H23 waits after ten failures of a name, and after as many at /users/authenticate', async (t) => {
    const rest = { plugins: { users: { attempts: { limit: 2 } } } };
    const fixture = await HttpFixture.start(t, { http: { limits: { exemptLoopback: false } }, rest });
    const guess = (name: string) =>
      rawRequest(fixture.port, 'GET', '/store', [`Authorization: ${basic(name, 'guess')}`]);
    for (let n = 0; n < 10; n += 1) assert.equal(statusOf(await guess('reader')), 401);
    const eleventh = await guess('reader');
    assert.equal(statusOf(eleventh), 429);
    assert.match(eleventh, /\r\nRetry-After: \d+\r\n/);
    assert.equal(statusOf(await guess('operator')), 401);

    const body = '{"username":"nobody@localhost","password":"guess"}';
    const authenticate = () => fixture.ask('POST', '/users/authenticate', { headers: json, body });
    assert.deepEqual([statusOf(await authenticate()), statusOf(await authenticate())], [200, 200]);
    const third = await authenticate();
    assert.equal(statusOf(third), 429);
    assert.match(third, /\r\nRetry-After: \d+\r\n/);
  });
});
