/**
 * Writes the package `postern-plugin-kit`: the types of what plugins and their tests import, with those of the packages that they
 * name. Run it after a build:
 *   node plugin-kit.mjs           to dist/plugin-kit/
 *   node plugin-kit.mjs FOLDER    elsewhere
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(root, 'dist', 'plugin-kit'));
const json = (path) => JSON.parse(readFileSync(path, 'utf8'));
const write = (path, text) => {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
};

/** The folder of an installed package, as Node.js finds it from a file; undefined when it is not installed. */
function packageFolder(name, from) {
  for (let folder = dirname(from); folder.startsWith(root); folder = dirname(folder)) {
    const found = join(folder, 'node_modules', name);
    if (existsSync(join(found, 'package.json'))) return found;
  }
  return undefined;
}

/** The declarations that a package has itself, or those of `@types`. */
function packageTypes(name, from) {
  for (const one of [name, `@types/${name}`]) {
    const folder = packageFolder(one, from);
    if (folder === undefined) continue;
    const { exports, types, typings } = json(join(folder, 'package.json'));
    const entry = [exports?.['.']?.import?.types, exports?.['.']?.types, types, typings].find((path) => path);
    if (entry !== undefined) return resolve(folder, entry);
  }
  throw new Error(`${relative(root, from)} names ${name}, of which there are no types.`);
}

/** The file that a relative specifier of a declaration means. */
function declarationAt(path) {
  const candidates = [path.replace(/\.([cm]?)js$/, '.d.$1ts'), `${path}.d.ts`, join(path, 'index.d.ts'), path];
  const found = candidates.find((candidate) => /\.d\.[cm]?ts$/.test(candidate) && existsSync(candidate));
  if (found === undefined) throw new Error(`There are no types in ${path}.`);
  return found;
}

/** Where a file is in the package: `core/plugin.d.ts`, `node_modules/zod/index.d.ts` as `packages/zod/index.d.ts`. */
const placeOf = (file) =>
  join(
    'types',
    relative(root, file)
      .replace(/^dist\//, '')
      .replaceAll('node_modules/', 'packages/'),
  );

/** A specifier with what is before it; or a comment, whose examples do not count. */
const specifiers = /\/\*[^]*?\*\/|\/\/[^\n]*|(\bfrom\s*|\bimport\(\s*|\bimport\s+|\brequire\(\s*)(['"])([^'"\n]+)\2/g;

/** A declaration with the packages that it names as paths, and the files that it names. */
function rewritten(file) {
  const named = [];
  const text = readFileSync(file, 'utf8').replaceAll(specifiers, (whole, before, quote, specifier) => {
    if (specifier === undefined || isBuiltin(specifier)) return whole;
    const isRelative = specifier.startsWith('.');
    const target = isRelative ? declarationAt(resolve(dirname(file), specifier)) : packageTypes(specifier, file);
    named.push(target);
    if (isRelative) return whole;
    const path = relative(dirname(placeOf(file)), placeOf(target)).replace(/\.d\.([cm]?)ts$/, '.$1js');
    return `${before}${quote}${path.startsWith('.') ? path : `./${path}`}${quote}`;
  });
  return { text, named };
}

/** Copies a package's manifest, as far as a compiler looks at it, and its licence. */
function copyManifest(file) {
  const [, folder] = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file) ?? [];
  if (folder === undefined || existsSync(join(out, placeOf(folder), 'package.json'))) return;
  const { name, version, license, type = 'commonjs' } = json(join(folder, 'package.json'));
  write(join(out, placeOf(folder), 'package.json'), `${JSON.stringify({ name, version, license, type }, null, 2)}\n`);
  const licence = ['LICENSE', 'LICENSE.md', 'license', 'LICENSE.txt'].find((one) => existsSync(join(folder, one)));
  if (licence !== undefined) copyFileSync(join(folder, licence), join(out, placeOf(folder), licence));
}

const entries = { plugin: 'dist/core/plugin.d.ts', testing: 'dist/test/kit/index.d.ts' };
rmSync(out, { recursive: true, force: true });
const done = new Set();
const waiting = Object.values(entries).map((entry) => join(root, entry));
for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
  if (done.has(file)) continue;
  done.add(file);
  const { text, named } = rewritten(file);
  write(join(out, placeOf(file)), text);
  copyManifest(file);
  waiting.push(...named);
}

const { version, license, engines } = json(join(root, 'package.json'));
const parts = Object.entries(entries).map(([name, entry]) => {
  const types = `./${placeOf(join(root, entry)).split(sep).join('/')}`;
  write(join(out, `${name}.js`), `export * from 'postern/${name}';\n`);
  return [`./${name}`, { types, default: `./${name}.js` }];
});
const manifest = {
  name: 'postern-plugin-kit',
  version,
  description: 'Types for plugins of the mail server Postern, and for their tests.',
  license,
  type: 'module',
  engines,
  types: './index.d.ts',
  exports: { '.': { types: './index.d.ts' }, ...Object.fromEntries(parts), './package.json': './package.json' },
  peerDependencies: { postern: `^${version}` },
  peerDependenciesMeta: { postern: { optional: true } },
};
write(join(out, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
const modules = Object.keys(entries).map(
  (name) => `declare module 'postern/${name}' {\n  export * from 'postern-plugin-kit/${name}';\n}\n`,
);
write(join(out, 'index.d.ts'), modules.join(''));
copyFileSync(join(root, 'docs', 'plugin-kit.md'), join(out, 'README.md'));
copyFileSync(join(root, 'LICENSE'), join(out, 'LICENSE'));
const bytes = [...done].reduce((sum, file) => sum + statSync(join(out, placeOf(file))).size, 0);
console.error(`postern-plugin-kit ${version}: ${done.size} files of types, ${(bytes / 1e6).toFixed(2)} MB`);
