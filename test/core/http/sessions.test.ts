import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { systemClock } from '../../../core/clock.js';
import { openAccounts } from '../../../core/http/accounts.js';
import { browserName, Sessions } from '../../../core/http/sessions.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { accounts, basic, openShell, type OpenedShell, passwords } from './opened-shell.js';

const browser = { Accept: 'text/html,*/*;q=0.8', 'Sec-Fetch-Site': 'same-origin', 'Sec-Fetch-Dest': 'document' };

let opened: OpenedShell;
before(async () => {
  opened = await openShell({ http: { trustedProxies: ['127.0.0.1'], limits: { exemptLoopback: false } } });
});
after(() => opened.close());

const form = (fields: Record<string, string>): RequestInit => ({
  method: 'POST',
  body: new URLSearchParams(fields),
});

const signIn = (fields: Record<string, string>, headers: Record<string, string> = {}) =>
  opened.get('/sign-in', { as: null, ...form(fields), headers: { ...browser, ...headers } });

const cookieOf = (response: Response): string => response.headers.get('set-cookie')?.split(';')[0] ?? '';

/** The cookie of a new session. */
async function sessionOf(username: keyof typeof passwords, headers: Record<string, string> = {}): Promise<string> {
  const response = await signIn({ username, password: passwords[username] }, headers);
  assert.equal(response.status, 303);
  return cookieOf(response);
}

const statusWith = async (cookie: string, path = '/items', headers: Record<string, string> = {}) =>
  (await opened.get(path, { as: null, headers: { Cookie: cookie, ...headers } })).status;

test('a form of strangers is refused by its length before it is read', async () => {
  const text = `username=${'+'.repeat(17 * 1024)}`;
  for (const path of ['/sign-in', '/sign-out']) {
    const chunked = new Blob([text]).stream();
    for (const body of [text, chunked]) {
      const answer = await opened.get(path, {
        as: null,
        method: 'POST',
        headers: { ...browser, 'Content-Type': 'application/x-www-form-urlencoded' },
        body,
        ...(body === chunked && { duplex: 'half' }),
      });
      assert.equal(answer.status, 413, `${path} ${typeof body}`);
    }
  }
});

describe('the sign-in page', () => {
  test('sets a cookie that scripts and other sites cannot use, and goes to the page that was wanted', async () => {
    const response = await signIn({ username: 'reader', password: passwords.reader, next: '/items?loud=true' });
    assert.equal(response.headers.get('location'), '/items?loud=true');
    const [set = ''] = response.headers.getSetCookie();
    assert.match(set, /^postern-session=[\w-]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict$/);
    assert.equal(await statusWith(cookieOf(response)), 200);
    assert.equal(await statusWith(cookieOf(response), '/secret'), 403);
  });

  test('binds the cookie to https when a trusted proxy speaks it, and takes no other cookie then', async () => {
    const https = { 'X-Forwarded-Proto': 'https', 'X-Forwarded-For': '192.0.2.1' };
    const response = await signIn({ username: 'reader', password: passwords.reader }, https);
    const [set = ''] = response.headers.getSetCookie();
    assert.match(set, /^__Host-postern-session=[\w-]{43}; Path=\/; .*; Secure$/);
    assert.equal(await statusWith(cookieOf(response), '/items', https), 200);
    const plain = cookieOf(response).replace('__Host-', '');
    assert.equal(await statusWith(plain, '/items', https), 401);
    const distrusting = await openShell();
    const answer = await distrusting.get('/sign-in', {
      as: null,
      ...form({ username: 'reader', password: passwords.reader }),
      headers: { ...browser, ...https },
    });
    assert.match(answer.headers.getSetCookie()[0] ?? '', /^postern-session=/);
    await distrusting.close();
  });

  test('never leads to another site', async () => {
    for (const next of [
      '//evil.example',
      '/\\evil.example',
      'https://evil.example',
      '/\t/evil.example',
      '/sign-in?next=/x',
      'items',
    ]) {
      const response = await signIn({ username: 'reader', password: passwords.reader, next });
      assert.equal(response.headers.get('location'), '/', next);
    }
    const long = await signIn({ username: 'reader', password: passwords.reader, next: `/${'a'.repeat(3000)}` });
    assert.equal(long.status, 422);
    const page = await opened.get('/sign-in?next=//evil.example', { as: null, headers: browser });
    assert.doesNotMatch(await page.text(), /evil/);
  });

  test('shows a wrong password beside its field, without the password; a script gets 401', async () => {
    const page = await signIn({ username: 'reader', password: 'not the secret' });
    assert.equal(page.status, 422);
    assert.deepEqual(page.headers.getSetCookie(), []);
    const html = await page.text();
    assert.match(html, /Wrong user name or password/);
    assert.doesNotMatch(html, /not the secret/);
    const json = { Accept: 'application/json', 'Content-Type': 'application/json' };
    const sent = (password: string) =>
      opened.get('/sign-in', {
        as: null,
        method: 'POST',
        headers: json,
        body: JSON.stringify({ username: 'reader', password }),
      });
    assert.equal((await sent('wrong')).status, 401);
    const right = await sent(passwords.reader);
    assert.deepEqual(await right.json(), { username: 'reader', role: 'read', next: '/' });
    assert.equal(await statusWith(cookieOf(right)), 200);
  });

  test('counts failures together with those of HTTP Basic', async () => {
    const from = { 'X-Forwarded-For': '192.0.2.77' };
    for (let n = 0; n < 5; n += 1)
      assert.equal((await signIn({ username: 'boss', password: `${n}` }, from)).status, 422);
    for (let n = 0; n < 5; n += 1) {
      const headers = { ...from, authorization: basic('boss', `x${n}`) };
      assert.equal((await opened.get('/items', { headers })).status, 401);
    }
    assert.equal((await signIn({ username: 'boss', password: passwords.boss }, from)).status, 429);
    assert.equal(
      (await opened.get('/items', { headers: { ...from, authorization: basic('boss', passwords.boss) } })).status,
      429,
    );
  });

  test('refuses the form of another site', async () => {
    const response = await signIn(
      { username: 'reader', password: passwords.reader },
      { 'Sec-Fetch-Site': 'cross-site' },
    );
    assert.equal(response.status, 403);
    const cookie = await sessionOf('operator');
    const forged = await opened.get('/items', {
      as: null,
      ...form({ name: 'forged' }),
      headers: { ...browser, Cookie: cookie, 'Sec-Fetch-Site': 'same-site' },
    });
    assert.equal(forged.status, 403);
    assert.equal(opened.items.has('forged'), false);
  });
});

