import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { cp, readdir, readFile, realpath, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test, type TestContext } from 'node:test';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { LoadedFiles } from '../support/loaded-files.js';
import { listMessages } from '../support/mailbox-reader.js';
import { projectRoot } from '../support/project.js';
import { adminPassword, ServerProcess } from '../support/server-process.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { compilerComplaints } from '../support/type-check.js';
import { until } from '../support/until.js';
import { lockOf } from './installed-packages.js';
import { npmOptions, packageTarball, run } from './package-tarball.js';
import { Registry } from './registry.js';

const suite = suiteEnding();
const maxBytes = 3 * 1024 * 1024;
const maxUnpackedBytes = 14_000_000;
/** With all that it depends on. */
const maxInstalledBytes = 17_000_000;

describe('the package', () => {
  let tarball = '';
  let registry: Registry;
  before(async () => {
    tarball = await packageTarball(suite);
    registry = await Registry.start(suite, tarball);
  });

  /** `npm install`, of a person who has nothing in a cache, and reaches no registry but ours. */
  async function install(t: TestContext, words: readonly string[], cwd: string): Promise<void> {
    const places = ['--registry', registry.url, '--cache', await temporaryFolder(t)];
    const quiet = ['--no-audit', '--no-fund', '--no-update-notifier'];
    await run('npm', ['install', ...places, ...quiet, ...words], { ...npmOptions, cwd });
  }

  test('is small, and holds no test, no bench, no source and nothing of a developer', async (t) => {
    const { size } = await stat(tarball);
    t.diagnostic(`${(size / 1e6).toFixed(2)} MB`);
    assert.ok(size < maxBytes, `${size} bytes`);
    const unpacked = await temporaryFolder(t);
    await run('tar', ['--extract', '--gzip', `--file=${tarball}`, `--directory=${unpacked}`]);
    const unpackedSize = await bytesBelow(unpacked);
    t.diagnostic(`${(unpackedSize / 1e6).toFixed(2)} MB unpacked`);
    assert.ok(unpackedSize < maxUnpackedBytes, `${unpackedSize} bytes`);
    const { packages } = await lockOf(join(projectRoot, 'package-lock.json'));
    const needed = Object.entries(packages).filter(([path, { dev }]) => path !== '' && dev !== true);
    const sizes = await Promise.all(needed.map(([path]) => bytesBelow(join(projectRoot, path))));
    const installedSize = sizes.reduce((sum, size) => sum + size, unpackedSize);
    t.diagnostic(`${(installedSize / 1e6).toFixed(2)} MB with ${sizes.length} packages`);
    assert.ok(installedSize < maxInstalledBytes, `${installedSize} bytes`);
    const names = await namesIn(tarball);
    const strange = names.filter(
      (name) =>
        /^package\/(?:dist\/)?(?:test(?!\/kit\/)|bench)\/|(?<!\.d)\.[cm]?ts$|\.map$|\.tsbuildinfo$|node_modules|\.env|\.pem$|\/secrets\//.test(
          name,
        ) && !name.startsWith('package/docs/skeleton/'),
    );
    assert.deepEqual(strange, []);
    for (const wanted of ['dist/types/core/plugin.d.ts', 'dist/server/testing.js', 'LICENSE']) {
      assert.ok(names.includes(`package/${wanted}`), wanted);
    }
  });

  test('is installed globally, starts in another folder, and every part of it works without another package', async (t) => {
    const [prefix, folder] = [await temporaryFolder(t), await temporaryFolder(t)];
    await install(t, ['--global', '--prefix', prefix, tarball], folder);
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    await writeFile(join(folder, 'key.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
    const sink = await SmtpSink.start(t);
    const route = { mx: ['127.0.0.1'], port: sink.port, domains: ['sink.example'] };
    const dkim = { 'example.org': { selector: 's1', key: 'key.pem' } };
    const outgoing = { routes: { sink: route }, dkim };
    const loaded = await LoadedFiles.prepare(t);
    const server = await ServerProcess.start(t, {
      folder,
      config: JSON.stringify({ smtp: { listeners: [{ port: 0 }] }, plugins: { 'client-queue': outgoing } }),
      env: { ...loaded.env, POSTERN_ADMIN_PASSWORD: adminPassword },
      program: join(prefix, 'lib', 'node_modules', 'postern', 'dist', 'core', 'postern.cjs'),
    });
    const admin = HttpClient.admin(server.http);

    const html = lines('Subject: from the package', 'Content-Type: text/html', '', '<p>text<script>1</script></p>');
    await deliver(server.smtpPort, html);
    const [message] = await listMessages(admin);
    assert.equal(message?.subject, 'from the package');
    const view = await admin.json(`/store/localhost/postmaster/folders/INBOX/messages/${message.id}`);
    assert.equal((view as { readonly html: string }).html.trim(), '<p>text</p>');
    assert.match(await admin.page('/'), /<title>/);
    assert.equal((await admin.request('/openapi.json')).status, 200);

    const upload = lines(
      '--b',
      'Content-Disposition: form-data; name="eml"; filename="x.eml"',
      'Content-Type: message/rfc822',
      '',
      'From: anna@example.org',
      'Subject: uploaded',
      '',
      'text',
      '--b--',
    );
    const queued = await admin.request('/client/queue?mail=anna@example.org&rcpt=bob@sink.example', {
      body: upload,
      headers: { 'Content-Type': 'multipart/form-data; boundary=b' },
    });
    assert.equal(queued.status, 202, queued.text);
    const sent = await until('the signed mail', () => sink.messages[0]?.text);
    const record = `v=DKIM1; k=ed25519; p=${publicKey.export({ type: 'spki', format: 'der' }).subarray(-32).toString('base64')}`;
    const { results } = await dkimVerify(sent, { resolver: () => Promise.resolve([[record]]) });
    assert.deepEqual(
      results.map(({ status }) => status.result),
      ['pass'],
    );

    const place = join(await realpath(prefix), 'lib', 'node_modules', 'postern', '/');
    const files = (await loaded.of(server)).filter((file) => file.startsWith(place));
    assert.ok(files.length > 20, String(files));
    assert.deepEqual(
      files.filter((file) => file.startsWith(join(place, 'node_modules'))),
      [],
    );
    assert.deepEqual(await server.kill('SIGTERM'), { code: 0, signal: null });
  });

  test('brings no package to an empty folder but types of Node.js, in the version of the lock file', async (t) => {
    const site = await temporaryFolder(t);
    await install(t, [tarball], site);
    const locked = await lockOf(join(projectRoot, 'package-lock.json'));
    const installed = await lockOf(join(site, 'package-lock.json'));
    const packages = Object.entries(installed.packages).filter(([path]) => path !== '');
    assert.deepEqual(
      packages.map(([path]) => path),
      ['node_modules/@types/node', 'node_modules/postern', 'node_modules/undici-types'],
    );
    for (const [path, { version }] of packages) {
      if (path !== 'node_modules/postern') assert.equal(version, locked.packages[path]?.version, path);
    }
    const { stdout } = await run('npm', ['ls', '--all', '--parseable'], { ...npmOptions, cwd: site });
    assert.equal(stdout.trim().split('\n').length, 1 + packages.length, stdout);
  });

  test('gives its kit to the tests of a plugin beside it, with types', async (t) => {
    const site = await temporaryFolder(t);
    await writeFile(
      join(site, 'package.json'),
      '{ "name": "site", "version": "1.0.0", "private": true, "type": "module" }',
    );
    await install(t, ['--save-dev', tarball], site);
    await cp(join(projectRoot, 'docs', 'skeleton'), site, { recursive: true });
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const tests = await run(process.execPath, ['--test'], { ...npmOptions, cwd: site, env });
    assert.match(tests.stdout, /^(?:ℹ|#) pass 4$/m, tests.stdout);
    const options = {
      strict: true,
      target: 'es2023',
      module: 'nodenext',
      noEmit: true,
      checkJs: true,
      types: ['node'],
    };
    await writeFile(join(site, 'jsconfig.json'), JSON.stringify({ compilerOptions: options, include: ['*.js'] }));
    assert.equal(compilerComplaints(site, 'jsconfig.json'), '');
    const plugin = await readFile(join(site, 'index.js'), 'utf8');
    await writeFile(join(site, 'index.js'), plugin.replace('judged.inc({ verdict })', "judged.inc({ kind: 'x' })"));
    assert.match(compilerComplaints(site, 'jsconfig.json'), /index\.js.*'kind'/s);
  });
});

async function namesIn(tarball: string): Promise<readonly string[]> {
  return (await run('tar', ['--list', '--gzip', `--file=${tarball}`])).stdout.trim().split('\n');
}

/** Of all files but those of packages below it. */
async function bytesBelow(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .filter((file) => !file.slice(folder.length).includes('/node_modules/'));
  const sizes = await Promise.all(files.map(async (file) => (await stat(file)).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}
