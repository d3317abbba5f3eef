/**
 * Builds Postern: compiles the TypeScript to dist/, puts what the command runs into the few files of dist/server/, the types of
 * the kit for plugins into dist/types/, and copies the browser libraries to public/vendor/.
 *   node build.mjs             always
 *   node build.mjs --if-stale  only when a source is newer than the last build
 *   node build.mjs --watch     builds, then compiles on every change and restarts the server
 */
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const stamp = join(root, 'dist', '.built');
const sources = ['core', 'plugins', 'test', 'bench', 'package.json', 'package-lock.json', 'tsconfig.json', 'build.mjs'];
const vendored = {
  'htmx.min.js': 'htmx.org/dist/htmx.min.js',
  'sse.js': 'htmx-ext-sse/sse.js',
  'uplot.js': 'uplot/dist/uPlot.iife.min.js',
  'uplot.css': 'uplot/dist/uPlot.min.css',
};

function newest(path) {
  if (!existsSync(path)) return 0;
  const entry = statSync(path);
  if (!entry.isDirectory()) return entry.mtimeMs;
  return Math.max(0, ...readdirSync(path).map((name) => newest(join(path, name))));
}

function stale() {
  if (!existsSync(join(root, 'tsconfig.json')) || !existsSync(join(root, 'core', 'main.ts'))) return false;
  if (!existsSync(stamp)) return true;
  const built = statSync(stamp).mtimeMs;
  return sources.some((source) => newest(join(root, source)) > built);
}

function compile() {
  const tsc = createRequire(import.meta.url).resolve('typescript/package.json');
  return spawnSync(process.execPath, [join(dirname(tsc), 'bin', 'tsc'), '-p', root], { stdio: 'inherit' }).status === 0;
}

function vendor() {
  const folder = join(root, 'public', 'vendor');
  mkdirSync(folder, { recursive: true });
  for (const [name, source] of Object.entries(vendored)) {
    copyFileSync(join(root, 'node_modules', source), join(folder, name));
  }
}

/** Numbers and times look the same on pages and in what scripts write. */
async function shareFormat() {
  const { build } = await import('esbuild');
  const outfile = join(root, 'public', 'vendor', 'format.js');
  const entryPoints = [join(root, 'core', 'text', 'format.ts')];
  await build({ entryPoints, outfile, bundle: true, format: 'iife', globalName: 'format', legalComments: 'none' });
}

/** What was compiled from a source that is gone would be tested and packed for ever. */
function sweep() {
  for (const folder of ['core', 'plugins', 'test', 'bench'].map((name) => join('dist', name))) {
    if (!existsSync(join(root, folder))) continue;
    for (const name of readdirSync(join(root, folder), { recursive: true })) {
      const compiled = /^(.*?)(?:\.d)?\.([cm]?)[jt]s(?:\.map)?$/.exec(join(folder, name));
      if (compiled === null) continue;
      const source = join(root, `${compiled[1].slice('dist/'.length)}.${compiled[2]}ts`);
      if (!existsSync(source)) rmSync(join(root, folder, name));
    }
  }
}

const target = 'node20.19';

/** What plugins and their tests import, `postern/plugin` and `postern/testing`. */
const kit = { plugin: 'dist/core/plugin.js', testing: 'dist/test/kit/index.js' };