describe('without credentials', () => {
  const ask = async (path: string, headers: Record<string, string>, method = 'GET') => {
    const { status, headers: fields } = await opened.get(path, { as: null, method, headers });
    return [
      status,
      fields.get('location') ?? fields.get('hx-redirect'),
      fields.get('www-authenticate')?.split(' ')[0] ?? null,
    ];
  };

  test('a page leads to the sign-in page and back, whatever is there', async () => {
    assert.deepEqual(await ask('/items?q=a%20b&notice=x', browser), [303, '/sign-in?next=%2Fitems%3Fq%3Da%2Bb', null]);
    assert.deepEqual(await ask('/nothing/here', browser), [303, '/sign-in?next=%2Fnothing%2Fhere', null]);
  });

  test('a script gets the Basic challenge', async () => {
    for (const Accept of ['*/*', 'application/json', 'text/plain']) {
      assert.deepEqual(await ask('/items', { Accept }), [401, null, 'Basic'], Accept);
    }
    assert.deepEqual(await ask('/items', { ...browser, authorization: basic('boss', 'wrong') }), [401, null, 'Basic']);
  });

  test('htmx leads the whole window there; neither it nor an image opens the dialog of the browser', async () => {
    const htmx = { 'HX-Request': 'true', Accept: '*/*', 'HX-Current-URL': `${opened.url}/items?q=1` };
    assert.deepEqual(await ask('/items', htmx), [401, '/sign-in?next=%2Fitems%3Fq%3D1', 'Cookie']);
    const foreign = { ...htmx, 'HX-Current-URL': 'http://evil.example/items' };
    assert.deepEqual(await ask('/items', foreign), [401, '/sign-in', 'Cookie']);
    assert.deepEqual(await ask('/items', htmx, 'POST'), [401, null, 'Cookie']);
    assert.deepEqual(await ask('/items', { Accept: '*/*', 'Sec-Fetch-Dest': 'image' }), [401, null, 'Cookie']);
    assert.deepEqual(await ask('/items', browser, 'POST'), [401, null, 'Cookie']);
  });
});

describe('a session', () => {
  test('is another one after each sign-in, and the one before ends', async () => {
    const first = await sessionOf('reader');
    const second = await sessionOf('reader', { Cookie: first });
    assert.notEqual(first, second);
    assert.deepEqual([await statusWith(first), await statusWith(second)], [401, 200]);
  });

  test('ends at sign-out, also the streams that it has open', async () => {
    const cookie = await sessionOf('reader');
    const events = await opened.get('/events', { as: null, headers: { Cookie: cookie } });
    const reader = events.body?.getReader();
    assert.match(new TextDecoder().decode((await reader?.read())?.value as Uint8Array), /open/);
    const others = await sessionOf('reader');
    const staying = await opened.get('/events', { as: null, headers: { Cookie: others } });
    const response = await opened.get('/sign-out', { as: null, ...form({}), headers: { ...browser, Cookie: cookie } });
    assert.equal(response.status, 303);
    assert.match(response.headers.getSetCookie()[0] ?? '', /^postern-session=; .*Max-Age=0/);
    assert.equal(await statusWith(cookie), 401);
    assert.equal((await reader?.read())?.done, true);
    const still = staying.body?.getReader();
    assert.equal((await still?.read())?.done, false);
    await still?.cancel();
  });

  test('is listed for its account alone, and can be ended there', async () => {
    const [mine, other, theirs] = [await sessionOf('operator'), await sessionOf('operator'), await sessionOf('boss')];
    const list = async (cookie: string) =>
      (await (await opened.get('/sessions', { as: null, headers: { Cookie: cookie } })).json()) as {
        sessions: { id: string; browser: string; current: boolean }[];
      };
    const { sessions } = await list(mine);
    assert.equal(sessions.filter(({ current }) => current).length, 1);
    const [foreign] = (await list(theirs)).sessions;
    const end = async (fields: Record<string, string>) =>
      (await opened.get('/sessions/end', { as: null, ...form(fields), headers: { Cookie: mine } })).status;
    assert.equal(await end({ id: foreign?.id ?? '' }), 404);
    assert.equal(await end({}), 422);
    assert.equal(await end({ others: 'true' }), 200);
    assert.deepEqual([await statusWith(mine), await statusWith(other), await statusWith(theirs)], [200, 401, 200]);
  });
});

