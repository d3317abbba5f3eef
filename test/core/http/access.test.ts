import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Clock } from '../../../core/clock.js';
import { basic, openShell, passwords, type OpenedShell } from './opened-shell.js';
import { rawRequest, statusOf } from './raw-exchange.js';

const token = (text: string): string => `Basic ${Buffer.from(text, 'latin1').toString('base64')}`;

/** Everything that is no sign-in. All of it must look the same. */
const refused: Readonly<Record<string, readonly string[]>> = {
  'no credentials': [],
  'an unknown user': [basic('nobody', 'boss-secret')],
  'a wrong password': [basic('boss', 'wrong')],
  'an empty password': [basic('boss', '')],
  'no colon': [token('boss')],
  'no base64': ['Basic ***'],
  'another scheme': ['Bearer abc'],
  'an empty token': ['Basic '],
  'a NUL in the password': [token('boss:boss-secret\0')],
  'broken UTF-8': [token('boss:\xff\xfe')],
  'a token of 8 KB': [`Basic ${'A'.repeat(8192)}`],
};

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

const header = (value: string): string => `Authorization: ${value}`;

/** The demonstration's item must not be there after a refusal that would have made it. */
const bodyFor = (method: string) => (method === 'GET' || method === 'DELETE' ? '' : '{"name":"made"}');

test('every endpoint that is not public refuses whatever is no sign-in, with the same 401', async () => {
  const bodies = new Set<string>();
  let asked = 0;
  for (const { method, path, access } of opened.shell.describe()) {
    if (access === 'public') continue;
    for (const [name, values] of Object.entries(refused)) {
      const body = bodyFor(method);
      const headers = [
        ...values.map(header),
        'X-Request-Id: the-same-id',
        'Content-Type: application/json',
        `Content-Length: ${body.length}`,
      ];
      const answer = await rawRequest(opened.port, method, path.replace('{name}', 'made'), headers, body);
      assert.equal(statusOf(answer), 401, `${method} ${path} with ${name}: ${answer}`);
      assert.match(answer, /\r\nWWW-Authenticate: Basic realm="Postern", charset="UTF-8"\r\n/);
      bodies.add(answer.split('\r\n\r\n', 2)[1] ?? '');
      asked += 1;
    }
  }
  assert.equal(bodies.size, 1);
  assert.ok(asked > 100, String(asked));
  assert.equal(opened.items.size, 0);
});

test('no other spelling of a path or method leads around the sign-in', async () => {
  const spellings = [
    '/secret/',
    '//secret',
    '/SECRET',
    '/Secret',
    '/%73ecret',
    '/secret%2f',
    '/secret%2F..%2Fopen',
    '/./secret',
  ];
  const others = [
    '/open/../secret',
    '/secret;x',
    '/secret%00',
    '/open%2f..%2fsecret',
    '/secret?_method=GET',
    '/secret.',
  ];
  for (const path of [...spellings, ...others]) {
    for (const method of ['GET', 'HEAD', 'OPTIONS', 'POST']) {
      const answer = await rawRequest(opened.port, method, path, ['Content-Length: 0', 'X-HTTP-Method-Override: GET']);
      assert.ok([400, 401].includes(statusOf(answer)), `${method} ${path}: ${answer.split('\r\n', 1)[0]}`);
      assert.doesNotMatch(answer, /planted/);
    }
  }
});

test('the scheme is read in any case', async () => {
  const answer = await opened.get('/items', {
    as: null,
    headers: { Authorization: basic('boss', passwords.boss).replace('Basic', 'bAsIc') },
  });
  assert.equal(answer.status, 200);
});

test('roles contain each other, and a refusal says which one is needed', async () => {
  const item = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"name":"r1"}' };
  assert.equal((await opened.get('/items', { as: 'reader' })).status, 200);
  const refusal = await opened.get('/items', { as: 'reader', ...item });
  assert.equal(refusal.status, 403);
  assert.match(await refusal.text(), /needs the role operate; reader has the role read/);
  assert.equal((await opened.get('/items', { as: 'operator', ...item })).status, 201);
  assert.equal((await opened.get('/secret', { as: 'operator' })).status, 403);
  assert.equal((await opened.get('/secret', { as: 'boss' })).status, 200);
  opened.items.clear();
});

test('a public endpoint knows who signs in, and serves those who got it wrong as strangers', async () => {
  const who = async (init: object) => ((await (await opened.get('/open', init)).json()) as { who: string | null }).who;
  assert.equal(await who({ as: null }), null);
  assert.equal(await who({ as: 'reader' }), 'reader');
  assert.equal(await who({ as: null, headers: { Authorization: basic('boss', 'wrong') } }), null);
});

test('the navigation shows what the role may see', async () => {
  const html = async (as: string) => (await opened.get('/items', { as, headers: { Accept: 'text/html' } })).text();
  assert.doesNotMatch(await html('reader'), /href="\/secret"/);
  assert.match(await html('boss'), /href="\/secret"/);
});

