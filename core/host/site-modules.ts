import { existsSync, readFileSync } from 'node:fs';
import Module, { createRequire, register } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { packageRoot } from './installation.js';
import type { KitPlaces } from './kit-resolver.js';
import * as kit from '../plugin.js';

/** Query parameter that makes Node load a changed file as a new module. */
const versionParameter = 'postern';

/** Versions of each file that were imported: they stay in memory until the process ends. */
const versions = new Map<string, Set<string>>();

/** How many versions of a module are in memory. */
export const versionsOf = (file: string): number => versions.get(file)?.size ?? 0;

/**
 * Imports a module and what it imports by relative paths. Equal versions yield the same module; old versions stay in
 * memory.
 *
 * @param file absolute; an ES module or CommonJS
 * @param beside all files that belong to it, absolute
 */
export async function importVersion(
  file: string,
  version: string,
  beside: readonly string[],
): Promise<Readonly<Record<string, unknown>>> {
  resolveKitHere();
  const known = versions.get(file) ?? new Set();
  versions.set(file, known);
  const url = pathToFileURL(file);
  url.searchParams.set(versionParameter, version);
  // CommonJS caches by path alone.
  if (!known.has(version)) for (const path of beside) delete requireHere.cache[path];
  known.add(version);
  return importModule(url.href);
}

const requireHere = createRequire(import.meta.url);

const importModule = requireHere(join(packageRoot, 'dist', 'core', 'host', 'import-module.cjs')) as (
  url: string,
) => Promise<Readonly<Record<string, unknown>>>;

let registered = false;

/**
 * Resolves `postern/plugin`, and the other exports of the package, to the running server's modules, wherever a plugin
 * is.
 */
export function resolveKitHere(): void {
  if (registered) return;
  registered = true;
  const exported = exportedModules();
  const data: KitPlaces = { exported, parameter: versionParameter };
  register(new URL('./kit-resolver.js', import.meta.url), { data });
  requireKitHere(exported);
}

/**
 * The exports of the running modules by specifier: `./testing` is `postern/testing`. The bundle has a manifest beside
 * its files, the compiler's output has one above its folders.
 */
function exportedModules(): Readonly<Record<string, string>> {
  const here = new URL('./', import.meta.url);
  const root = existsSync(new URL('package.json', here)) ? here : new URL('../../', import.meta.url);
  const manifest = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as Manifest;
  const modules = Object.entries(manifest.exports).flatMap(([name, target]) =>
    typeof target === 'string' ? [] : [[`${manifest.name}${name.slice(1)}`, new URL(target.default, root).href]],
  );
  return Object.fromEntries(modules) as Record<string, string>;
}

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
}

type ResolveFilename = (request: string, ...more: readonly unknown[]) => string;

/** For `require('postern/plugin')`: Node 20 has no module hooks that `require` uses. */
function requireKitHere(exported: Readonly<Record<string, string>>): void {
  const loader = Module as unknown as { _resolveFilename: ResolveFilename };
  const resolve = loader._resolveFilename;
  loader._resolveFilename = function resolveKit(this: unknown, request, ...more) {
    const url = Object.hasOwn(exported, request) ? exported[request] : undefined;
    return url === undefined ? resolve.call(this, request, ...more) : fileURLToPath(url);
  };
  const path = fileURLToPath(exported['postern/plugin'] ?? import.meta.url);
  const loaded = new Module(path);
  requireHere.cache[path] = Object.assign(loaded, { filename: path, loaded: true, exports: kit });
}
