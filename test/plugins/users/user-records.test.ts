import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isStartError } from '../../../core/problem.js';
import { openUserRecords } from '../../../plugins/users/user-records.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { isProblemNamed, openSite, user } from './users-site.js';

describe('the records of users', () => {
  it('are there again after the file is reopened', async (test) => {
    const { records, file } = await openSite(test);
    await records.add(user('anna@example.org', { aliases: ['info@example.org'], quota: 5 }));
    await records.add(user('berta@example.net', { disabled: true }));
    await records.remove('berta@example.net');
    const again = await openUserRecords(file);
    assert.deepEqual(again.list(), [user('anna@example.org', { aliases: ['info@example.org'], quota: 5 })]);
    assert.equal(again.named('info@example.org')?.username, 'anna@example.org');
    assert.equal(again.get('info@example.org'), undefined, 'an alias is not a user');
  });

  it('are listed by domain and then by local part', async (test) => {
    const { records } = await openSite(test);
    for (const name of ['b@example.org', 'a-b@example.org', 'z@example.net', 'a@example.org'])
      await records.add(user(name));
    assert.deepEqual(
      records.list().map(({ username }) => username),
      ['z@example.net', 'a@example.org', 'a-b@example.org', 'b@example.org'],
    );
    const before = records.list();
    assert.equal(records.list(), before, 'they are put in order once');
    await records.remove('a@example.org');
    assert.equal(records.list().length, 3);
    assert.equal(before.length, 4);
  });

  it('give every name to one user only, be it a name or an alias', async (test) => {
    const { records, file } = await openSite(test);
    await records.add(user('anna@example.org', { aliases: ['info@example.org'] }));
    await records.add(user('berta@example.org'));
    const before = await readFile(file, 'utf8');
    const taken = isProblemNamed('conflict');
    await assert.rejects(records.add(user('anna@example.org')), taken);
    await assert.rejects(records.add(user('info@example.org')), taken);
    await assert.rejects(records.add(user('carla@example.org', { aliases: ['anna@example.org'] })), taken);
    await assert.rejects(
      records.change('berta@example.org', (record) => ({ ...record, aliases: ['info@example.org'] })),
      taken,
    );
    assert.equal(await readFile(file, 'utf8'), before);
  });

  it('refuse to change or remove an unknown user', async (test) => {
    const { records } = await openSite(test);
    await assert.rejects(records.remove('anna@example.org'), isProblemNamed('not-found'));
    await assert.rejects(
      records.change('anna@example.org', (record) => record),
      isProblemNamed('not-found'),
    );
  });

  it('keep every one of a hundred changes at the same time, to one user and to many', async (test) => {
    const { records, file } = await openSite(test, { users: [user('anna@example.org')] });
    const numbers = Array.from({ length: 50 }, (_, index) => index);
    await Promise.all([
      ...numbers.map((number) =>
        records.change('anna@example.org', (record) => ({
          ...record,
          aliases: [...record.aliases, `a${number}@example.org`],
        })),
      ),
      ...numbers.map((number) => records.add(user(`u${number}@example.org`))),
    ]);
    const again = await openUserRecords(file);
    assert.equal(again.count, 51);
    assert.deepEqual(
      again.get('anna@example.org')?.aliases,
      numbers.map((number) => `a${number}@example.org`),
    );
  });

  const good = user('anna@example.org');
  const broken: Readonly<Record<string, string>> = {
    'half of a file': '{"users": [{"username": "an',
    'an empty file': '',
    'another document': '[]',
    'a key that nobody knows': JSON.stringify({ users: [{ ...good, quotta: 1 }] }),
    'a name that is no safe folder': JSON.stringify({ users: [{ ...good, username: '../anna@example.org' }] }),
    'a password in the clear': JSON.stringify({ users: [{ ...good, passwordHash: 'secret123456' }] }),
    'a name twice': JSON.stringify({ users: [good, user('b@example.org', { aliases: [good.username] })] }),
  };
  for (const [what, text] of Object.entries(broken)) {
    it(`do not open over ${what}: the error names the file, which stays as it is`, async (test) => {
      const folder = await temporaryFolder(test);
      const file = join(folder, 'users.json');
      await writeFile(file, text);
      await assert.rejects(openUserRecords(file), (error) => {
        assert.ok(isStartError(error) && error.message.includes(file), String(error));
        assert.ok(!error.message.includes('secret123456'), 'what stands there is not shown');
        return true;
      });
      assert.equal(await readFile(file, 'utf8'), text);
      assert.deepEqual(await readdir(folder), ['users.json']);
    });
  }

  it('have everybody whose addition was answered, wherever the process was killed', async (test) => {
    const folder = await temporaryFolder(test);
    const file = join(folder, 'users.json');
    const script = fileURLToPath(new URL('./adding-process.js', import.meta.url));
    const child = spawn(process.execPath, [script, file], { stdio: ['ignore', 'pipe', 'inherit'] });
    const exit = once(child, 'exit');
    const answered: string[] = [];
    for await (const line of createInterface(child.stdout)) {
      answered.push(line);
      if (answered.length === 25) child.kill('SIGKILL');
    }
    await exit;
    const names = new Set((await openUserRecords(file)).list().map(({ username }) => username));
    assert.ok(answered.length >= 25);
    assert.deepEqual(
      answered.filter((name) => !names.has(name)),
      [],
    );
  });
});
