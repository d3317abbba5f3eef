import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { newPlugin } from '../../../plugins/plugin-kit/new-plugin.js';
import { runTrial, type TrialReport } from '../../../plugins/plugin-kit/trial.js';
import type { Ending } from '../../support/ending.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { until } from '../../support/until.js';

const kit = "import { defineEndpoint, definePlugin, next, service, z } from 'postern/plugin';";
const plugin = (rest: string) => `export const plugin = definePlugin({ name: 'subject', ${rest} });`;
const withViews = (code: string) => code.replace('setup', "views: new URL('views', import.meta.url).pathname, setup");
const mounting = (rest: string) =>
  plugin(`setup({ http }) {
    http.mount([defineEndpoint({ method: 'GET', path: '/subject', summary: 'x', group: 'Site', access: 'read', ${rest} })]);
  }`);

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

interface Subject {
  /** Lines below the import of the kit, which is the first. */
  readonly code: string;
  readonly files?: Readonly<Record<string, string>>;
  readonly config?: string;
}

async function tried(t: Ending, { code, files = {}, config }: Subject, limitMs?: number): Promise<TrialReport> {
  const cwd = await temporaryFolder(t);
  mkdirSync(join(cwd, 'subject', 'views'), { recursive: true });
  writeFileSync(join(cwd, 'subject', 'index.js'), `${kit}\n${code}\n`);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(cwd, name), text);
  if (config !== undefined) writeFileSync(join(cwd, 'postern.json5'), config);
  return runTrial({ path: './subject', options: {}, cwd, env: {} }, limitMs);
}

const told = ({ findings }: TrialReport) =>
  findings.map(({ severity, place, message }) => `${severity} ${place ?? '-'} ${message}`);

/** What is wrong, and the one thing that is said of it. */
const mistakes: Readonly<Record<string, Subject & { readonly says: RegExp }>> = {
  'a mistake in the syntax': { code: '\nexport const = 3;', says: /^error index\.js:3 SyntaxError: / },
  'a mistake in the syntax of another file of it': {
    code: "import './part.js';",
    files: { 'subject/part.js': 'const a = ;' },
    says: /^error part\.js:1 SyntaxError: /,
  },
  'an import of what is not there': {
    code: "import { nothing } from 'postern/plugin';",
    says: /^error index\.js:2 SyntaxError: .*nothing/,
  },
  'code that throws while it is loaded': {
    code: "function f() {\n  throw new Error('no luck');\n}\nf();",
    says: /^error index\.js:3:9 no luck$/,
  },
  'code that ends the process': {
    code: 'process.exit(3);',
    says: /^error - It ended its process \(exit status 3\) while its code was loaded\.$/,
  },
  'no plugin at all': { code: 'export const a = 1;', says: /^error - .*exports no plugin/ },
  'a kit of another version': {
    code: `export const p = { ...definePlugin({ name: 'subject', setup() {} }), kit: 99 };`,
    says: /^error - .*version 99 of the plugin kit/,
  },
  'a name that is none': {
    code: "export const p = definePlugin({ name: 'Sub ject', setup() {} });",
    says: /^error - Sub ject, name: "Sub ject" is not lower-case words/,
  },
  'a setup that throws': {
    code: plugin('\n  setup() {\n    undefined.x;\n  }'),
    says: /^error index\.js:4:15 TypeError: Cannot read properties of undefined/,
  },
  'an error that nobody catches': {
    code: plugin(
      "setup() {\n  setTimeout(() => {\n    throw new TypeError('too late'); }, 1);\n  return new Promise((resolve) => setTimeout(resolve, 20_000)); }",
    ),
    says: /^error index\.js:4:11 Nobody catches this error: TypeError: too late$/,
  },
  'a service that no plugin provides': {
    code: plugin("needs: { x: service('example.greylist') }, setup() {}"),
    says: /^error - Plugin subject needs example\.greylist, and no plugin that is switched on provides it\.$/,
  },
  'options that are missing': {
    code: plugin('options: z.strictObject({ key: z.string() }), setup() {}'),
    says: /^error - plugins\.subject\.key: invalid input: expected string/,
  },
  'options in the configuration that are wrong': {
    code: plugin('options: z.strictObject({ key: z.string() }), setup() {}'),
    config: "{ sitePlugins: ['./subject'],\n  plugins: { subject: { key: 3 } } }",
    says: /^error - .*postern\.json5:2:\d+: plugins\.subject\.key: invalid input: expected string/,
  },
  'a stage that there is not': {
    code: plugin("setup({ smtp }) { smtp.on('rcpt', () => next()); }"),
    says: /^error - Plugin subject, hook of rcpt: there is no such stage/,
  },
  'a hook option that there is not': {
    code: plugin("setup({ smtp }) { smtp.on('rcptTo', { signedin: true }, () => next()); }"),
    says: /^error - Plugin subject, hook of rcptTo: there is no option signedin; options: order, before, .*signedIn/,
  },
  'an access that there is not': {
    code: mounting("access: 'reed', handle: () => ({})"),
    says: /^error - Plugin subject, endpoint GET \/subject: there is no access "reed"/,
  },
  'a hook that forgets to answer': {
    code: plugin(
      "setup({ smtp }) { smtp.on('rcptTo', ({ address }) => { if (address.local === 'spam') return next(); }); }",
    ),
    says: /^error - The hook of rcptTo fails: it answers nothing; a hook without an opinion ends with return next\(\)$/,
  },
  'a hook that throws': {
    code: plugin(
      "setup({ smtp }) {\n  smtp.on('mailFrom', async ({ transaction }) =>\n    transaction.sender.address); }",
    ),
    says: /^error index\.js:4:\d+ The hook of mailFrom fails: threw: Cannot read properties of undefined/,
  },
  'a path that is taken': {
    code: mounting("path: '/users', handle: () => ({})"),
    says: /^error - GET \/users is mounted twice, by the plugins users and subject\.$/,
  },
  'a view that cannot be compiled': {
    code: withViews(mounting("view: 'page.njk', handle: () => ({})")),
    files: { 'subject/views/page.njk': '{% extends layout %}\n{% if %}' },
    says: /^error - Plugin subject, view page\.njk:2: /,
  },
  'a page that fails': {
    code: mounting('handle: () => {\n  return null.x; }'),
    says: /^error index\.js:4:15 GET \/subject as application\/json fails: Cannot read properties of null/,
  },
  'a view that names an asset which is not there': {
    code: withViews(mounting("view: 'page.njk', handle: () => ({})")),
    files: {
      'subject/views/page.njk': "{% extends layout %}{% block head %}{{ asset('subject/x.css') }}{% endblock %}",
    },
    says: /^error - GET \/subject as text\/html fails: [^]*there is no asset subject\/x\.css/,
  },
  'a schema that cannot be described': {
    code: mounting('answer: z.object({ at: z.custom() }).transform(() => 1), handle: () => ({})'),
    says: /^error - GET \/openapi\.json as application\/json fails: /,
  },
};

