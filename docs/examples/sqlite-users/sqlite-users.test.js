import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
// @ts-ignore: the types of Node.js 20 do not have it
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { parseAddress as parse } from 'postern/plugin';
import { drive } from 'postern/testing';
import { sqliteUsers } from './index.js';

const password = 'correct horse battery';

/** A site with anna, who has an alias and the catch-all, and bob, who is disabled. */
async function filledSite(/** @type {import('node:test').TestContext} */ t, options = {}) {
  const site = await drive(sqliteUsers, { test: t, ...options });
  await site.command(['sqlite', 'add', 'anna@example.org'], { answers: [password] });
  await site.command(['sqlite', 'add', 'bob@example.org'], { answers: [password] });
  await site.command(['sqlite', 'alias', 'anna@example.org', 'sales@example.org']);
  change(site, "UPDATE users SET disabled = 1, quota = 1000 WHERE username = 'bob@example.org'");
  return site;
}

function change(/** @type {import('postern/testing').DrivenSite} */ site, /** @type {string} */ statement) {
  const database = new DatabaseSync(join(site.folder, 'sqlite-users', 'users.sqlite'));
  database.exec(statement);
  database.close();
}

/** @returns {import('postern/plugin').Directory} */
const directoryOf = (/** @type {import('postern/testing').DrivenSite} */ site) =>
  /** @type {any} */ (site.services['directory']);

test('a user gets mail under the name, an alias and with a detail; others do not', async (t) => {
  const site = await filledSite(t);
  for (const to of ['anna@example.org', 'ANNA@Example.ORG', 'Sales@example.org', 'anna+news@example.org']) {
    const found = await directoryOf(site).resolve(parse(to));
    assert.equal(found?.username, 'anna@example.org', to);
  }
  assert.deepEqual(await directoryOf(site).find('bob@example.org'), {
    username: 'bob@example.org',
    address: parse('bob@example.org'),
    aliases: [],
    quota: 1000,
    disabled: true,
  });
  assert.equal(await directoryOf(site).find('sales@example.org'), undefined, 'an alias is no name');
  assert.equal(await directoryOf(site).resolve(parse('eve@example.org')), undefined);
  await site.command(['sqlite', 'alias', 'anna@example.org', '@example.org']);
  const caught = await directoryOf(site).resolve(parse('eve@example.org'));
  assert.equal(caught?.username, 'anna@example.org');
});

test('a password counts for its user alone, and not while the user is disabled', async (t) => {
  const users = directoryOf(await filledSite(t));
  assert.equal((await users.authenticate('anna@example.org', password))?.username, 'anna@example.org');
  assert.equal(await users.authenticate('anna@example.org', `${password} `), undefined);
  assert.equal(await users.authenticate('anna@example.org', ''), undefined);
  assert.equal(await users.authenticate('sales@example.org', password), undefined);
  assert.equal(await users.authenticate('bob@example.org', password), undefined);
  assert.equal(await users.authenticate('eve@example.org', password), undefined);
});

test('what a client says is never part of a statement', async (t) => {
  const site = await filledSite(t);
  const users = directoryOf(site);
  const names = [
    "' OR '1'='1",
    "anna@example.org'; DROP TABLE users; --",
    'anna@example.org\0',
    'anna@example.org\0@example.org',
    '%@example.org',
    '_nna@example.org',
    'ａｎｎａ@example.org',
    '\u{d800}@example.org',
    '__proto__',
    '',
    'a'.repeat(1_000_000),
  ];
  for (const name of names) {
    assert.equal(await users.find(name), undefined, name.slice(0, 40));
    assert.equal(await users.authenticate(name, password), undefined, name.slice(0, 40));
    /** @type {any} */
    const address = { ...parse('eve@example.org'), local: name, address: `"${name}"@example.org` };
    assert.equal(await users.resolve(address), undefined, name.slice(0, 40));
  }
  assert.equal((await users.list()).length, 2);
});

test('passwords are hashed, each with a salt of its own, in a folder that is not for others', async (t) => {
  const site = await filledSite(t);
  const folder = join(site.folder, 'sqlite-users');
  const files = await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), 'latin1')));
  assert.equal(files.join('').includes(password), false);
  const keys = new Set(files.join('').match(/scrypt:32768:[0-9a-f]{32}:[0-9a-f]{64}/g));
  assert.equal(keys.size, 2, 'one password of two users');
  assert.equal((await stat(folder)).mode & 0o077, 0);
});

test('commands add users, change passwords and remove, and refuse what is wrong', async (t) => {
  const site = await filledSite(t);
  const run = (/** @type {string[]} */ words, answer = '') => site.command(['sqlite', ...words], { answers: [answer] });
  assert.match((await run(['add', 'anna@example.org'], password)).error, /anna@example\.org is there already/);
  assert.match((await run(['add', 'dora@example.org'], 'short')).error, /at least 8/);
  assert.match((await run(['add', 'nonsense'], password)).error, /An address is/);
  assert.match((await run(['alias', 'dora@example.org', 'd@example.org'])).error, /dora@example\.org is no user/);
  assert.match((await run(['drop'])).error, /^Usage: postern sqlite add NAME/);
  assert.match((await run(['password', 'anna@example.org'], 'another one')).output, /anna@example\.org: done/);
  const users = directoryOf(site);
  assert.equal(await users.authenticate('anna@example.org', password), undefined);
  assert.equal((await users.authenticate('anna@example.org', 'another one'))?.username, 'anna@example.org');
  await run(['remove', 'anna@example.org']);
  assert.deepEqual(
    (await users.list()).map(({ username }) => username),
    ['bob@example.org'],
  );
  assert.equal(await users.resolve(parse('sales@example.org')), undefined, 'its aliases are gone, too');
});

test('users are there after a restart', async (t) => {
  const data = await mkdtemp(join(tmpdir(), 'sqlite-users-'));
  t.after(() => rm(data, { recursive: true }));
  const before = await filledSite(t, { data });
  await before.close();
  const after = await drive(sqliteUsers, { test: t, data });
  assert.deepEqual((await directoryOf(after).find('anna@example.org'))?.aliases, ['sales@example.org']);
});

test('a database that cannot be read is an error of the server, and no answer about the user', async (t) => {
  const site = await filledSite(t);
  change(site, 'DROP TABLE aliases');
  assert.throws(() => directoryOf(site).resolve(parse('eve@example.org')), /no such table/);
  change(site, "UPDATE users SET password = 'plain'");
  await assert.rejects(directoryOf(site).authenticate('anna@example.org', password));
});
