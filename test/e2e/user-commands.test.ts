import assert from 'node:assert/strict';
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { giveTo, mailAccount, skipWithoutRoot } from '../support/account.js';
import { HttpClient } from '../support/http-client.js';
import { skipWithout } from '../support/peers.js';
import { runPostern, ServerProcess, type CommandResult } from '../support/server-process.js';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';

interface Place {
  readonly title: string;
  /** The folder to run in; a server may own it. */
  readonly open: (test: Ending) => Promise<{ readonly folder: string; readonly server?: ServerProcess }>;
}

const places: readonly Place[] = [
  {
    title: 'while no server runs',
    open: async (t) => {
      const folder = await temporaryFolder(t);
      await mkdir(join(folder, 'data'), { mode: 0o700 });
      return { folder };
    },
  },
  {
    title: 'while the server runs',
    open: async (t) => {
      const folder = await temporaryFolder(t);
      return { folder, server: await ServerProcess.start(t, { folder }) };
    },
  },
];

const succeeds = ({ code, stdout, stderr }: CommandResult): string => {
  assert.equal(code, 0, `${stdout}${stderr}`);
  return stdout;
};

const fails = ({ code, stdout, stderr }: CommandResult, words: RegExp, status: 1 | 2 = 1): void => {
  assert.equal(code, status, `${stdout}${stderr}`);
  assert.match(stderr, words);
  assert.doesNotMatch(stderr, /^\s+at /m);
};

describe('postern user', { concurrency: 2 }, () => {
  for (const { title, open } of places) {
    test(`adds, lists, changes the password and removes ${title}`, async (t) => {
      const { folder, server } = await open(t);
      const postern = (args: string, input = '') => runPostern(args.split(' '), { cwd: folder, input });

      succeeds(await postern('user add anna@localhost', 'first password\n'));
      fails(await postern('user add anna@localhost', 'another password\n'), /anna@localhost/);
      succeeds(await postern('user passwd anna@localhost', 'second password\n'));
      assert.match(succeeds(await postern('user list')), /^anna@localhost\b/m);
      if (server !== undefined) {
        assert.match(succeeds(await postern('user list')), /^postmaster@localhost\b/m);
        const admin = HttpClient.admin(server.http);
        const authenticated = async (password: string) =>
          (
            (await admin.json('/users/authenticate', { json: { username: 'anna@localhost', password } })) as {
              authenticated: boolean;
            }
          ).authenticated;
        assert.equal(await authenticated('first password'), false);
        assert.equal(await authenticated('second password'), true);
      }
      succeeds(await postern('user remove anna@localhost'));
      assert.doesNotMatch(succeeds(await postern('user list')), /anna/);
      fails(await postern('user remove anna@localhost'), /no such user/);
    });
  }

  test('refuses what is no address, and an unknown word', async (t) => {
    const cwd = await temporaryFolder(t);
    const postern = (args: readonly string[]) => runPostern(args, { cwd, input: 'a good password\n' });
    await mkdir(join(cwd, 'data'), { mode: 0o700 });

    fails(await postern(['user', 'add', '../etc@localhost']), /local@domain/);
    fails(await postern(['user', 'dance']), /postern user add NAME/, 2);
  });
});

describe('where a command looks', () => {
  test('no command but start makes a data folder, and the answer names the folder', async (t) => {
    const cwd = await temporaryFolder(t);
    for (const words of ['user list', 'user add anna@localhost']) {
      fails(
        await runPostern(words.split(' '), { cwd, input: 'a good password\n' }),
        /There is no data folder .*\/data\./,
      );
    }
    assert.deepEqual(await readdir(cwd), []);
    await mkdir(join(cwd, 'data'), { mode: 0o700 });
    const added = succeeds(await runPostern(['user', 'add', 'anna@localhost'], { cwd, input: 'a good password\n' }));
    assert.ok(added.includes(`Data folder: ${join(cwd, 'data')}`), added);
  });

  test('POSTERN_CONFIG names the configuration, --config comes before it, and a file that is missing is an error', async (t) => {
    const cwd = await temporaryFolder(t);
    await writeFile(join(cwd, 'named.json5'), "{ data: 'of-named' }");
    await writeFile(join(cwd, 'postern.json5'), "{ data: 'of-here' }");
    const listed = (env: Readonly<Record<string, string>>, ...words: readonly string[]) =>
      runPostern(['user', 'list', ...words], { cwd, env });
    fails(await listed({ POSTERN_CONFIG: 'named.json5' }), /no data folder .*of-named/);
    fails(await listed({ POSTERN_CONFIG: 'named.json5' }, '--config', 'postern.json5'), /no data folder .*of-here/);
    fails(await listed({}), /no data folder .*of-here/);
    fails(await listed({ POSTERN_CONFIG: 'gone.json5' }), /gone\.json5: there is no such configuration file/);
  });
});