describe('postern plugin check', { concurrency: 2 }, () => {
  test('has nothing to say against a new plugin, and tells what it adds', async (t) => {
    const cwd = await temporaryFolder(t);
    await newPlugin({ name: 'greylist', language: 'javascript', stripsTypes: false, cwd });
    const report = await runTrial({ path: './greylist', options: {}, cwd, env: {} });
    assert.deepEqual(report, {
      plugins: [
        {
          name: 'greylist',
          needs: [],
          uses: [],
          provides: [],
          commands: [],
          hooks: [{ stage: 'mailFrom', phase: 'policy', mode: 'enforce' }],
          targets: [],
          endpoints: [{ method: 'GET', path: '/greylist', access: 'read' }],
        },
      ],
      findings: [],
    });
    assert.deepEqual(readdirSync(cwd), ['greylist'], 'no data folder was made');
  });

  for (const [title, { says, ...subject }] of Object.entries(mistakes)) {
    test(`tells of ${title}`, async (t) => {
      const lines = told(await tried(t, subject));
      assert.match(lines[0] ?? '', says, lines.join('\n'));
    });
  }

  test('warns of an unknown plugin in before, and of network access', async (t) => {
    const code = plugin(
      "async setup({ smtp }) { smtp.on('rcptTo', { before: ['users', 'usres'] }, () => next());\n await fetch('http://192.0.2.1/').catch(() => {}); }",
    );
    const report = await tried(t, { code });
    assert.deepEqual(told(report), [
      'warning - The hook of rcptTo wants to be before or after usres: no plugin of that name runs.',
      'warning - It wanted to connect to 192.0.2.1:80, and got no answer: there is no network in a check.',
    ]);
    assert.equal(report.plugins[0]?.hooks.length, 1);
  });

  test('is not stopped by one that never ends, whatever it does', async (t) => {
    const endless = {
      load: 'await new Promise(() => {});',
      loop: 'for (;;);',
      setup: plugin('setup: () => new Promise(() => {})'),
    };
    for (const [step, code] of Object.entries(endless)) {
      const [line = '', ...others] = told(await tried(t, { code }, 8000));
      assert.match(
        line,
        /^error - It did not come to an end within 8 seconds while its (code was loaded|setup ran)\.$/,
        step,
      );
      assert.deepEqual(others, []);
    }
  });

  test('tries it as the configuration names it', async (t) => {
    const code = plugin("setup({ smtp }) { smtp.on('connect', () => next()); }");
    const config = "{ sitePlugins: [{ from: 'subject/index.js', mode: 'shadow' }] }";
    const { plugins, findings } = await tried(t, { code, config });
    assert.deepEqual(findings, []);
    assert.equal(plugins[0]?.hooks[0]?.mode, 'shadow');
  });

  test('warns of a key of the declaration that means nothing', async (t) => {
    const lines = told(await tried(t, { code: plugin("reloads: 'replace', setup() {}") }));
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /^warning - subject, reloads: no such key is known; keys: name, .*reload, setup\.$/);
  });

  test('warns of a deprecated form', async (t) => {
    const lines = told(await tried(t, { code: plugin('kit: 1, setup() {}') }));
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /^warning - subject: a plugin uses a deprecated form: kit as a whole number;/);
  });

  test('warns of other plugins of the site that fail, which is no mistake of this one', async (t) => {
    const config = "{ sitePlugins: ['./lost.mjs', './failing.mjs'] }";
    const files = {
      'failing.mjs': `${kit}\nexport const other = definePlugin({ name: 'failing', setup() { throw new Error('no luck'); } });`,
    };
    const lines = told(await tried(t, { code: plugin('setup() {}'), config, files }));
    assert.match(lines[0] ?? '', /^warning - Site plugin \.\/lost\.mjs: there is no file/);
    assert.match(lines[1] ?? '', /^warning - Plugin failing could not start: failing\.mjs:2:70: no luck/);
    assert.equal(lines.length, 2);
  });

  test('tells, where no plugin is named, what a server with that configuration tells', async (t) => {
    const cwd = await temporaryFolder(t);
    const code = mounting('handle: () => ({})').replace("name: 'subject'", "name: 'lmtp'");
    writeFileSync(join(cwd, 'lmtp.mjs'), `${kit}\n${code}`);
    writeFileSync(join(cwd, 'broken.mjs'), 'export const = 1;');
    writeFileSync(join(cwd, 'postern.json5'), "{ sitePlugins: ['./lmtp.mjs', './broken.mjs'] }");
    const { pipeline } = await runTrial({ path: null, options: {}, cwd, env: {} });
    const { plugins } = pipeline as { plugins: { name: string; state: string; endpoints: number }[] };
    assert.deepEqual(
      plugins
        .filter(({ name }) => name === 'lmtp' || name === 'broken')
        .map(({ name, state, endpoints }) => `${name} ${state} ${endpoints}`),
      ['lmtp running 1', 'broken failed 0', 'lmtp replaced 0'],
    );
  });

  test('takes its process and its folder along when it is stopped', async (t) => {
    const cwd = await temporaryFolder(t);
    mkdirSync(join(cwd, 'tmp'));
    writeFileSync(join(cwd, 'loop.mjs'), 'console.log(`loops in ${process.pid}`);\nfor (;;);');
    const cli = join(projectRoot, 'dist', 'core', 'postern.cjs');
    const env = { PATH: process.env['PATH'], TMPDIR: join(cwd, 'tmp'), NODE_DISABLE_COMPILE_CACHE: '1' };
    const command = spawn(process.execPath, [cli, 'plugin', 'check', './loop.mjs'], { cwd, env });
    const exit = once(command, 'exit');
    const [said] = (await once(command.stderr, 'data')) as [Buffer];
    command.kill('SIGTERM');
    assert.deepEqual(await exit, [null, 'SIGTERM']);
    assert.deepEqual(readdirSync(join(cwd, 'tmp')), []);
    const pid = Number(/loops in (\d+)/.exec(said.toString())?.[1]);
    await until('the end of its process', () => (isRunning(pid) ? undefined : true));
  });

  test('knows a plugin of the configuration by its file, and tries it once', async (t) => {
    const config = "{ sitePlugins: ['subject/index.js', './other.mjs'], plugins: { subject: { key: 'x' } } }";
    const code = plugin(
      "options: z.strictObject({ key: z.string() }), needs: { x: service('example.other') }, setup() {}",
    );
    const files = {
      'other.mjs': `${kit}\nexport const other = definePlugin({ name: 'other', provides: { x: service('example.other') }, setup: () => ({ x: 1 }) });`,
    };
    const report = await tried(t, { code, config, files });
    assert.deepEqual(told(report), []);
    assert.deepEqual(report.plugins[0]?.needs, ['example.other']);
  });
});
