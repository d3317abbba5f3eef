import { existsSync, readFileSync, statSync } from 'node:fs';
import { createRequire, register } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { KitPlaces } from './kit-resolver.js';
import { isPlugin, kitVersion, type Plugin } from './plugin.js';
import { startError } from './start-error.js';

/**
 * Loads the plugins of the site: a file, a folder with an `index.js` or a `package.json`, or the name of a package that
 * is installed where the configuration file is. A module may export several plugins.
 */
export async function loadSitePlugins(names: readonly string[], folder: string): Promise<readonly Plugin[]> {
  if (names.length > 0) resolveKitHere();
  const found: Plugin[] = [];
  for (const name of names) found.push(...(await loadOne(name, folder)));
  return found;
}

const places = new WeakMap<Plugin, string>();

/** URL of the file of a plugin of the site, or of its folder, with a `/` at its end; undefined for others. */
export const placeOf = (plugin: Plugin): string | undefined => places.get(plugin);

async function loadOne(name: string, folder: string): Promise<readonly Plugin[]> {
  const entry = entryOf(name, folder);
  const url = pathToFileURL(entry).href;
  const plugins = [...new Set(Object.values(await importModule(name, url)))].filter(isPlugin);
  if (plugins.length === 0) {
    throw startError(`Site plugin ${name} exports no plugin: export what definePlugin returns.`);
  }
  const place = folderOf(name, folder, entry);
  for (const plugin of plugins) {
    refuseOtherKit(name, plugin);
    places.set(plugin, place === undefined ? url : `${pathToFileURL(place).href}/`);
  }
  return plugins;
}

async function importModule(name: string, url: string): Promise<Readonly<Record<string, unknown>>> {
  try {
    return (await import(url)) as Record<string, unknown>;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw startError(`Site plugin ${name} cannot be loaded: ${reason}`, cause);
  }
}

function refuseOtherKit(name: string, plugin: Plugin): void {
  if (plugin.kit === kitVersion) return;
  throw startError(
    `Site plugin ${name} (${plugin.name}) is written for version ${plugin.kit} of the plugin kit; this server speaks version ${kitVersion}.`,
  );
}

/** The file that a name leads to. @throws start error when there is none */
export function entryOf(name: string, folder: string): string {
  const path = resolve(folder, name);
  if (existsSync(path)) return statSync(path).isDirectory() ? entryOfFolder(name, path) : path;
  if (/^[./]/.test(name)) throw startError(`Site plugin ${name}: there is no file or folder ${path}.`);
  try {
    return createRequire(join(folder, 'postern.json5')).resolve(name);
  } catch (cause) {
    throw startError(`Site plugin ${name}: neither a file or folder ${path} nor an installed package.`, cause);
  }
}

/** Undefined when the plugin is a file of its own. */
function folderOf(name: string, folder: string, entry: string): string | undefined {
  const path = resolve(folder, name);
  if (!existsSync(path)) return dirname(entry);
  return statSync(path).isDirectory() ? path : undefined;
}

function entryOfFolder(name: string, path: string): string {
  const manifest = join(path, 'package.json');
  const main = existsSync(manifest) ? mainOf(manifest) : undefined;
  const entry = join(path, main ?? 'index.js');
  if (!existsSync(entry)) throw startError(`Site plugin ${name}: the folder has no ${main ?? 'index.js'}.`);
  return entry;
}

function mainOf(manifest: string): string | undefined {
  try {
    const { main } = JSON.parse(readFileSync(manifest, 'utf8')) as { main?: unknown };
    return typeof main === 'string' ? main : undefined;
  } catch (cause) {
    throw startError(`${manifest} is not valid JSON.`, cause);
  }
}

let registered = false;

/** `postern/plugin`, and all else that the package exports, is this process's own, wherever the plugin lies. */
export function resolveKitHere(): void {
  if (registered) return;
  registered = true;
  register(new URL('./kit-resolver.js', import.meta.url), {
    data: { exported: exportedModules() } satisfies KitPlaces,
  });
}

/**
 * The package itself says what it exports: `./testing` is imported as `postern/testing`. What the command runs lies in a folder with
 * a manifest of its own, which exports the same in the form that runs.
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
