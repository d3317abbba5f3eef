import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import {
  newPlugin,
  type NewPluginInput,
  nextSteps,
  parsePluginName,
  skeletonOf,
} from '../../../plugins/plugin-kit/new-plugin.js';
import { runTrial } from '../../../plugins/plugin-kit/trial.js';
import { isStartError } from '../../../core/problem.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { compilerComplaints } from '../../support/type-check.js';

const input = { name: 'rate-limit', language: 'javascript', stripsTypes: false } as const;

async function refusal(given: NewPluginInput): Promise<string> {
  const error: unknown = await newPlugin(given).catch((reason: unknown) => reason);
  assert.ok(isStartError(error), String(error));
  return error.message;
}

const filesBelow = (folder: string) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .toSorted();

describe('postern plugin new', () => {
  test('writes a plugin under its name, in each form that the name has', async (t) => {
    const cwd = await temporaryFolder(t);
    const plugin = await newPlugin({ ...input, cwd });
    const said = nextSteps(plugin, 'postern');
    const steps = said.match(/^ {2}(?:postern |sitePlugins).*$/gm) ?? [];
    assert.deepEqual(
      [steps.length, new Set(steps.map((step) => step.search(/(?<= {2})\S+(?: \S+)*$/))).size],
      [4, 1],
      said,
    );
    const throughNpx = nextSteps(plugin, 'npx postern');
    assert.equal(throughNpx.match(/npx postern (plugin (test|check) \.\/rate-limit|start) /g)?.length, 3, throughNpx);
    const folder = join(cwd, 'rate-limit');
    assert.equal(plugin.folder, folder);
    assert.deepEqual(plugin.files, filesBelow(folder));
    assert.deepEqual(filesBelow(folder), [
      'assets/style.css',
      'index.js',
      'index.test.js',
      'jsconfig.json',
      'package.json',
      'views/page.njk',
    ]);
    const code = readFileSync(join(folder, 'index.js'), 'utf8');
    assert.match(code, /export const rateLimit = definePlugin\(\{\n {2}name: 'rate-limit'/);
    assert.match(code, /path: '\/rate-limit'/);
    assert.match(code, /'rate_limit_senders_total'/);
    assert.match(code, /title: 'Rate limit'/);
    for (const file of filesBelow(folder)) {
      assert.doesNotMatch(readFileSync(join(folder, file), 'utf8'), /example.plugin/i, file);
    }
    for (const words of ['plugin test ./rate-limit', 'plugin check ./rate-limit', "sitePlugins: ['./rate-limit']"]) {
      assert.ok(said.includes(words), said);
    }
  });

  test('what is there stays as it is', async (t) => {
    const cwd = await temporaryFolder(t);
    mkdirSync(join(cwd, 'rate-limit'));
    writeFileSync(join(cwd, 'other'), 'mine');
    symlinkSync('nowhere', join(cwd, 'dangling'));
    for (const name of ['rate-limit', 'other', 'dangling']) {
      assert.match(await refusal({ ...input, name, cwd }), new RegExp(`\\./${name} is there already`));
    }
    assert.deepEqual(readdirSync(cwd).toSorted(), ['dangling', 'other', 'rate-limit']);
    assert.deepEqual(readdirSync(join(cwd, 'rate-limit')), []);
  });

  test('a folder that cannot be written is named, and nothing is left', async () => {
    assert.match(await refusal({ ...input, cwd: '/proc' }), /\.\/rate-limit cannot be written in \/proc \(\w+\)/);
  });

  test('a name that cannot be is refused with a sentence', () => {
    for (const name of [
      '',
      'Rate',
      'rate_limit',
      '-rate',
      'rate-',
      'r--l',
      '9lives',
      '../x',
      'a/b',
      'ä',
      'x'.repeat(41),
    ]) {
      assert.throws(() => parsePluginName(name), /lower-case words and digits/, name);
    }
    for (const name of ['users', 'store', 'assets', 'docs', 'macros']) {
      assert.throws(() => parsePluginName(name), /Postern itself uses this name/, name);
    }
    for (const name of ['new', 'default', 'eval'])
      assert.throws(() => parsePluginName(name), /a meaning in JavaScript/);
    assert.equal(parsePluginName('a1-b2-c3').identifier, 'a1B2C3');
  });

  test('an editor knows every type in plain JavaScript, and underlines a mistake', async (t) => {
    const cwd = await temporaryFolder(t);
    await newPlugin({ ...input, cwd });
    const folder = join(cwd, 'rate-limit');
    assert.equal(compilerComplaints(folder, 'jsconfig.json'), '');
    const file = join(folder, 'index.js');
    const code = readFileSync(file, 'utf8');
    writeFileSync(
      file,
      code.replace('options.refuse.includes', 'options.refused.includes').replace("'5.7.1', ", '517, '),
    );
    assert.match(
      compilerComplaints(folder, 'jsconfig.json'),
      /index\.js\(\d+,\d+\): .*'refused' does not exist.*\n.*index\.js.*number/s,
    );
  });

  test('where Postern is installed above the folder, no place on this machine is written down', async (t) => {
    const cwd = await temporaryFolder(t);
    mkdirSync(join(cwd, 'node_modules', '@types'), { recursive: true });
    symlinkSync(projectRoot, join(cwd, 'node_modules', 'postern'));
    symlinkSync(join(projectRoot, 'node_modules', '@types', 'node'), join(cwd, 'node_modules', '@types', 'node'));
    await newPlugin({ ...input, cwd });
    const folder = join(cwd, 'rate-limit');
    assert.doesNotMatch(readFileSync(join(folder, 'jsconfig.json'), 'utf8'), /paths|typeRoots/);
    assert.equal(compilerComplaints(folder, 'jsconfig.json'), '');
  });

  test('in a checkout the places of the types are written down relative to the plugin, as nothing is installed there', () => {
    const name = parsePluginName('rate-limit');
    const files = skeletonOf({
      name,
      language: 'javascript',
      folder: join(projectRoot, 'rate-limit'),
      isCompiled: false,
    });
    assert.match(files.get('jsconfig.json') ?? '', /"postern\/plugin": \[\s*"\.\.\/dist\/types\/core\/plugin\.d\.ts"/);
  });

  test('one made from a checkout, which puts no command on the PATH, runs its tests by npm test', async (t) => {
    const cwd = await temporaryFolder(t);
    await newPlugin({ ...input, cwd });
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const tests = spawnSync('npm', ['test', '--silent'], { cwd: join(cwd, 'rate-limit'), encoding: 'utf8', env });
    assert.match(tests.stdout, /^(?:#|ℹ) pass 4$/m, tests.stdout + tests.stderr);
  });

  test('--typescript writes one that its own script compiles, where Node runs no TypeScript', async (t) => {
    const cwd = await temporaryFolder(t);
    const said = nextSteps(await newPlugin({ ...input, cwd, language: 'typescript' }), 'postern');
    assert.match(said, /npm install && npm run build/);
    const folder = join(cwd, 'rate-limit');
    assert.deepEqual(
      filesBelow(folder).filter((file) => !file.includes('/')),
      ['index.test.ts', 'index.ts', 'package.json', 'tsconfig.json'],
    );
    const { main, scripts } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
      readonly main: string;
      readonly scripts: Readonly<Record<string, string>>;
    };
    assert.deepEqual([main, scripts['build']], ['index.js', 'tsc']);
    const check = () => runTrial({ path: './rate-limit', options: {}, cwd, env: {} });
    assert.match((await check()).findings[0]?.message ?? '', /has no index\.js\. Build it first: npm run build\./);
    assert.equal(compilerComplaints(folder, 'tsconfig.json'), '');
    assert.deepEqual((await check()).findings, []);
    const kit = pathToFileURL(join(projectRoot, 'dist', 'plugins', 'plugin-kit', 'kit-import.js')).href;
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const tests = spawnSync(process.execPath, ['--import', kit, '--test', '--test-reporter=tap', 'index.test.js'], {
      cwd: folder,
      encoding: 'utf8',
      env,
    });
    assert.match(tests.stdout, /# pass 4\n# fail 0/, tests.stdout);
  });

  test('--typescript writes the same in TypeScript, where Node runs it', async (t) => {
    const cwd = await temporaryFolder(t);
    await newPlugin({ ...input, cwd, language: 'typescript', stripsTypes: true });
    const folder = join(cwd, 'rate-limit');
    assert.ok(filesBelow(folder).includes('index.test.ts'));
    const code = readFileSync(join(folder, 'index.ts'), 'utf8');
    assert.match(code, /const senders: z\.output<typeof Judged>\[\] = \[\];/);
    assert.doesNotMatch(code, /@type/);
    assert.equal(compilerComplaints(folder, 'tsconfig.json'), '');
  });
});
