import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test, type TestContext } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { atEnd, suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { Output } from '../support/output.js';
import { projectRoot } from '../support/project.js';
import { adminPassword } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { lockOf, type Lock } from './installed-packages.js';
import { npmOptions, packageTarball, run } from './package-tarball.js';
import { Registry } from './registry.js';

const suite = suiteEnding();
const maxBytes = 3 * 1024 * 1024;
const maxUnpackedBytes = 15_000_000;
/** With the tested versions of all that it depends on. Of a tarball npm reads no npm-shrinkwrap.json, and puts some there twice. */
const maxInstalledBytes = 60_000_000;

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
    for (const wanted of ['dist/core/plugin.d.ts', 'dist/test/kit/index.d.ts', 'npm-shrinkwrap.json', 'LICENSE']) {
      assert.ok(names.includes(`package/${wanted}`), wanted);
    }
  });

  test('is installed globally, starts in another folder, takes mail and shows it', async (t) => {
    const prefix = await temporaryFolder(t);
    const folder = await temporaryFolder(t);
    await install(t, ['--global', '--prefix', prefix, tarball], folder);
    await writeFile(join(folder, 'postern.json5'), '{ smtp: { listeners: [{ port: 0 }] } }');
    const { PATH = '' } = process.env;
    const child = spawn(join(prefix, 'bin', 'postern'), ['start', '--http-port', '0'], {
      cwd: folder,
      env: { PATH, POSTERN_ADMIN_PASSWORD: adminPassword },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const output = new Output(child);
    const exit = once(child, 'exit');
    atEnd(t, async () => {
      child.kill('SIGKILL');
      await exit;
    });
    const [, http = '', port] = await output.find(/^postern ready http=(\S+) smtp=\S+:(\d+)$/m);
    await deliver(Number(port), lines('Subject: from the package', '', 'text'));
    const admin = HttpClient.admin(http);
    assert.deepEqual(
      (await listMessages(admin)).map(({ subject }) => subject),
      ['from the package'],
    );
    assert.match(await admin.page('/'), /<title>/);
    assert.equal((await admin.request('/openapi.json')).status, 200);
    child.kill('SIGTERM');
    assert.deepEqual(await exit, [0, null]);
  });

  test('brings the tested versions when it comes from a registry, overrides included', async (t) => {
    const site = await temporaryFolder(t);
    await writeFile(join(site, 'package.json'), '{ "name": "site", "version": "1.0.0", "private": true }');
    await install(t, ['--package-lock-only', 'postern'], site);
    const wanted = await lockOf(join(projectRoot, 'package-lock.json'));
    const got = await lockOf(join(site, 'package-lock.json'));
    const versions = (lock: Lock, root: string) =>
      Object.entries(lock.packages)
        .filter(([path, { dev }]) => path.startsWith(`${root}node_modules/`) && dev !== true)
        .map(([path, { version }]) => `${path.slice(root.length)} ${version}`)
        .toSorted();
    const inner = versions(got, 'node_modules/postern/');
    assert.deepEqual(inner, versions(wanted, ''));
    assert.deepEqual(inner.filter((line) => /node_modules\/nodemailer /.test(line)).length, 1);
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