describe('sessions on disk', () => {
  const boss = accounts.filter(({ username }) => username === 'boss') as never[];
  const open = async (t: TestContext, configured: unknown = boss, folder?: string, limits: object = {}) => {
    const data = folder ?? (await temporaryFolder(t));
    let now = Date.parse('2026-11-24T12:00:00Z');
    const clock = { ...systemClock, now: () => now };
    const { accounts: people } = await openAccounts({
      configured: configured as never,
      file: join(data, 'accounts.json'),
      adminPassword: undefined,
      clock,
    });
    const sessions = new Sessions({
      file: join(data, 'sessions.json'),
      accounts: people,
      limits: () => ({ sessionIdleSeconds: 3600, sessionSeconds: 86_400, sessionsPerAccount: 3, ...limits }),
      clock,
      log: pino({ level: 'silent' }),
    });
    await sessions.load();
    const account = await people.verify('boss', passwords.boss);
    const begin = async () =>
      (await sessions.begin(account as never, { address: '192.0.2.1', browser: 'Firefox' })) ?? '';
    const pass = (seconds: number) => (now += seconds * 1000);
    return { data, sessions, people, begin, pass };
  };
  const plain = (password: string, role = 'admin') => [{ username: 'boss', password, role }];

  test('survive a kill, and the file holds no token', async (t) => {
    const { data, begin } = await open(t);
    const token = await begin();
    const text = await readFile(join(data, 'sessions.json'), 'utf8');
    assert.ok(!text.includes(token));
    assert.equal((await (await open(t, boss, data)).sessions.find(token))?.account.username, 'boss');
  });

  test('end by a restart with another password, role, or without the account', async (t) => {
    const { data, begin } = await open(t, plain(passwords.boss));
    const token = await begin();
    const file = join(data, 'sessions.json');
    const kept = await readFile(file, 'utf8');
    for (const [next, stays] of [
      [plain(passwords.boss), true],
      [plain('another secret'), false],
      [plain(passwords.boss, 'read'), false],
      [accounts.slice(0, 1), false],
    ] as const) {
      await writeFile(file, kept);
      assert.equal((await (await open(t, next, data)).sessions.find(token)) !== undefined, stays);
    }
  });

  test('end when other accounts come into force, with what goes on in them', async (t) => {
    const { people, sessions, begin } = await open(t);
    const token = await begin();
    const [session] = sessions.list('boss');
    let left = false;
    if (session !== undefined) sessions.untilEnd(session, () => (left = true));
    (await people.prepare(plain('another secret') as never)).commit();
    assert.equal(left, true);
    assert.equal(await sessions.find(token), undefined);
  });

  test('end after some time without use, and at their greatest age', async (t) => {
    const { sessions, begin, pass } = await open(t);
    const token = await begin();
    for (let hour = 0; hour < 23; hour += 1) {
      pass(3600);
      assert.notEqual(await sessions.find(token), undefined, `hour ${hour}`);
    }
    pass(3601);
    assert.equal(await sessions.find(token), undefined);
    const idle = await begin();
    pass(3601);
    assert.equal(await sessions.find(idle), undefined);
  });

  test('are bounded for each account: the one unused longest ends', async (t) => {
    const { sessions, begin, pass } = await open(t);
    const tokens: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      tokens.push(await begin());
      pass(1);
    }
    const found = await Promise.all(tokens.map(async (token) => (await sessions.find(token)) !== undefined));
    assert.deepEqual(found, [false, true, true, true]);
  });

  test('that cannot be read are given up, and the server starts', async (t) => {
    const data = await mkdtemp(join(tmpdir(), 'postern-sessions-'));
    t.after(() => rm(data, { recursive: true, force: true }));
    await writeFile(join(data, 'sessions.json'), '{"sessions": [{');
    const { sessions, begin } = await open(t, boss, data);
    assert.notEqual(await sessions.find(await begin()), undefined);
  });
});

test('a browser is named by its User-Agent, whatever that is', () => {
  const named = (text: string) => browserName(text);
  assert.equal(named('Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0'), 'Firefox on Linux');
  assert.equal(
    named('Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0'),
    'Edge on Windows',
  );
  assert.equal(
    named('Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) AppleWebKit/605 Version/18.0 Safari/604.1'),
    'Safari on iPhone',
  );
  assert.equal(named('<script>'), 'Unknown program');
});