/** Says what `postern/…` is in a tree: a plugin gets it from the one that runs. */
function writeManifest(folder, type, files) {
  const exports = Object.entries(files).map(([name, file]) => [`./${name}`, { default: `./${file}` }]);
  const manifest = { name: 'postern', type, exports: Object.fromEntries(exports) };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

/** The manifest of what the compiler writes, which runs in tests and while somebody develops. */
function describeCompiled() {
  const places = Object.entries(kit).map(([name, file]) => [name, file.slice('dist/'.length)]);
  writeManifest(join(root, 'dist'), 'module', Object.fromEntries(places));
}

/** Large tables are read as JSON, which takes a fraction of the time that the same takes as a program. */
const tables = {
  name: 'tables',
  setup(bundling) {
    bundling.onLoad({ filter: /\.json$/ }, ({ path }) => {
      const text = JSON.stringify(JSON.parse(readFileSync(path, 'utf8')));
      return { contents: `module.exports = JSON.parse(${JSON.stringify(text)});`, loader: 'js' };
    });
  },
};

/** Translations of the messages of zod, half of its size, are read when a plugin asks for one. */
const translations = {
  name: 'translations',
  setup(bundling) {
    bundling.onResolve({ filter: /\/locales\/index\.js$/ }, ({ path, resolveDir }) => {
      return { path: join(resolveDir, path), namespace: 'translations' };
    });
    bundling.onLoad({ filter: /./, namespace: 'translations' }, ({ path }) => {
      const names = [...readFileSync(path, 'utf8').matchAll(/default as (\w+)/g)].map(([, name]) => name);
      const getters = names.map((name) => `get ${name}() { return require('zod/v4/locales').${name}; }`);
      return { contents: `module.exports = { ${getters.join(', ')} };`, loader: 'js' };
    });
    bundling.onResolve({ filter: /^zod\/v4\/locales$/ }, ({ path }) => ({ path, external: true }));
  },
};

/**
 * Packages ask for versions of others, such as nodemailer, that have known faults. Where package.json names one, all get that
 * one. `test/one-version.cjs` does the same for what is not bundled.
 */
const oneVersion = {
  name: 'one version',
  setup(bundling) {
    const { devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    bundling.onResolve({ filter: /^[@a-z]/ }, ({ path, kind, importer, pluginData }) => {
      const [name] = /^(?:@[^/]+\/)?[^/]+/.exec(path);
      if (pluginData === oneVersion || !importer.includes('node_modules') || !Object.hasOwn(devDependencies, name))
        return;
      return bundling.resolve(path, { kind, importer, resolveDir: root, pluginData: oneVersion });
    });
  },
};

/**
 * A start that reads a thousand small files takes twice as long as one that reads twenty large ones. All lie in one folder, so
 * that a module finds its worker beside itself wherever it went.
 * Neither minified nor renamed: a stack still tells what went wrong.
 */
async function bundle() {
  const { build, transform } = await import('esbuild');
  const entries = { entry: 'dist/core/entry.js', ...Object.fromEntries(workers()), ...kit };
  const outdir = join(root, 'dist', 'server');
  const { metafile, outputFiles } = await build({
    write: false,
    absWorkingDir: root,
    entryPoints: entries,
    outdir,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target,
    metafile: true,
    legalComments: 'none',
    plugins: [tables, translations, oneVersion],
    logLevel: 'warning',
    chunkNames: 'part-[hash]',
  });
  mkdirSync(outdir, { recursive: true });
  for (const { path, text } of outputFiles) writeFileSync(path, await asCommonJs(text, transform));
  const places = Object.keys(kit).map((name) => [name, `${name}.js`]);
  writeManifest(outdir, 'commonjs', Object.fromEntries(places));
  writeFileSync(join(outdir, 'LICENSES.txt'), licensesOf(Object.keys(metafile.inputs)));
  const made = new Set([
    ...Object.keys(metafile.outputs).map((path) => basename(path)),
    'package.json',
    'LICENSES.txt',
  ]);
  for (const name of readdirSync(outdir)) if (!made.has(name)) rmSync(join(outdir, name), { recursive: true });
}

/**
 * What V8 has compiled of CommonJS can be kept in every release of Node. The bundler divides ES modules only, so that each of
 * its files is turned into CommonJS afterwards.
 */
async function asCommonJs(text, transform) {
  const { code } = await transform(text, {
    format: 'cjs',
    platform: 'node',
    target,
    supported: { 'dynamic-import': false },
    define: { 'import.meta.url': '__url' },
    banner: `'use strict';\nconst __url = require('node:url').pathToFileURL(__filename).href;`,
  });
  return withPlainExports(code);
}

/**
 * The bundler exports each name by two getters, which V8 cannot look through: they run at each use in another file. Here
 * nothing changes what it exports and no files import each other in a circle, so that values do. A package in CommonJS that
 * is imported late has its own names beside `default`, as Node gives them. Node finds the names in the last line, which never runs.
 */
function withPlainExports(code) {
  const getters = /^__export\(stdin_exports, \{\n([^]*?)\n\}\);\nmodule\.exports = __toCommonJS\(stdin_exports\);$/m;
  const [found, list] = getters.exec(code) ?? [];
  if (found === undefined) return code;
  const isCommonJs = /^var stdin_default = require_\w+\(\);$/m.test(code);
  const values = `{\n${isCommonJs ? '  ...stdin_default,\n' : ''}${list.replaceAll(': () => ', ': ')}\n}`;
  const names = [...list.matchAll(/^ {2}(?!default:)(\w+): /gm)].map(([, name]) => name);
  const exported = `module.exports = __defProp(${values}, '__esModule', { value: true });`;
  return `${code.replace(found, '')}\n${exported}\n0 && (module.exports = { ${names.join(', ')} });\n`;
}

/** Modules that run in a thread or a process of their own: their users name them by `new URL('./NAME.js', import.meta.url)`. */
function workers() {
  const shipped = ['core', 'plugins'].flatMap((folder) =>
    readdirSync(join(root, 'dist', folder), { recursive: true }).map((name) => join('dist', folder, name)),
  );
  return shipped
    .filter((path) => path.endsWith('.js'))
    .flatMap((path) =>
      [...readFileSync(join(root, path), 'utf8').matchAll(/new URL\('\.\/([\w-]+)\.js', import\.meta\.url\)/g)].map(
        ([, name]) => [name, join(dirname(path), `${name}.js`)],
      ),
    );
}

/** The licences of the packages whose code is in the files. */
function licensesOf(inputs) {
  const folders = new Set(
    inputs.flatMap((path) => /^(?!\w+:).*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []),
  );
  return [...folders]
    .toSorted((a, b) => (a < b ? -1 : 1))
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'));
      return `${name} ${version} (${license})\n\n${licenseText(join(root, folder))}\n`;
    })
    .join(`\n${'-'.repeat(72)}\n\n`);
}

