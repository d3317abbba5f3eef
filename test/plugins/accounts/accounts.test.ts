import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { accountList } from '../../../core/contracts/accounts.js';
import { provide } from '../../../core/contracts/service.js';
import { openAccounts } from '../../../core/http/accounts.js';
import { systemClock } from '../../../core/clock.js';
import { accounts as plugin } from '../../../plugins/accounts/index.js';
import type { CommandFlag } from '../../../core/cli/command.js';
import type { OwnerCall } from '../../../core/contracts/server.js';
import { basic } from '../../core/http/opened-shell.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { configurationOf, openPluginSite } from '../plugin-site.js';

const password = 'four long words';

async function open(t: TestContext) {
  const site = await openPluginSite(t, plugin, {
    configuration: configurationOf([]),
    lent: (shell) => [provide(accountList, shell.accounts)],
  });
  const call = async (method: string, path: string, body?: unknown, as = 'boss') => {
    const answer = await site.get(path, {
      method,
      as,
      headers: { Accept: 'application/json', ...(body !== undefined && { 'Content-Type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: JSON.parse((await answer.text()) || '{}') as Record<string, unknown> };
  };
  const signsIn = async (username: string, given: string) =>
    (await site.get('/items', { headers: { authorization: basic(username, given) } })).status;
  return { site, call, signsIn };
}

test('an account is added, changed and removed, each at once, and the file holds no password', async (t) => {
  const { site, call, signsIn } = await open(t);
  const added = await call('POST', '/accounts', { username: 'ben', password, role: 'read' });
  assert.deepEqual([added.status, added.body], [201, { username: 'ben', role: 'read', source: 'data folder' }]);
  assert.equal(await signsIn('ben', password), 200);
  const text = await readFile(join(site.data, 'accounts.json'), 'utf8');
  assert.match(text, /scrypt\$/);
  assert.ok(!text.includes(password));
  assert.equal((await call('PATCH', '/accounts/ben', { password: 'another four words' })).status, 200);
  assert.deepEqual([await signsIn('ben', password), await signsIn('ben', 'another four words')], [401, 200]);
  assert.equal((await call('PATCH', '/accounts/ben', { role: 'admin' })).body['role'], 'admin');
  assert.equal((await call('DELETE', '/accounts/ben')).status, 200);
  assert.equal(await signsIn('ben', 'another four words'), 401);
  assert.equal((await call('GET', '/accounts/ben')).status, 404);
  assert.deepEqual(
    site.audit.map(({ action }) => action),
    ['add account', 'change account', 'change account', 'remove account'],
  );
  assert.ok(!JSON.stringify(site.audit).includes('four'));
});

test('a change ends the sessions of the account, and of no other', async (t) => {
  const { site, call } = await open(t);
  await call('POST', '/accounts', { username: 'ben', password, role: 'read' });
  const cookieOf = async (username: string, given: string) => {
    const body = new URLSearchParams({ username, password: given });
    const answer = await site.get('/sign-in', { as: null, method: 'POST', body });
    return answer.headers.get('set-cookie')?.split(';')[0] ?? '';
  };
  const [ben, boss] = [await cookieOf('ben', password), await cookieOf('boss', 'boss-secret')];
  const statusOf = async (Cookie: string) => (await site.get('/items', { as: null, headers: { Cookie } })).status;
  assert.deepEqual([await statusOf(ben), await statusOf(boss)], [200, 200]);
  await call('PATCH', '/accounts/ben', { role: 'operate' });
  assert.deepEqual([await statusOf(ben), await statusOf(boss)], [401, 200]);
});

test('configured accounts are shown and refuse changes; bad names, passwords and roles get a clear answer', async (t) => {
  const { site, call } = await open(t);
  const { accounts } = (await call('GET', '/accounts')).body as { accounts: { username: string; source: string }[] };
  assert.deepEqual(
    accounts.map(({ username, source }) => `${username} ${source}`),
    ['boss configuration', 'operator configuration', 'reader configuration'],
  );
  const refused = [
    ['PATCH', '/accounts/reader', { role: 'admin' }, 409],
    ['DELETE', '/accounts/boss', undefined, 409],
    ['POST', '/accounts', { username: 'boss', password, role: 'read' }, 409],
    ['POST', '/accounts', { username: 'postern-owner', password, role: 'read' }, 422],
    ['POST', '/accounts', { username: '../x', password, role: 'read' }, 422],
    ['POST', '/accounts', { username: 'ben', password: 'short', role: 'read' }, 422],
    ['POST', '/accounts', { username: 'ben', password, role: 'root' }, 422],
    ['PATCH', '/accounts/nobody', { role: 'read' }, 404],
    ['PATCH', '/accounts/reader', {}, 422],
  ] as const;
  for (const [method, path, body, status] of refused) {
    assert.equal((await call(method, path, body)).status, status, `${method} ${path} ${JSON.stringify(body)}`);
  }
  assert.equal((await call('GET', '/accounts', undefined, 'operator')).status, 403);
  assert.match(await site.page('/accounts'), /read-only here/);
  assert.doesNotMatch(await site.page('/accounts/boss'), /New password/);
});

test('the last admin cannot be removed or lose the role; of two at once one stays', async (t) => {
  const file = join(await temporaryFolder(t), 'accounts.json');
  const {
    accounts,
    generatedPassword = '',
    keep,
  } = await openAccounts({
    configured: undefined,
    file,
    adminPassword: undefined,
    clock: systemClock,
  });
  await keep();
  await assert.rejects(accounts.remove('admin'), { problem: 'conflict' });
  await assert.rejects(accounts.change('admin', { role: 'operate' }), { problem: 'conflict' });
  assert.equal((await accounts.verify('admin', generatedPassword))?.role, 'admin');
  await accounts.add({ username: 'ben', role: 'admin', password });
  const results = await Promise.allSettled([accounts.remove('admin'), accounts.remove('ben')]);
  assert.deepEqual(results.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
});

test('the admin of the first start counts only while nobody is configured; who was added stays', async (t) => {
  const file = join(await temporaryFolder(t), 'accounts.json');
  const first = await openAccounts({ configured: undefined, file, adminPassword: undefined, clock: systemClock });
  await first.keep();
  await first.accounts.add({ username: 'ben', role: 'read', password });
  const configured = [{ username: 'boss', password: 'of the configuration', role: 'admin' as const }];
  const { accounts } = await openAccounts({ configured, file, adminPassword: undefined, clock: systemClock });
  assert.deepEqual(
    accounts.list().map(({ username }) => username),
    ['ben', 'boss'],
  );
  (await accounts.prepare(undefined)).commit();
  assert.deepEqual(
    accounts.list().map(({ username }) => username),
    ['admin', 'ben'],
  );
});

test('the command does the same, without a server and with one', async (t) => {
  const data = await temporaryFolder(t);
  const printed: string[] = [];
  const [command] = plugin.commands;
  assert.ok(command);
  const run = (args: readonly string[], owner?: OwnerCall, flags: readonly CommandFlag[] = []) =>
    command.run({
      args,
      flags: new Set(flags),
      values: {},
      options: {},
      configuration: { data, domains: ['localhost'], hostname: 'mx1' },
      terminal: {
        interactive: false,
        print: (text) => void printed.push(text),
        ask: () => Promise.resolve(''),
        askSecret: () => Promise.resolve(password),
      },
      clock: systemClock,
      owner,
    });
  await run(['add', 'ben', 'admin']);
  await run(['list']);
  assert.ok(printed.includes('ben  (admin; data folder)'), printed.join('\n'));
  await assert.rejects(run(['remove', 'ben']), /last admin/);
  await assert.rejects(run(['role', 'ben', 'read']), /last admin/);
  await run(['add', 'anna', 'admin']);
  await run(['role', 'ben', 'operate']);
  await run(['list']);
  assert.ok(printed.includes('ben  (operate; data folder)'), printed.join('\n'));
  printed.length = 0;
  await run(['list'], undefined, ['json']);
  const listed = JSON.parse(printed.join('')) as readonly object[];
  assert.deepEqual(listed, [
    { username: 'anna', role: 'admin', source: 'data folder' },
    { username: 'ben', role: 'operate', source: 'data folder' },
  ]);
  printed.length = 0;
  await run(['role', 'ben', 'read'], undefined, ['json']);
  await run(['add', 'eva', 'read'], undefined, ['json']);
  await run(['remove', 'eva'], undefined, ['json']);
  assert.deepEqual(
    printed.map((text): unknown => JSON.parse(text)),
    [
      { username: 'ben', role: 'read', source: 'data folder' },
      { username: 'eva', role: 'read', source: 'data folder' },
      { removed: 'eva' },
    ],
  );
  await assert.rejects(run(['role', 'ben', 'king']), /Usage:/);
  await assert.rejects(run(['add', 'carl']), /Usage:/);
  await assert.rejects(run(['add', 'carl', 'king']), /Usage:/);
  await assert.rejects(run(['toString']), /Usage:/);
  const calls: string[] = [];
  const owner: OwnerCall = (method, path) => {
    calls.push(`${method} ${path}`);
    return Promise.resolve(
      method === 'DELETE'
        ? { status: 409, body: { detail: 'No.' } }
        : { status: 200, body: { username: 'a b', role: 'read', source: 'data folder' } },
    );
  };
  await run(['password', 'a b'], owner);
  await assert.rejects(run(['remove', 'ben'], owner), /^StartError: No\.$/);
  assert.deepEqual(calls, ['PATCH /accounts/a%20b', 'DELETE /accounts/ben']);
});
