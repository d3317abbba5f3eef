import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { projectRoot } from '../support/project.js';
import { runPostern } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const folder = join(projectRoot, 'docs', 'examples');
const examples = readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
  entry.isDirectory() ? [entry.name] : [],
);
const read = (...path: readonly string[]): string => readFileSync(join(...path), 'utf8');

const isOlder = (range = '>=0.0'): boolean => {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const [, needsMajor, needsMinor] = /^>=(\d+)\.(\d+)/.exec(range) ?? [];
  return major < Number(needsMajor) || (major === Number(needsMajor) && minor < Number(needsMinor));
};

for (const name of examples) {
  const { engines, dependencies = {} } = JSON.parse(read(folder, name, 'package.json')) as Manifest;
  const skip = isOlder(engines?.node) ? `needs Node.js ${engines?.node}` : false;
  describe(`the example ${name}`, () => {
    test('is under 120 lines, and the page of all plugins names it', () => {
      assert.ok(read(folder, name, 'index.js').split('\n').length - 1 < 120);
      assert.ok(read(projectRoot, 'docs', 'plugins.md').includes(`examples/${name}/README.md`));
    });

    test('passes its tests', { skip }, async () => {
      const { code, stdout, stderr } = await runPostern(['plugin', 'test', name], { cwd: folder, limitMs: 120_000 });
      assert.equal(code, 0, stdout + stderr);
      assert.match(stdout, /^ℹ pass [1-9]/m);
    });

    test('has no mistake that postern plugin check finds, with the configuration of its page', { skip }, async (t) => {
      const site = await temporaryFolder(t);
      const [, config = ''] = /```json5\n(.*?)```/s.exec(read(folder, name, 'README.md')) ?? [];
      await writeFile(join(site, 'postern.json5'), config);
      await symlink(join(folder, name), join(site, name));
      const env = {
        WEBHOOK_SECRET: 'a secret of the two',
        API_TOKEN: 'a token for the API',
        SRS_SECRET: 'a key that nobody knows',
      };
      const { code, stdout, stderr } = await runPostern(['plugin', 'check', `./${name}`], { cwd: site, env });
      assert.equal(code, 0, stdout + stderr);
      assert.match(stdout, new RegExp(`^  ${name}$`, 'm'));
    });

    test('uses packages as this server does', () => {
      const own = JSON.parse(read(projectRoot, 'package.json')) as Manifest;
      const versions = { ...own.devDependencies, ...own.dependencies };
      for (const [other, version] of Object.entries(dependencies)) assert.equal(version, versions[other], other);
    });
  });
}

test('the examples are JavaScript without a mistake in its types', async () => {
  const compiler = join(projectRoot, 'node_modules', 'typescript', 'bin', 'tsc');
  const child = spawn(process.execPath, [compiler, '-p', folder], { cwd: projectRoot });
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'close') as Promise<[number]>]);
  assert.equal(code, 0, output);
});

interface Manifest {
  readonly engines?: { readonly node: string };
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}
