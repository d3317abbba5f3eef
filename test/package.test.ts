import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { join, posix } from 'node:path';
import { test } from 'node:test';
import { fileLinks } from './support/file-links.js';
import { projectRoot } from './support/project.js';
import { temporaryFolder } from './support/temporary-folder.js';

/** Paths in the package as `npm pack` would make it. */
function packed(): readonly string[] {
  const { stdout } = spawnSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: projectRoot,
    encoding: 'utf8',
  });
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  return files.map(({ path }) => path);
}

const paths = packed();

test('the package holds the built server, its views, its assets and its documents, and nothing else', () => {
  for (const wanted of [
    'package.json',
    'README.md',
    'SECURITY.md',
    'LICENSE',
    'docs/plugins.md',
    'dist/core/postern.cjs',
    'dist/core/plugin.js',
    'dist/core/plugin.d.ts',
    'dist/test/kit/index.js',
    'dist/test/kit/index.d.ts',
    'dist/plugins/index.js',
    'dist/server/entry.js',
    'dist/core/host/import-module.cjs',
    'dist/server/LICENSES.txt',
    'views/layout.njk',
    'public/app.css',
    'public/vendor/htmx.min.js',
    'docs/skeleton/index.js',
  ]) {
    assert.ok(paths.includes(wanted), `${wanted} is missing`);
  }
  const strange = paths.filter(
    (path) =>
      !/^(dist\/(core|plugins|server|test\/kit)|views|public|docs|deploy)\/|^plugins\/[\w-]+\/README\.md$|^[\w-]+(\.md|\.json)?$/.test(
        path,
      ),
  );
  assert.deepEqual(strange, []);
});

test('every link of a document in the package leads to a file or a folder in it', () => {
  const leads = (to: string) => paths.some((path) => path === to || path.startsWith(`${to.replace(/\/$/, '')}/`));
  const documents = paths.filter((path) => path.endsWith('.md'));
  assert.ok(documents.includes('plugins/client-queue/README.md'), String(documents));
  const broken = documents.flatMap((document) =>
    fileLinks(readFileSync(join(projectRoot, document), 'utf8'))
      .filter((link) => !leads(posix.join(posix.dirname(document), link)))
      .map((link) => `${document}: ${link}`),
  );
  assert.deepEqual(broken, []);
});

interface Entry {
  readonly version: string;
  readonly dev?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
}

test('the shrinkwrap has each package that runs in the tested version, asked for as such where it is overridden', async (t) => {
  const copy = await temporaryFolder(t);
  for (const name of ['package.json', 'package-lock.json', 'shrinkwrap.mjs']) {
    copyFileSync(join(projectRoot, name), join(copy, name));
  }
  assert.equal(spawnSync(process.execPath, [join(copy, 'shrinkwrap.mjs')]).status, 0);
  const read = (name: string) =>
    JSON.parse(readFileSync(join(copy, name), 'utf8')) as {
      packages: Record<string, Entry & { devDependencies?: object }>;
    };
  const [lock, shrinkwrap] = [read('package-lock.json').packages, read('npm-shrinkwrap.json').packages];
  assert.deepEqual(
    Object.keys(shrinkwrap),
    Object.keys(lock).filter((path) => lock[path]?.dev !== true),
  );
  assert.equal(shrinkwrap['']?.devDependencies, undefined);
  const { overrides } = JSON.parse(readFileSync(join(copy, 'package.json'), 'utf8')) as {
    overrides: Record<string, string>;
  };
  for (const name of Object.keys(overrides)) {
    const asked = Object.values(shrinkwrap).flatMap(({ dependencies = {} }) => dependencies[name] ?? []);
    assert.ok(asked.length > 0, name);
    assert.deepEqual([...new Set(asked)], [shrinkwrap[`node_modules/${name}`]?.version], name);
  }
  assert.equal(spawnSync(process.execPath, [join(copy, 'shrinkwrap.mjs'), '--remove']).status, 0);
  assert.throws(() => read('npm-shrinkwrap.json'), /ENOENT/);
});

/** The files that a module of the built command takes with it, and the packages: what is imported later is not among them. */
function takenWith(file: string, taken = new Set<string>()): ReadonlySet<string> {
  if (taken.has(file)) return taken;
  taken.add(file);
  if (!file.endsWith('.js')) return taken;
  const text = readFileSync(join(projectRoot, 'dist', 'server', file), 'utf8');
  for (const [, name = ''] of text.matchAll(/^(?:var \w+ = )?(?:__toESM\()?require\("([^"]+)"\)/gm)) {
    if (!isBuiltin(name)) takenWith(name.replace(/^\.\//, ''), taken);
  }
  return taken;
}

test('the command starts from few files, and no package is read before it is needed', () => {
  const started = readdirSync(join(projectRoot, 'dist', 'server')).filter((name) => /^(entry|part-.*)\.js$/.test(name));
  const taken = [...new Set(started.flatMap((name) => [...takenWith(name)]))];
  assert.deepEqual(
    taken.filter((name) => !/^[\w-]+\.js$/.test(name)),
    [],
  );
  assert.ok(taken.length < 90, `${taken.length} files`);
});

test('the lock file names every optional package, for each platform, as npm ci wants it', () => {
  const { packages } = JSON.parse(readFileSync(join(projectRoot, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { optionalDependencies?: Record<string, string> }>;
  };
  const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter(
      (name) =>
        packages[`node_modules/${name}`] === undefined && packages[`${path}/node_modules/${name}`] === undefined,
    ),
  );
  assert.deepEqual(missing, []);
});
