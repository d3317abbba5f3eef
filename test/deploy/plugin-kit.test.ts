import assert from 'node:assert/strict';
import { readFile, mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { projectRoot } from '../support/project.js';
import { ShippedPackage } from '../support/shipped-package.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { npmOptions, run } from './package-tarball.js';

const suite = suiteEnding();
const maxBytes = 2_000_000;
const compiler = join(projectRoot, 'node_modules', 'typescript', 'bin', 'tsc');

interface Packed {
  readonly filename: string;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

describe('the package postern-plugin-kit', () => {
  let postern: ShippedPackage;
  let folder = '';
  let packed: Packed;

  /** What the compiler says of the plugin. */
  const check = async (): Promise<string> => {
    const checked = run(process.execPath, [compiler, '-p', folder], { encoding: 'utf8' });
    return (await checked.catch((error: { readonly stdout: string }) => error)).stdout;
  };

  before(async () => {
    postern = await ShippedPackage.unpack(suite);
    const made = await temporaryFolder(suite);
    await run(process.execPath, ['plugin-kit.mjs', join(made, 'kit')], { cwd: projectRoot });
    const { stdout } = await run('npm', ['pack', '--json', './kit'], { ...npmOptions, cwd: made });
    [packed] = JSON.parse(stdout) as [Packed];

    const site = await temporaryFolder(suite);
    await postern.sh('postern plugin new doorman', site);
    folder = join(site, 'doorman');
    const quiet = ['--no-audit', '--no-fund', '--no-update-notifier', '--cache', await temporaryFolder(suite)];
    const words = ['install', '--offline', '--save-dev', ...quiet, join(made, packed.filename)];
    await run('npm', words, { ...npmOptions, cwd: folder });
    // The author installs these two from a registry.
    await mkdir(join(folder, 'node_modules', '@types'));
    for (const name of ['@types/node', 'undici-types']) {
      await symlink(join(projectRoot, 'node_modules', name), join(folder, 'node_modules', name));
    }
    const page = await readFile(join(projectRoot, 'docs', 'plugin-kit.md'), 'utf8');
    await writeFile(join(folder, 'tsconfig.json'), /```json\n(.*?)```/s.exec(page)?.[1] ?? '');
  });

  test('is small, without a dependency, and has no code but two lines', async () => {
    assert.ok(packed.unpackedSize < maxBytes, `${packed.unpackedSize} bytes`);
    const code = packed.files.map(({ path }) => path).filter((path) => !/\.d\.[cm]?ts$|LICEN[CS]E|\.json$/i.test(path));
    assert.deepEqual(code.toSorted(), ['README.md', 'plugin.js', 'testing.js']);
    const installed = join(folder, 'node_modules', 'postern-plugin-kit', 'package.json');
    const { dependencies, peerDependenciesMeta } = JSON.parse(await readFile(installed, 'utf8')) as Manifest;
    assert.equal(dependencies, undefined);
    assert.deepEqual(peerDependenciesMeta, { postern: { optional: true } });
  });

  test('knows every type that a new plugin uses, where no server is installed', async () => {
    assert.equal(await check(), '');
  });

  const mistakes = [
    ['a stage', "smtp.on('mailFromm', () => next())"],
    ['a verdict', "reject('550', '5.7.1', 'no')"],
    ['the log', "log.inform('hello')"],
    ['a metric', "metrics.counter('a_total', 'A', ['kind']).inc({ sort: 'x' })"],
    ['the clock', 'const later = clock.now().getTime()'],
    ['an option', 'options.refuse.toFixed()'],
    ['an endpoint', "http.mount([defineEndpoint({ method: 'GET', path: '/x', access: 'everybody' })])"],
    ['a schema', 'z.strictObject({ a: z.strnig() })'],
  ] as const;
  test('finds mistakes, so that no type is silently any', async () => {
    const [log, clock] = ["import('postern/plugin').Log", "import('postern/plugin').Clock"];
    const lines = mistakes.map(([, code]) => code);
    await writeFile(
      join(folder, 'mistakes.js'),
      `import { defineEndpoint, definePlugin, next, reject, z } from 'postern/plugin';
definePlugin({ name: 'x', options: z.strictObject({ refuse: z.array(z.string()) }),
setup({ smtp, metrics, http, log, clock }, { options }) {
${lines.join('\n')}
} });
/** @type {(site: import('postern/testing').DrivenSite, log: ${log}, clock: ${clock}) => void} */
export const test = (site) => site.advance({ days: 1 });
`,
    );
    const said = await check();
    for (const [index, [what]] of mistakes.entries())
      assert.match(said, new RegExp(`mistakes\\.js\\(${index + 4},`), what);
    assert.match(said, /mistakes\.js\(14,.*advance/, 'the kit for tests');
    await writeFile(join(folder, 'mistakes.js'), '');
  });

  test('is beside the tests, which the installed server runs', async () => {
    const { code, output } = await postern.sh('postern plugin test .', folder);
    assert.equal(code, 0, output);
    assert.match(output, /^ℹ pass 4$/m);
  });

  test('names the modules of a server beside it', async () => {
    await writeFile(
      join(folder, 'same.test.js'),
      `import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as plugin from 'postern/plugin';
import * as testing from 'postern/testing';
import { drive } from 'postern-plugin-kit/testing';
import { definePlugin } from 'postern-plugin-kit/plugin';
test('one kit', () => assert.deepEqual([definePlugin, drive], [plugin.definePlugin, testing.drive]));
`,
    );
    assert.equal(await check(), '');
    const { code, output } = await postern.sh(
      'ln -s "$(dirname "$(readlink -f "$(which postern)")")/../.." node_modules/postern && node --test',
      folder,
    );
    assert.equal(code, 0, output);
    assert.match(output, /^(?:ℹ|#) pass 5$/m);
  });
});

interface Manifest {
  readonly dependencies?: object;
  readonly peerDependenciesMeta?: object;
}
