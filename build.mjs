/**
 * Builds Postern: compiles the TypeScript to dist/ and copies the browser libraries to public/vendor/.
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
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
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

/** `npx postern` runs this checkout, as it runs an installed package. */
function link() {
  const command = join(root, 'dist', 'core', 'postern.cjs');
  const bin = join(root, 'node_modules', '.bin');
  if (!existsSync(command) || !existsSync(bin) || process.platform === 'win32') return;
  chmodSync(command, 0o755);
  rmSync(join(bin, 'postern'), { force: true });
  symlinkSync(join('..', '..', 'dist', 'core', 'postern.cjs'), join(bin, 'postern'));
}

function build() {
  const started = new Date();
  vendor();
  if (!compile()) process.exit(1);
  sweep();
  writeFileSync(stamp, '');
  utimesSync(stamp, started, started);
}

const argument = process.argv[2];
if (argument !== '--if-stale' || stale()) build();
link();
if (argument === '--watch') {
  const tsc = createRequire(import.meta.url).resolve('typescript/package.json');
  const run = (args) => spawn(process.execPath, args, { stdio: 'inherit', cwd: root });
  const children = [
    run([join(dirname(tsc), 'bin', 'tsc'), '-p', root, '--watch', '--preserveWatchOutput']),
    run(['--watch', join('dist', 'core', 'postern.cjs'), 'start', ...process.argv.slice(3)]),
  ];
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => children.forEach((child) => child.kill(signal)));
}
