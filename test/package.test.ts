import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { join, posix } from 'node:path';
import { test } from 'node:test';
import { fileLinks } from './support/file-links.js';
import { LoadedFiles } from './support/loaded-files.js';
import { projectRoot } from './support/project.js';
import { adminPassword, ServerProcess } from './support/server-process.js';
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
    'dist/server/entry.js',
    'dist/server/plugin.js',
    'dist/server/testing.js',
    'dist/types/core/plugin.d.ts',
    'dist/types/test/kit/index.d.ts',
    'dist/types/packages/zod/package.json',
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
      !/^(dist\/(server|types)|views|public|docs|deploy)\/|^dist\/core\/(postern|host\/import-module)\.cjs$|^plugins\/[\w-]+\/README\.md$|^[\w-]+(\.md|\.json)?$/.test(
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

const serverFolder = join(projectRoot, 'dist', 'server');

/** Names and versions of the packages whose code is in `dist/server`. */
const bundled = [
  ...readFileSync(join(serverFolder, 'LICENSES.txt'), 'utf8').matchAll(/(?:^|\n-{72}\n\n)(\S+ \S+) \(.*\)\n/g),
].map(([, line = '']) => line);

test('what is bundled is in the lock file, with one nodemailer, and has its licence beside it', () => {
  const { packages } = JSON.parse(readFileSync(join(projectRoot, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string }>;
  };
  const locked = Object.entries(packages).map(
    ([path, { version }]) => `${path.replace(/^.*node_modules\//, '')} ${version}`,
  );
  assert.deepEqual(
    bundled.filter((line) => !locked.includes(line)),
    [],
  );
  const { devDependencies: wanted } = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as {
    devDependencies: Record<string, string>;
  };
  const others = bundled.filter((line) => {
    const [name = '', version] = line.split(' ');
    return (wanted[name] ?? version) !== version;
  });
  assert.deepEqual(others, [], 'one version of what package.json names');
  assert.equal(bundled.filter((line) => line.startsWith('nodemailer ')).length, 1);
  for (const name of [
    'koa',
    'koa-body',
    'lowdb',
    'mailauth',
    'mailparser',
    'nunjucks',
    'prom-client',
    'sanitize-html',
    'smtp-server',
  ]) {
    assert.ok(bundled.includes(`${name} ${wanted[name]}`), name);
  }
});

test('the files of the command need nothing but each other and Node.js', () => {
  const strange = readdirSync(serverFolder)
    .filter((file) => file.endsWith('.js'))
    .flatMap((file) =>
      [...readFileSync(join(serverFolder, file), 'utf8').matchAll(/(?<![\w$.])(?:require|import)\("([^"]+)"\)/g)]
        .filter(([, name = '']) => !isBuiltin(name) && !(name.startsWith('./') && existsSync(join(serverFolder, name))))
        .map(([call]) => `${file}: ${call}`),
    );
  assert.deepEqual(strange, []);
});

/** Packages in CommonJS of which a part is in the file. */
const packagesIn = (file: string): readonly string[] => [
  ...new Set(
    [...readFileSync(file, 'utf8').matchAll(/^\s*"node_modules\/(?:.*\/node_modules\/)?((?:@[^/]+\/)?[^/]+)\//gm)].map(
      ([, name = '']) => name,
    ),
  ),
];

/** Large, and needed by few requests and messages. What is an ES module, as koa-body is, is seen by what it needs. */
const late = ['co-body', 'joi', 'libmime', 'mailauth', 'mailparser', 'postcss', 'qs', 'sanitize-html'];

const maxStartBytes = 5_000_000;

test('a start reads few files, and no package that only some requests and messages need', async (t) => {
  const loaded = await LoadedFiles.prepare(t);
  const env = { ...loaded.env, POSTERN_ADMIN_PASSWORD: adminPassword };
  const server = await ServerProcess.start(t, { folder: await temporaryFolder(t), env });
  const files = (await loaded.of(server)).filter((file) => file.startsWith(serverFolder));
  assert.ok(files.length > 20 && files.length < 90, `${files.length} files`);
  const bytes = files.reduce((sum, file) => sum + statSync(file).size, 0);
  t.diagnostic(`${files.length} files, ${(bytes / 1e6).toFixed(2)} MB`);
  assert.ok(bytes < maxStartBytes, `${bytes} bytes`);
  const packages = files.flatMap(packagesIn);
  assert.ok(packages.includes('koa'), String(packages));
  assert.deepEqual(
    packages.filter((name) => late.includes(name)),
    [],
  );
  const everything = readdirSync(serverFolder).flatMap((name) => packagesIn(join(serverFolder, name)));
  assert.deepEqual(
    late.filter((name) => !everything.includes(name)),
    [],
  );
});

test('what is not bundled gets the versions that package.json names as well, when tests run', async () => {
  for (const name of ['mailauth/lib/dkim/verify.js', 'mailauth/lib/spf/index.js', 'mailparser', 'smtp-server']) {
    await import(name);
  }
  const files = Object.keys(createRequire(import.meta.url).cache);
  for (const name of ['nodemailer', 'ipaddr.js', 'libmime']) {
    const folders = files.flatMap((file) => new RegExp(`^.*/node_modules/${name}/`).exec(file)?.[0] ?? []);
    assert.deepEqual([...new Set(folders)], [join(projectRoot, 'node_modules', name, '/')]);
  }
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
