import assert from 'node:assert/strict';
import { chown, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { skipWithoutRoot } from '../../support/account.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { setup } from './setup-run.js';

async function configured(t: TestContext): Promise<string> {
  const cwd = await temporaryFolder(t);
  await setup(cwd, 'init', 'example.org');
  return cwd;
}

interface Zone {
  readonly domain: string;
  readonly records: readonly { readonly name: string; readonly value: string }[];
}

describe('postern zone and postern dkim', () => {
  test('print again what init has printed, from the configuration and the keys', async (t) => {
    const cwd = await configured(t);
    const lines = (await setup(cwd, 'init', 'example.org')).split('\n').filter((line) => line.includes(' IN '));
    const zone = (await setup(cwd, 'zone')).split('\n').filter((line) => line.includes(' IN '));
    assert.deepEqual(zone, lines);
    assert.equal(await setup(cwd, 'zone', 'EXAMPLE.org'), await setup(cwd, 'zone'));
    const [json] = JSON.parse(await setup(cwd, 'zone', '--json')) as readonly Zone[];
    assert.deepEqual([json?.domain, json?.records.length], ['example.org', zone.length]);
    const table = await setup(cwd, 'zone', '--table');
    for (const { name, value } of json?.records ?? [])
      assert.ok(
        table.split('\n').some((line) => line.startsWith(`${name} `) && line.endsWith(value)),
        name,
      );
  });

  test('refuse a domain of others, a missing key, a configuration without a domain, and a wrong option', async (t) => {
    const cwd = await configured(t);
    await assert.rejects(setup(cwd, 'zone', 'example.com'), /example\.com is no domain of/);
    await assert.rejects(setup(cwd, 'zone', '--folder', 'x'), /Unknown option '--folder'/);
    await rm(join(cwd, 'dkim', 'example.org.ed1.pem'));
    await assert.rejects(setup(cwd, 'dkim', 'list'), /The DKIM key .*ed1\.pem cannot be read: ENOENT/);
    await writeFile(join(cwd, 'dkim', 'example.org.ed1.pem'), 'nothing');
    await assert.rejects(setup(cwd, 'zone'), /ed1\.pem is no private key in PEM/);
    await assert.rejects(setup(await temporaryFolder(t), 'zone'), /has no domain of the DNS: see postern init/);
  });

  test('list and show the keys that sign, without a secret', async (t) => {
    const cwd = await configured(t);
    const list = await setup(cwd, 'dkim', 'list');
    assert.match(
      list,
      /^example\.org {2}rsa1 {2}rsa 2048 {2}\/.*rsa1\.pem\nexample\.org {2}ed1 {2}ed25519 {2}\/.*ed1\.pem$/,
    );
    const zone = await setup(cwd, 'zone');
    const shown = (await setup(cwd, 'dkim', 'show', 'example.org')).split('\n');
    assert.equal(shown.length, 2);
    assert.ok(shown.every((line) => zone.includes(line)));
    const secret = (await readFile(join(cwd, 'dkim', 'example.org.rsa1.pem'), 'utf8')).split('\n')[1] ?? 'none';
    assert.ok(!(await setup(cwd, 'dkim', 'list', '--json')).includes(secret));
  });

  test('new keys have new selectors, and change neither the old ones nor the configuration', async (t) => {
    const cwd = await configured(t);
    const [config, key] = ['postern.json5', 'dkim/example.org.rsa1.pem'].map((name) => join(cwd, name));
    const before = [await readFile(config ?? ''), await readFile(key ?? '')];
    const created = await setup(cwd, 'dkim', 'create', 'example.org');
    assert.match(created, /^ {2}rsa2\._domainkey\.example\.org\. IN TXT/m);
    assert.match(created, /^ {4}\{ selector: 'ed2', key: 'dkim\/example\.org\.ed2\.pem' \},$/m);
    assert.deepEqual([await readFile(config ?? ''), await readFile(key ?? '')], before);
    const { settings } = JSON.parse(await setup(cwd, 'dkim', 'create', 'example.org', '--json')) as {
      settings: { selector: string }[];
    };
    assert.deepEqual(
      settings.map(({ selector }) => selector),
      ['rsa3', 'ed3'],
    );
    const unsigned = `{ domains: ['example.net'] }`;
    await writeFile(config ?? '', unsigned);
    assert.equal(await setup(cwd, 'dkim', 'list'), 'No mail is signed: see postern dkim create DOMAIN.');
    await assert.rejects(setup(cwd, 'dkim', 'show', 'example.net'), /Mail from example\.net is not signed/);
  });

  test(
    'keys that root makes belong to the owner of the folder, whose server reads them',
    { skip: skipWithoutRoot('the folder belongs to another user') },
    async (t) => {
      const cwd = await configured(t);
      const owners = async (...names: readonly string[]) =>
        Promise.all(
          names.map(async (name) => {
            const { uid, gid } = await stat(join(cwd, name));
            return [uid, gid];
          }),
        );
      await chown(join(cwd, 'dkim'), 4711, 4712);
      await setup(cwd, 'dkim', 'create', 'example.org');
      const [kept, ...made] = await owners(
        'dkim/example.org.rsa1.pem',
        'dkim/example.org.rsa2.pem',
        'dkim/example.org.ed2.pem',
      );
      assert.deepEqual(
        [kept, made],
        [
          [0, 0],
          [
            [4711, 4712],
            [4711, 4712],
          ],
        ],
      );
      await rm(join(cwd, 'dkim'), { recursive: true });
      await chown(cwd, 4711, 4712);
      await setup(cwd, 'init', 'example.org');
      assert.deepEqual(await owners('dkim', 'dkim/example.org.rsa1.pem'), [
        [4711, 4712],
        [4711, 4712],
      ]);
    },
  );
});