/** Of a package with a choice MIT's; some have it in the file that introduces them. */
function licenseText(folder) {
  const names = readdirSync(folder);
  const files = names.filter((name) => /^licen[cs]e(?!.*\.json$)/i.test(name)).toSorted();
  const file = files.find((name) => /\bMIT\b/.test(name)) ?? files[0];
  if (file !== undefined) return readFileSync(join(folder, file), 'utf8').trim();
  const introduction = names.find((name) => /^readme/i.test(name));
  const text = introduction === undefined ? '' : readFileSync(join(folder, introduction), 'utf8');
  return (/^#+ *licen[cs]e\b[^]*/im.exec(text)?.[0] ?? '').replaceAll(/^\[.*\]: .*$/gm, '').trim();
}

/** `npx postern` runs this checkout, as it runs an installed package. */
function link() {
  const command = join(root, 'dist', 'core', 'postern.cjs');
  const bin = join(root, 'node_modules', '.bin');
  if (!existsSync(command) || !existsSync(bin) || process.platform === 'win32') return;
  chmodSync(command, 0o755);
  rmSync(join(bin, 'postern'), { force: true });
  symlinkSync(join('..', '..', 'dist', 'core', 'postern.cjs'), join(bin, 'postern'));
}

/** Ends with a sentence when this cannot build here. */
function refuse() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  const isOld = major < 20 || (major === 20 && minor < 19);
  const why = isOld
    ? `Postern needs Node.js 20.19 or newer; this is ${process.versions.node}.`
    : existsSync(join(root, 'node_modules', 'typescript'))
      ? undefined
      : 'Postern is not built, and the packages to build it are not installed: run npm ci first.';
  if (why === undefined) return;
  console.error(why);
  process.exit(1);
}

async function build() {
  refuse();
  const started = new Date();
  console.error('Building Postern …');
  vendor();
  if (!compile()) process.exit(1);
  sweep();
  describeCompiled();
  await bundle();
  const { writeDeclarations } = await import('./declarations.mjs');
  writeDeclarations(join(root, 'dist', 'types'), Object.values(kit));
  await shareFormat();
  writeFileSync(stamp, '');
  utimesSync(stamp, started, started);
  console.error(`Built in ${((Date.now() - started.getTime()) / 1000).toFixed(1)} s.`);
}

const argument = process.argv[2];
if (argument !== '--if-stale' || stale()) await build();
link();
if (argument === '--watch') {
  const tsc = createRequire(import.meta.url).resolve('typescript/package.json');
  // What the compiler has just written, not what was put together before.
  const env = { UV_THREADPOOL_SIZE: '16', ...process.env };
  const run = (args) => spawn(process.execPath, args, { stdio: 'inherit', cwd: root, env });
  const children = [
    run([join(dirname(tsc), 'bin', 'tsc'), '-p', root, '--watch', '--preserveWatchOutput']),
    run([
      '--watch',
      '--require',
      './test/one-version.cjs',
      join('dist', 'core', 'cli', 'cli.js'),
      'start',
      ...process.argv.slice(3),
    ]),
  ];
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => children.forEach((child) => child.kill(signal)));
}
