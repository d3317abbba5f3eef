/** Collects the declarations that plugins and their tests import, with those of the packages that they name. */
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
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

/** Where a file is among them: `core/plugin.d.ts`, `node_modules/zod/index.d.ts` as `packages/zod/index.d.ts`. */
export const placeOf = (file) =>
  relative(root, resolve(root, file))
    .replace(/^dist\//, '')
    .replace(/\.js$/, '.d.ts')
    .replaceAll('node_modules/', 'packages/');

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
function copyManifest(file, out) {
  const [, folder] = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file) ?? [];
  if (folder === undefined || existsSync(join(out, placeOf(folder), 'package.json'))) return;
  const { name, version, license, type = 'commonjs' } = json(join(folder, 'package.json'));
  write(join(out, placeOf(folder), 'package.json'), `${JSON.stringify({ name, version, license, type }, null, 2)}\n`);
  const licence = ['LICENSE', 'LICENSE.md', 'license', 'LICENSE.txt'].find((one) => existsSync(join(folder, one)));
  if (licence !== undefined) copyFileSync(join(folder, licence), join(out, placeOf(folder), licence));
}

/**
 * Writes the declarations of compiled modules anew, and of all that they name.
 *
 * @param out the folder, absolute
 * @param modules such as `dist/core/plugin.js`
 */
export function writeDeclarations(out, modules) {
  rmSync(out, { recursive: true, force: true });
  const done = new Set();
  const waiting = modules.map((module) => declarationAt(join(root, module)));
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (done.has(file)) continue;
    done.add(file);
    const { text, named } = rewritten(file);
    write(join(out, placeOf(file)), text);
    copyManifest(file, out);
    waiting.push(...named);
  }
}
