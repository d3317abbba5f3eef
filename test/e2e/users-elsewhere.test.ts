import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { scryptSync } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { examplesOf } from '../support/document-examples.js';
import { HttpClient } from '../support/http-client.js';
import { runPostern, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const listeners = `[{ port: 0 }, { mode: 'submission', port: 0, allowPlaintextAuth: true }]`;
const mapped = `
import { definePlugin, directory, parseAddress } from 'postern/plugin';
export default definePlugin({
  name: 'staff',
  provides: { directory },
  setup() {
    const user = (username, aliases = []) => ({ username, address: parseAddress(username), aliases, quota: null, disabled: false });
    const users = [user('anna@localhost', ['team@localhost']), user('postmaster@localhost')];
    const find = async (name) => users.find(({ username }) => username === name);
    const resolve = async ({ local, domain }) => {
      if (local === 'broken') throw new Error('the database is away');
      return users.find(({ username, aliases }) => [username, ...aliases].includes(local.toLowerCase() + '@' + domain));
    };
    const authenticate = async (name, password) => (password === 'the password of anna' ? find(name) : undefined);
    return { directory: { source: 'staff.sqlite', find, resolve, list: async () => users, authenticate } };
  },
});`;

const plain = (name: string, password: string): string =>
  `AUTH PLAIN ${Buffer.from(`\0${name}\0${password}`).toString('base64')}`;

async function serverWith(t: Parameters<typeof temporaryFolder>[0], code: string, options = '{}') {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'staff'));
  await writeFile(join(folder, 'staff', 'index.js'), code);
  const config = `{ smtp: { listeners: ${listeners} }, sitePlugins: ['./staff'], plugins: { staff: ${options} } }`;
  const server = await ServerProcess.start(t, { folder, config });
  return { folder, server, admin: HttpClient.admin(server.http) };
}

async function lookedAt({ folder, server, admin }: Awaited<ReturnType<typeof serverWith>>): Promise<void> {
  const client = await SmtpClient.greeted({ port: server.smtpPort });
  await client.command('MAIL FROM:<ben@elsewhere.example>');
  const rcpt = async (address: string) => (await client.command(`RCPT TO:<${address}>`)).code;
  assert.deepEqual(
    [
      await rcpt('anna@localhost'),
      await rcpt('Team@localhost'),
      await rcpt('postmaster'),
      await rcpt('ghost@localhost'),
    ],
    [250, 250, 250, 550],
  );
  assert.equal((await client.data('Subject: x\r\n\r\nhello')).code, 250);
  client.close();

  const submission = await server.portOf('submission');
  const signedIn = await SmtpClient.greeted({ port: submission });
  assert.equal((await signedIn.command(plain('anna@localhost', 'wrong'))).code, 535);
  assert.equal((await signedIn.command(plain('anna@localhost', 'the password of anna'))).code, 235);
  assert.match((await signedIn.command('MAIL FROM:<boss@localhost>')).raw, /^550 5\.7\.1 /);
  assert.equal((await signedIn.command('MAIL FROM:<team@localhost>')).code, 250);
  signedIn.close();

  const { details, ...listed } = (await admin.json('/users')) as { readonly details: readonly object[] };
  assert.deepEqual(listed, {
    source: 'staff.sqlite',
    count: 2,
    users: ['anna@localhost', 'postmaster@localhost'],
    nextCursor: null,
  });
  assert.equal(details.length, 2);
  assert.deepEqual(await admin.json('/users/anna@localhost/exists'), {
    source: 'staff.sqlite',
    username: 'anna@localhost',
    exists: true,
  });
  const json = { username: 'anna@localhost', password: 'the password of anna' };
  assert.equal(((await admin.json('/users/authenticate', { json })) as { authenticated: boolean }).authenticated, true);
  assert.match(await admin.page('/users'), /anna@localhost/);
  await admin.json('/users', { json: { username: 'new@localhost' } }, 405);
  assert.match(JSON.stringify(await admin.json('/store/localhost/anna')), /INBOX/);
  const { code, stdout } = await runPostern(['user', 'list'], { cwd: folder });
  assert.equal(code, 0);
  assert.match(stdout, /^anna@localhost {2}\(aliases: team@localhost\)$/m);
}

test('sign-in, recipients, senders, pages, calls and the command work over the directory of another plugin', async (t) => {
  const site = await serverWith(t, mapped);
  await lookedAt(site);
  const client = await SmtpClient.greeted({ port: site.server.smtpPort });
  await client.command('MAIL FROM:<ben@elsewhere.example>');
  assert.equal((await client.command('RCPT TO:<broken@localhost>')).code, 451);
  client.close();
});

const withoutSqlite = isBuiltin('node:sqlite') ? false : 'This Node.js has no node:sqlite.';

test('the users of docs/plugins.md are read from SQLite', { skip: withoutSqlite }, async (t) => {
  const file = join(await temporaryFolder(t), 'staff.sqlite');
  const hash = scryptSync('the password of anna', 'salt', 32).toString('hex');
  const tables = `
    CREATE TABLE users (username TEXT PRIMARY KEY, salt TEXT, hash TEXT, disabled INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE aliases (alias TEXT PRIMARY KEY, username TEXT NOT NULL REFERENCES users);
    INSERT INTO users VALUES ('anna@localhost', 'salt', '${hash}', 0), ('postmaster@localhost', NULL, NULL, 0);
    INSERT INTO aliases VALUES ('team@localhost', 'anna@localhost');
  `;
  const make = `import { DatabaseSync } from 'node:sqlite'; new DatabaseSync(process.argv[1]).exec(process.argv[2]);`;
  const made = spawnSync(process.execPath, ['--input-type=module', '--eval', make, file, tables], { encoding: 'utf8' });
  assert.equal(made.status, 0, made.stderr);
  const code = (await examplesOf('docs/plugins.md')).get('staff/index.js') ?? '';
  await lookedAt(await serverWith(t, code, JSON.stringify({ file })));
});
