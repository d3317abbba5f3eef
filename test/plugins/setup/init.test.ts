import assert from 'node:assert/strict';
import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { isStartError } from '../../../core/problem.js';
import { configure } from '../../../core/main.js';
import { checkConfiguration } from '../../../plugins/doctor/configuration-check.js';
import { unitText } from '../../../plugins/setup/first-files.js';
import { askNames } from '../../../plugins/setup/init.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { filesIn, firstFiles, setup } from './setup-run.js';

const contents = async (folder: string) =>
  new Map(
    await Promise.all(
      (await filesIn(folder)).map(async (name) => [name, await readFile(join(folder, name), 'utf8')] as const),
    ),
  );

describe('postern init', () => {
  test('writes a configuration without mistakes, with a comment at every setting, and private keys for the user alone', async (t) => {
    const cwd = await temporaryFolder(t);
    const said = await setup(cwd, 'init', 'Example.ORG', '--mail-host', 'mx.example.net', '--folder', 'etc');
    const folder = join(cwd, 'etc');
    assert.deepEqual(await filesIn(folder), firstFiles);
    assert.equal(said.match(/^ {2}written /gm)?.length, firstFiles.length);
    assert.match(said, /^example\.org\. IN MX 10 mx\.example\.net\.$/m);
    assert.match(said, /^rsa1\._domainkey\.example\.org\. IN TXT \( "v=DKIM1; k=rsa; p=/m);
    assert.match(said, /^ed1\._domainkey\.example\.org\. IN TXT "v=DKIM1; k=ed25519; p=/m);
    for (const name of firstFiles.filter((file) => file.startsWith('dkim'))) {
      assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600, name);
    }
    const config = await readFile(join(folder, 'postern.json5'), 'utf8');
    const bare = config.split('\n').filter((line, at, lines) => {
      const isSetting = /^ {2}\w+: /.test(line) && !line.startsWith('  smtp: {') && !line.startsWith('  plugins: {');
      return isSetting && !(lines[at - 1] ?? '').trim().startsWith('//');
    });
    assert.deepEqual(bare, []);
    const environment = { cwd: folder, env: {}, print: () => undefined };
    assert.equal(await checkConfiguration({}, environment), 0);
    const { hostname, domains } = await configure({}, environment);
    assert.deepEqual([hostname, ...domains], ['mx.example.net', 'example.org']);
  });

  test('changes nothing in a second run, and says what is there', async (t) => {
    const cwd = await temporaryFolder(t);
    await setup(cwd, 'init', 'example.org');
    const before = await contents(cwd);
    const said = await setup(cwd, 'init', 'example.org', '--mail-host', 'other.example.org', '--table');
    assert.deepEqual(await contents(cwd), before);
    assert.equal(said.match(/^ {2}kept /gm)?.length, firstFiles.length);
    assert.match(said, /^example\.org +MX +10 mail\.example\.org$/m);
    const json = JSON.parse(await setup(cwd, 'init', 'example.org', '--json')) as { files: { written: boolean }[] };
    assert.deepEqual([...new Set(json.files.map(({ written }) => written))], [false]);
    await assert.rejects(setup(cwd, 'init', 'example.com'), /example\.com is no domain of .*postern\.json5, which has/);
    assert.deepEqual(await contents(cwd), before);
  });

  test('goes on where a killed run has stopped', async (t) => {
    const cwd = await temporaryFolder(t);
    await setup(cwd, 'init', 'example.org');
    const key = await readFile(join(cwd, 'dkim', 'example.org.rsa1.pem'), 'utf8');
    for (const name of ['postern.json5', 'dkim/example.org.ed1.pem']) await rm(join(cwd, name));
    await writeFile(join(cwd, '.postern.json5.half.tmp'), '{ hostname: ');
    const said = await setup(cwd, 'init', 'example.org');
    assert.equal(said.match(/^ {2}written /gm)?.length, 2);
    assert.equal(await readFile(join(cwd, 'dkim', 'example.org.rsa1.pem'), 'utf8'), key);
    assert.equal(await checkConfiguration({}, { cwd, env: {}, print: () => undefined }), 0);
  });

  test('asks on a terminal only, and takes the usual name for an empty answer', async () => {
    const terminal = (...answers: string[]) => {
      const asked: string[] = [];
      const ask = (question: string) => {
        asked.push(question);
        return Promise.resolve(answers.shift() ?? '');
      };
      return { asked, interactive: true, ask };
    };
    const named = { domain: 'example.org', mailHost: undefined };
    const nothing = { domain: undefined, mailHost: undefined };
    const silent = terminal();
    assert.deepEqual(await askNames(named, silent), { domain: 'example.org', hostname: 'mail.example.org' });
    assert.deepEqual(silent.asked, []);
    const asking = terminal('example.net', '');
    assert.deepEqual(await askNames(nothing, asking), { domain: 'example.net', hostname: 'mail.example.net' });
    assert.deepEqual(asking.asked.slice(1), ['Name of this server [mail.example.net]: ']);
    await assert.rejects(askNames(nothing, { ...terminal(), interactive: false }), (error) => {
      assert.ok(isStartError(error) && error.exitStatus === 2);
      return true;
    });
    await assert.rejects(
      askNames({ domain: 'no domain', mailHost: undefined }, silent),
      /The domain is not a valid domain name/,
    );
    await assert.rejects(
      askNames({ domain: 'a.test', mailHost: 'bad..x' }, silent),
      /The mail host is not a valid domain name/,
    );
  });

  test('a unit below a folder of a user runs as that user, one below /etc/postern as its own', async (t) => {
    const folder = join(await temporaryFolder(t), 'my mail');
    await mkdir(folder);
    const own = unitText(folder);
    assert.match(own, /^ReadWritePaths="\/.*my mail"$/m);
    assert.match(own, /^ExecStart=\S+ \S+postern\.cjs start --config "\/.*my mail\/postern\.json5"$/m);
    assert.doesNotMatch(own, /^(?:StateDirectory|ConfigurationDirectory|Group)|^User=postern$/m);
    const system = unitText('/etc/postern');
    assert.match(system, /^User=postern\nGroup=postern\nExecStart=.* --config \/etc\/postern\/postern\.json5$/m);
    assert.match(system, /^StateDirectory=postern$/m);
  });
});