describe('access rules of the configuration', () => {
  let ruled: OpenedShell;
  before(async () => {
    ruled = await openShell({
      http: {
        access: [
          { match: 'GET /words', public: true },
          { match: '/secret', username: 'prom', password: 'scrape', realm: 'Scraper' },
          { match: 'GET /items/*', role: 'admin' },
          { match: '/open', role: 'read' },
        ],
      },
    });
  });
  after(() => ruled.close());

  test('the first match opens, raises or replaces the access that was declared', async () => {
    assert.equal((await ruled.get('/words', { as: null })).status, 200);
    assert.equal((await ruled.get('/open', { as: null })).status, 401);
    assert.equal((await ruled.get('/items/x', { as: 'operator' })).status, 403);
    assert.equal((await ruled.get('/items/x', { as: 'boss' })).status, 404);
    assert.equal((await ruled.get('/items', { as: 'reader' })).status, 200);
  });

  test('the navigation follows the rules, in both directions', async () => {
    const html = async (as: string) => (await ruled.get('/items', { as, headers: { Accept: 'text/html' } })).text();
    assert.doesNotMatch(await html('boss'), /href="\/secret"/);
    const open = await openShell({ http: { access: [{ match: '/secret', role: 'read' }] } });
    const seen = await (await open.get('/items', { as: 'reader', headers: { Accept: 'text/html' } })).text();
    await open.close();
    assert.match(seen, /href="\/secret"/);
  });

  test('an endpoint with its own account takes only that, with its own realm', async () => {
    const wrong = await ruled.get('/secret', { as: 'boss' });
    assert.equal(wrong.status, 401);
    assert.equal(wrong.headers.get('www-authenticate'), 'Basic realm="Scraper", charset="UTF-8"');
    assert.equal(
      (await ruled.get('/secret', { as: null, headers: { Authorization: basic('prom', 'scrape') } })).status,
      200,
    );
    assert.equal(
      (await ruled.get('/items', { as: null, headers: { Authorization: basic('prom', 'scrape') } })).status,
      401,
    );
  });

  test('HEAD follows the rule of GET', async () => {
    assert.equal((await ruled.get('/items/x', { as: 'operator', method: 'HEAD' })).status, 403);
  });

  test('what is shown of an endpoint is its effective access', () => {
    const shown = new Map(ruled.shell.describe().map(({ method, path, access }) => [`${method} ${path}`, access]));
    assert.equal(shown.get('GET /words'), 'public');
    assert.equal(shown.get('GET /secret'), 'own account');
    assert.equal(shown.get('GET /items/{name}'), 'admin');
  });
});

test('a rule with an empty password, or of two kinds, is refused', async () => {
  const rules = [
    { match: '/x', username: 'a', password: '' },
    { match: '/x', username: '', password: 'a' },
    { match: '/x', username: 'a' },
    { match: '/x' },
    { match: '/x', role: 'read', public: true },
    { match: 'x', public: true },
  ];
  for (const rule of rules)
    await assert.rejects(openShell({ http: { access: [rule] } }), { name: 'ZodError' }, JSON.stringify(rule));
});

test('after ten failures a name waits at that address, and time heals', async () => {
  let ms = 1000;
  const clock: Clock = { now: () => 1_700_000_000_000 + ms, monotonic: () => ms };
  const limited = await openShell({ clock, http: { limits: { exemptLoopback: false } } });
  const attempt = async (name: string, password: string) =>
    limited.get('/items', { as: null, headers: { Authorization: basic(name, password) } });
  try {
    for (let count = 0; count < 10; count += 1) assert.equal((await attempt('boss', `wrong${count}`)).status, 401);
    const refusal = await attempt('boss', passwords.boss);
    assert.equal(refusal.status, 429);
    assert.match(refusal.headers.get('retry-after') ?? '', /^\d+$/);
    assert.equal((await attempt('reader', passwords.reader)).status, 200);
    const open = await limited.get('/open');
    assert.deepEqual([open.status, await open.json()], [200, { status: 'UP', who: null }]);
    ms += 1000 * Number(refusal.headers.get('retry-after'));
    assert.equal((await attempt('boss', passwords.boss)).status, 200);
  } finally {
    await limited.close();
  }
});

test('guesses at the same moment are counted one by one, and the right password of many requests is one attempt', async () => {
  const limited = await openShell({
    http: {
      limits: { exemptLoopback: false, credentialSeconds: 0 },
      access: [{ match: '/secret', username: 'reader', password: 'scrape' }],
    },
  });
  const attempt = async (password: string, path = '/items') =>
    (await limited.get(path, { as: null, headers: { Authorization: basic('reader', password) } })).status;
  const many = <T>(make: (index: number) => Promise<T>) => Promise.all(Array.from({ length: 40 }, (_, n) => make(n)));
  try {
    assert.deepEqual(new Set(await many(() => attempt(passwords.reader))), new Set([200]));
    const gates = await Promise.all([
      attempt('scrape', '/secret'),
      attempt('scrape'),
      attempt('scrape', '/secret'),
      attempt(passwords.reader, '/secret'),
      attempt(passwords.reader),
    ]);
    assert.deepEqual(gates, [200, 401, 200, 401, 200]);
    const guesses = await many((index) => attempt(`wrong${index}`));
    assert.ok(guesses.filter((status) => status === 401).length <= 10, guesses.join(' '));
    assert.ok(guesses.includes(429));
  } finally {
    await limited.close();
  }
});

test('beyond loopback the server does not start without a configured account', async () => {
  const exposed = { host: '0.0.0.0', accounts: undefined };
  await assert.rejects(openShell({ http: exposed }), {
    name: 'StartError',
    message: /http\.accounts.*POSTERN_ADMIN_PASSWORD/,
  });
  await assert.rejects(openShell({ http: { host: '0.0.0.0', accounts: [] } }), { name: 'StartError' });
});
