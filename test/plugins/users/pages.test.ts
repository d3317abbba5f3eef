import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cheapHash } from '../../core/auth/cheap-hash.js';
import { openServer, type UsersServer } from './users-server.js';
import { user } from './users-site.js';

const anna = user('anna@example.org', {
  aliases: ["o'neil@example.org", 'info@example.org'],
  quota: 1024,
  passwordHash: cheapHash('anna-secret'),
});
const users = [anna, user('postmaster@example.org')];

async function page({ http }: UsersServer, path: string, as = 'boss') {
  const answer = await http.get(path, { as, headers: { Accept: 'text/html' } });
  return { status: answer.status, text: await answer.text() };
}

async function post({ http }: UsersServer, path: string, fields: Record<string, string>) {
  const answer = await http.get(path, {
    method: 'POST',
    headers: { Accept: 'text/html', 'Content-Type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams(fields).toString(),
  });
  return { status: answer.status, location: answer.headers.get('location') ?? '', text: await answer.text() };
}

describe('the pages of users', () => {
  it('list them with their state for admins, by name alone for others', async (test) => {
    const server = await openServer(test, { users });
    const forAdmin = await page(server, '/users');
    assert.equal(forAdmin.status, 200);
    assert.match(forAdmin.text, /href="\/users\/anna%40example\.org"/);
    assert.match(forAdmin.text, /info@example\.org/);
    assert.match(forAdmin.text, /Add a user/);
    const forReader = await page(server, '/users', 'reader');
    assert.match(forReader.text, /anna@example\.org/);
    assert.doesNotMatch(forReader.text, /info@example\.org|Add a user|href="\/users\/anna/);
  });

  it('filter, and show what was asked without taking it for markup', async (test) => {
    const server = await openServer(test, { users });
    const { text } = await page(server, `/users?q=${encodeURIComponent('<script>alert(1)</script>')}`);
    assert.doesNotMatch(text, /<script>alert/);
    assert.match(text, /No users found/);
    assert.doesNotMatch((await page(server, '/users?q=anna')).text, /postmaster@example\.org/);
  });

  it('lead through a list that is longer than a page', async (test) => {
    const many = Array.from({ length: 150 }, (_, index) => user(`u${String(index).padStart(3, '0')}@example.org`));
    const server = await openServer(test, { users: [...users, ...many] });
    const first = await page(server, '/users');
    const next = /rel="next" href="([^"]*)"/.exec(first.text)?.[1] ?? '';
    const second = await page(server, next.replaceAll('&amp;', '&'));
    assert.equal(second.status, 200);
    assert.match(second.text, /u149@example\.org/);
    assert.doesNotMatch(second.text, /u000@example\.org/);
    assert.match(second.text, /rel="prev"/);
  });

  it('show one user with what can be changed, for admins', async (test) => {
    const server = await openServer(test, { users });
    const { status, text } = await page(server, '/users/anna%40example.org');
    assert.equal(status, 200);
    assert.match(text, /href="\/store\/example\.org\/anna"/);
    assert.match(text, /mailbox and its messages stay/i);
    assert.doesNotMatch(text, /scrypt/);
    assert.equal((await page(server, '/users/anna%40example.org', 'operator')).status, 403);
    assert.equal((await page(server, '/users/nobody%40example.org')).status, 404);
  });

  it('add a user without JavaScript, and tell so on the page of the user', async (test) => {
    const server = await openServer(test, { users });
    const fields = {
      username: 'berta',
      password: 'a long enough secret',
      aliases: 'sales\r\n help@example.net ',
      quota: '',
    };
    const { status, location } = await post(server, '/users', fields);
    assert.equal(status, 303);
    assert.match(location, /^\/users\/berta%40example\.org\?notice=/);
    assert.match((await page(server, location)).text, /berta@example\.org was added/);
    const record = (await server.stored()).find(({ username }) => username === 'berta@example.org');
    assert.deepEqual(record?.aliases, ['sales@example.org', 'help@example.net']);
    assert.equal(record?.quota, null);
  });

  it('add a user without a password when the field was left empty', async (test) => {
    const server = await openServer(test, { users });
    assert.equal((await post(server, '/users', { username: 'b', password: '', aliases: '', quota: '' })).status, 303);
    assert.equal((await server.stored()).find(({ username }) => username === 'b@example.org')?.passwordHash, null);
  });

  it('never send back a password that was refused', async (test) => {
    const server = await openServer(test, { users });
    const { status, text } = await post(server, '/users', { username: 'b', password: 'sh0rtpwd' });
    assert.equal(status, 422);
    assert.match(text, /at least 10 characters/);
    assert.doesNotMatch(text, /sh0rtpwd/);
  });

  it('bring a refused form back with every message and what was written, but for the password', async (test) => {
    const server = await openServer(test, { users });
    const fields = { username: 'b c', password: 'sh0rtpwd', aliases: 'fine\r\nnot@fine@', quota: 'much' };
    const { status, text } = await post(server, '/users', fields);
    assert.equal(status, 422);
    assert.match(text, /<h1>Users<\/h1>/);
    for (const name of ['username', 'password', 'aliases', 'quota']) {
      assert.match(text, new RegExp(`name="${name}"[^>]* aria-invalid="true"`), name);
      assert.match(text, new RegExp(`<p class="error" id="field-${name}-error">`), name);
    }
    assert.match(text, /name="username"[^>]* value="b c"/);
    assert.match(text, />\nfine\r?\nnot@fine@<\/textarea>/);
    assert.match(text, /name="quota"[^>]* value="much"/);
    assert.doesNotMatch(text, /sh0rtpwd/);
    const taken = await post(server, '/users', { username: 'anna', quota: '5 MB' });
    assert.equal(taken.status, 409);
    assert.match(taken.text, /role="alert"/);
    assert.match(taken.text, /name="quota"[^>]* value="5 MB"/);
    const changed = await post(server, '/users/anna%40example.org', {
      _method: 'PATCH',
      aliases: '@',
      quota: 'x',
      disabled: 'true',
    });
    assert.equal(changed.status, 422);
    assert.match(changed.text, /<h1>anna@example\.org<\/h1>/);
    assert.match(changed.text, /id="field-aliases-error"[^]*id="field-quota-error"/);
    assert.match(changed.text, /<option value="true" selected>/);
    assert.match(
      (await post(server, '/users/anna%40example.org', { _method: 'PATCH', password: 'short' })).text,
      /id="field-password-error"/,
    );
  });

  it('change a user by forms: one for the addresses, one for the password', async (test) => {
    const server = await openServer(test, { users });
    const path = '/users/anna%40example.org';
    const changed = await post(server, path, {
      _method: 'PATCH',
      aliases: 'one\ntwo',
      quota: '2 KB',
      disabled: 'true',
    });
    assert.equal(changed.status, 303);
    const [record] = await server.stored();
    assert.deepEqual(record?.aliases, ['one@example.org', 'two@example.org']);
    assert.equal(record?.quota, 2048);
    assert.equal(record?.disabled, true);
    assert.equal(record?.passwordHash, anna.passwordHash);
    const empty = await post(server, path, { _method: 'PATCH', password: '' });
    assert.equal(empty.status, 422, 'an empty field is no new password');
    const set = await post(server, path, { _method: 'PATCH', password: 'another long secret' });
    assert.equal(set.status, 303);
    assert.match((await page(server, set.location)).text, /has a new password/);
    assert.notEqual((await server.stored())[0]?.passwordHash, anna.passwordHash);
  });

  it('remove a user only after a question, and say that the mailbox stays', async (test) => {
    const server = await openServer(test, { users });
    const path = '/users/anna%40example.org';
    const asked = await post(server, path, { _method: 'DELETE' });
    assert.match(asked.text, /The mailbox and its messages stay/);
    assert.equal((await server.stored()).length, 2);
    const done = await post(server, path, { _method: 'DELETE', confirm: 'yes' });
    assert.equal(done.status, 303);
    assert.match((await page(server, done.location)).text, /The mailbox is still there/);
    assert.equal((await server.stored()).length, 1);
  });
});
