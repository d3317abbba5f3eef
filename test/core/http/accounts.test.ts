import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { openAccounts, ownerUsername, readablePassword } from '../../../core/http/accounts.js';
import { parseBasic } from '../../../core/http/access.js';
import { accounts, passwords } from './opened-shell.js';

let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'postern-accounts-'));
});
after(() => rm(folder, { recursive: true, force: true }));

const open = (file: string, extra: object = {}) =>
  openAccounts({
    configured: undefined,
    file: join(folder, file),
    adminPassword: undefined,
    clock: systemClock,
    ...extra,
  });

test('the first start makes admin with a password that is shown once and stored as a hash', async () => {
  const first = await open('a.json');
  const password = first.generatedPassword ?? '';
  assert.deepEqual(await first.accounts.verify('admin', password), { username: 'admin', role: 'admin' });
  assert.equal(first.accounts.chosen, false);
  await assert.rejects(stat(join(folder, 'a.json')), 'a start that fails now leaves no password that nobody has seen');
  await first.keep();
  const text = await readFile(join(folder, 'a.json'), 'utf8');
  assert.equal(text.includes(password), false);
  assert.equal((await stat(join(folder, 'a.json'))).mode & 0o077, 0);
  const second = await open('a.json');
  assert.equal(second.generatedPassword, undefined);
  assert.equal((await second.accounts.verify('admin', password))?.role, 'admin');
  assert.equal(await second.accounts.verify('admin', `${password}x`), undefined);
  assert.equal(await second.accounts.verify('nobody', password), undefined);
});

test('a given admin password holds at every start', async () => {
  const { accounts: opened, generatedPassword } = await open('a.json', { adminPassword: 'a given password' });
  assert.equal(generatedPassword, undefined);
  assert.equal(opened.chosen, true);
  assert.equal((await opened.verify('admin', 'a given password'))?.role, 'admin');
});

test('an admin password that is too short, or the first that everybody tries, stops the start', async () => {
  for (const adminPassword of ['short', 'changeme123']) {
    await assert.rejects(open('a.json', { adminPassword }), {
      name: 'StartError',
      message: /^POSTERN_ADMIN_PASSWORD /,
    });
  }
});

test('configured accounts take the place of the file', async () => {
  const { accounts: opened, generatedPassword } = await open('none.json', { configured: accounts });
  assert.equal(generatedPassword, undefined);
  assert.equal((await opened.verify('reader', passwords.reader))?.role, 'read');
  assert.equal(await opened.verify('admin', ''), undefined);
  await assert.rejects(stat(join(folder, 'none.json')));
});

test('a broken accounts file stops the start and is left as it is', async () => {
  await writeFile(join(folder, 'broken.json'), '{"accounts":');
  await assert.rejects(open('broken.json'), { name: 'StartError', message: /broken\.json/ });
  assert.equal(await readFile(join(folder, 'broken.json'), 'utf8'), '{"accounts":');
});

test('commands on this machine sign in with the token of the lock file', async () => {
  const { accounts: opened } = await open('none.json', { configured: [], ownerToken: 'token-of-this-run' });
  assert.equal((await opened.verify(ownerUsername, 'token-of-this-run'))?.role, 'admin');
  assert.equal(await opened.verify(ownerUsername, 'token-of-another'), undefined);
});

test('made passwords are readable and never the same', () => {
  assert.match(readablePassword(), /^([a-hjkmnp-z346789]{5}-){3}[a-hjkmnp-z346789]{5}$/);
  assert.notEqual(readablePassword(), readablePassword());
});

test('a password may hold colons and letters of any script', () => {
  const field = `Basic ${Buffer.from('anna:pä:ß:').toString('base64')}`;
  assert.deepEqual(parseBasic(field), { username: 'anna', password: 'pä:ß:' });
});

test('other accounts come into force in one step, and the way back brings the old ones', async () => {
  const { accounts: opened } = await open('none.json', { configured: accounts });
  assert.equal((await opened.verify('reader', passwords.reader))?.role, 'read');
  const next = await opened.prepare([{ username: 'reader', password: 'another', role: 'operate' }]);
  assert.equal((await opened.verify('reader', passwords.reader))?.role, 'read');
  const back = next.commit();
  assert.equal(await opened.verify('reader', passwords.reader), undefined);
  assert.equal((await opened.verify('reader', 'another'))?.role, 'operate');
  back();
  assert.equal(await opened.verify('reader', 'another'), undefined);
  assert.equal((await opened.verify('reader', passwords.reader))?.role, 'read');
});

test('without configured accounts the file counts; when there is none, a running server keeps what it has', async () => {
  const { generatedPassword = '', keep } = await open('later.json');
  await keep();
  const { accounts: opened } = await open('later.json', { configured: accounts });
  (await opened.prepare(undefined)).commit();
  assert.equal((await opened.verify('admin', generatedPassword))?.role, 'admin');
  assert.equal(opened.chosen, false);
  const { accounts: without } = await open('missing.json', { configured: accounts });
  await assert.rejects(without.prepare(undefined), { name: 'StartError', message: /a restart makes it/ });
  await assert.rejects(stat(join(folder, 'missing.json')));
});

test('very many accounts with plain passwords neither stop the start nor a change of them', async () => {
  const many = (word: string) =>
    Array.from({ length: 140 }, (_, number) => ({
      username: `u${number}`,
      password: `${word}${number}`,
      role: 'read' as const,
    }));
  const { accounts: opened } = await open('none.json', { configured: many('a') });
  for (const word of ['b', 'c', 'd']) (await opened.prepare(many(word))).commit();
  assert.equal((await opened.verify('u7', 'd7'))?.username, 'u7');
  assert.equal(await opened.verify('u7', 'a7'), undefined);
  (await opened.prepare([])).commit();
});