describe('the postern command', { concurrency: 2 }, () => {
  test('says its version, and what it can do', async (t) => {
    const cwd = await temporaryFolder(t);
    assert.match(succeeds(await runPostern(['--version'], { cwd })), /^(postern )?\d+\.\d+\.\d+\n$/);
    const help = succeeds(await runPostern(['--help'], { cwd }));
    for (const word of ['start', 'user add', 'config check', '--data', '--http-port', '--smtp-port', '--config']) {
      assert.ok(help.includes(word), word);
    }
    fails(await runPostern(['dance'], { cwd }), /dance/, 2);
  });

  test('mailbox remove removes the mailbox of a user who is gone, while the server runs', async (t) => {
    const folder = await temporaryFolder(t);
    const postern = (args: string, input = '') => runPostern(args.split(' '), { cwd: folder, input });
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    fails(await postern('mailbox remove anna@localhost'), /No server runs/);
    const server = await ServerProcess.start(t, { folder });
    succeeds(await postern('user add anna@localhost', 'correct horse battery\n'));
    await HttpClient.admin(server.http).json('/store/localhost/anna');
    fails(await postern('mailbox remove anna@localhost'), /Remove the user first/);
    succeeds(await postern('user remove anna@localhost'));
    assert.match(succeeds(await postern('mailbox remove anna@localhost')), /anna@localhost was removed/);
    assert.deepEqual(await readdir(join(folder, 'data', 'mail', 'localhost')), ['postmaster']);
    fails(await postern('mailbox remove anna@localhost'), /no such mailbox/);
    fails(await postern('mailbox'), /postern mailbox remove NAME/, 2);
  });

  test('password hash makes what an account of the configuration signs in with', async (t) => {
    const cwd = await temporaryFolder(t);
    const hash = succeeds(await runPostern(['password', 'hash'], { cwd, input: 'correct horse battery\n' })).trim();
    assert.match(hash, /^scrypt\$\d+\$\d+\$\d+\$[\w-]+\$[\w-]+$/);
    const account = { username: 'anna', role: 'operate', passwordHash: hash };
    const server = await ServerProcess.start(t, {
      folder: cwd,
      config: JSON.stringify({
        http: { port: 0, accounts: [account] },
        smtp: { listeners: [{ mode: 'mx', port: 0 }] },
      }),
    });
    const sign = (password: string) => new HttpClient(server.http, { username: 'anna', password }).request('/store');
    assert.equal((await sign('correct horse battery')).status, 200);
    assert.equal((await sign(hash)).status, 401);
    assert.deepEqual((await readdir(cwd)).toSorted(), ['data', 'postern.json5']);
    fails(await runPostern(['password', 'hash'], { cwd, input: 'short\n' }), /at least \d+ characters/);
    fails(await runPostern(['password', 'hash'], { cwd, input: '' }), /No password was given/);
    fails(await runPostern(['password'], { cwd }), /postern password hash/, 2);
  });

  test('config check approves of a good file and names every fault of a bad one', async (t) => {
    const cwd = await temporaryFolder(t);
    succeeds(await runPostern(['config', 'check'], { cwd }));
    await writeFile(`${cwd}/bad.json5`, `{\n  domains: [],\n  http: { port: 'many' },\n  smpt: {},\n}\n`);
    const { code, stdout, stderr } = await runPostern(['config', 'check', '--config', 'bad.json5'], { cwd });
    assert.equal(code, 1, stdout);
    for (const words of [/bad\.json5:2.*domains/, /bad\.json5:3.*http\.port/, /bad\.json5:4.*smpt/]) {
      assert.match(stderr, words);
    }
  });
});

const asRoot = skipWithoutRoot('a server is given a right') || skipWithout('setpriv');

test('beside a server with a right that this user lacks, as systemd gives it', { skip: asRoot }, async (t) => {
  const folder = await temporaryFolder(t);
  await chmod(folder, 0o755);
  await mkdir(join(folder, 'data'), { mode: 0o700 });
  const account = mailAccount();
  await giveTo(account, join(folder, 'data'));
  const right = (word: string) => (word.endsWith('+dac_override') ? `${word},+net_bind_service` : word);
  const server = await ServerProcess.start(t, { folder, launcher: account.launcher.map(right) });
  const postern = (words: string, input = '') =>
    runPostern(words.split(' '), { cwd: folder, input, launcher: account.launcher });
  succeeds(await postern('user add anna@localhost', 'correct horse battery\n'));
  const { pid } = JSON.parse(await readFile(join(folder, 'data', 'postern.lock'), 'utf8')) as { pid: number };
  assert.equal(pid, server.pid);
  const { stdout } = await postern('doctor');
  assert.match(stdout, /ok +The server \(process \d+, started [^)]*\)\s+answers/);
  assert.match(stdout, /ok +Another process listens on 127\.0\.0\.1:\d+; this user may not see\s+which/);
  await HttpClient.admin(server.http).json('/users/anna@localhost');
});

test(
  'root writes nothing into the folder of another user',
  { skip: skipWithoutRoot('a folder is given away') },
  async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    await giveTo(mailAccount(), join(folder, 'data'));
    const added = await runPostern(['user', 'add', 'anna@localhost'], {
      cwd: folder,
      input: 'correct horse battery\n',
    });
    fails(
      added,
      /belongs to user \d+, whose server could not read what root writes: run this as that user \(sudo -u '#\d+'/,
    );
    assert.deepEqual(await readdir(join(folder, 'data')), []);
  },
);
