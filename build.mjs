/**
 * Builds Postern: compiles the TypeScript to dist/, puts what the command runs into the few files of dist/server/, and copies the
 * browser libraries to public/vendor/.
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

/** Loaded when somebody needs them, as packages: a start does not wait for them, and most servers never want them. */
const loadedLate = ['htmlparser2', 'koa-body', 'mailauth', 'mailparser', 'sanitize-html'];

const target = 'node20.19';

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
 * A start that reads a thousand small files takes twice as long as one that reads twenty large ones. All lie in one folder, so
 * that a module finds its worker beside itself wherever it went, and a manifest of their own says what `postern/…` is there.
 * Neither minified nor renamed: a stack still tells what went wrong.
 */
async function bundle() {
  const { build, transform } = await import('esbuild');
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const kit = Object.entries(exports).flatMap(([name, { default: file }]) => (file ? [[basename(name), file]] : []));
  const entries = { entry: 'dist/core/entry.js', ...Object.fromEntries([...workers(), ...kit]) };
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
    external: loadedLate,
    metafile: true,
    legalComments: 'none',
    plugins: [tables, translations],
    logLevel: 'warning',
    chunkNames: 'part-[hash]',
  });
  mkdirSync(outdir, { recursive: true });
  for (const { path, text } of outputFiles) writeFileSync(path, await asCommonJs(text, transform));
  const manifest = {
    name: 'postern',
    type: 'commonjs',
    exports: Object.fromEntries(kit.map(([name]) => [`./${name}`, { default: `./${name}.js` }])),
  };
  writeFileSync(join(outdir, 'package.json'), JSON.stringify(manifest, null, 2));
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
 * nothing changes what it exports and no files import each other in a circle, so that values do.
 */
function withPlainExports(code) {
  const getters = /^__export\(stdin_exports, \{\n([^]*?)\n\}\);\nmodule\.exports = __toCommonJS\(stdin_exports\);$/m;
  const [found, list] = getters.exec(code) ?? [];
  if (found === undefined) return code;
  const values = `{\n${list.replaceAll(': () => ', ': ')}\n}`;
  return `${code.replace(found, '')}\nmodule.exports = __defProp(${values}, '__esModule', { value: true });\n`;
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
      const file = readdirSync(join(root, folder)).find((entry) => /^licen[cs]e/i.test(entry));
      const text = file === undefined ? '' : `\n${readFileSync(join(root, folder, file), 'utf8').trim()}\n`;
      return `${name} ${version} (${license})\n${text}`;
    })
    .join(`\n${'-'.repeat(72)}\n\n`);
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
  await bundle();
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
    run(['--watch', join('dist', 'core', 'cli', 'cli.js'), 'start', ...process.argv.slice(3)]),
  ];
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => children.forEach((child) => child.kill(signal)));
}
