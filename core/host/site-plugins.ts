import { basename, dirname, extname } from 'node:path';
import { pathToFileURL } from 'node:url';
import { redactedMessage } from './plugin-faults.js';
import { declarationComplaints, kitComplaint, kitVersion } from './declaration.js';
import { locationBelow } from './uncaught.js';
import { isPlugin, type Plugin } from '../plugin.js';
import type { LoadedSite, SiteModule, UnloadedSite } from './plugin-set.js';
import {
  filesOf,
  findSitePlugin,
  registerSiteLocation,
  type SiteEntry,
  type SiteFiles,
  type SiteLocation,
} from './site-files.js';
import { importVersion } from './site-modules.js';
import { isStartError, startError } from '../problem.js';
import { withTimeout } from '../concurrency.js';

/** Loads the site plugins; one that cannot be loaded does not stop the others. */
export async function loadSitePlugins(entries: readonly SiteEntry[], folder: string): Promise<LoadedSite> {
  const modules: SiteModule[] = [];
  const unloaded: UnloadedSite[] = [];
  for (const entry of entries) {
    try {
      const module = await loadSitePlugin(entry, folder);
      for (const plugin of module.plugins) refuseDeclaration(entry, plugin);
      modules.push(module);
    } catch (error) {
      if (!isStartError(error)) throw error;
      unloaded.push({
        entry,
        name: nameOf(entry),
        fingerprint: await knownFingerprint(entry, folder),
        why: error.message,
      });
    }
  }
  return { modules, unloaded };
}

/**
 * Imports one: its code runs, its `setup` does not. The same module again while its files are unchanged. Does not check
 * declarations.
 *
 * @throws start error
 */
export async function loadSitePlugin(entry: SiteEntry, folder: string): Promise<SiteModule> {
  const { from } = entry;
  const { place, files } = await findCode(from, folder);
  registerSiteLocation(place, from);
  if (place.kit !== undefined) refuseKit(from, 'its package.json', place.kit);
  const exported = await importModule(entry, place, files);
  const plugins = [...new Set(Object.values(exported))].filter(isPlugin);
  if (plugins.length === 0) {
    throw startError(`Site plugin ${from} exports no plugin: export what definePlugin returns.`);
  }
  for (const plugin of plugins) {
    refuseKit(from, plugin.name, plugin.kit);
    places.set(plugin, place.folder === undefined ? urlOf(place.entry) : `${urlOf(place.folder)}/`);
  }
  return { entry, place, fingerprint: files.fingerprint, plugins };
}

/** @throws start error, also for errors of the file system */
async function findCode(
  from: string,
  folder: string,
): Promise<{ readonly place: SiteLocation; readonly files: SiteFiles }> {
  try {
    const place = findSitePlugin(from, folder);
    return { place, files: await filesOf(from, place) };
  } catch (error) {
    if (isStartError(error)) throw error;
    throw startError(`Site plugin ${from} cannot be read: ${redactedMessage(error)}.`, error);
  }
}

const places = new WeakMap<Plugin, string>();

/** URL of a site plugin's file, or of its folder with a `/` at its end; undefined for built-in plugins. */
export const siteUrlOf = (plugin: Plugin): string | undefined => places.get(plugin);

const urlOf = (path: string): string => pathToFileURL(path).href;

/** Failed imports by code: the next attempt imports a new version, as the cause may be outside of the code. */
const failures = new Map<string, number>();

async function importModule(
  { from, startSeconds }: SiteEntry,
  place: SiteLocation,
  { fingerprint, paths }: SiteFiles,
): Promise<Readonly<Record<string, unknown>>> {
  const { entry } = place;
  const code = `${entry}?${fingerprint}`;
  const failed = failures.get(code) ?? 0;
  const version = failed === 0 ? fingerprint.slice(0, 16) : `${fingerprint.slice(0, 16)}-${failed}`;
  try {
    return await withTimeout(
      startSeconds * 1000,
      importVersion(entry, version, paths),
      `it is not loaded after ${startSeconds} s`,
    );
  } catch (cause) {
    failures.set(code, failed + 1);
    const reason = redactedMessage(cause);
    const at = locationBelow(place.folder ?? dirname(place.entry), cause);
    const where = at === undefined ? '' : `${at}: `;
    const hint = /'postern\/[a-z]+' does not provide an export/.test(reason)
      ? ` (version ${kitVersion} of the plugin kit is here; the plugin may be written for another)`
      : cause instanceof SyntaxError
        ? syntaxHint(from, place.entry, reason)
        : '';
    throw startError(`Site plugin ${from} cannot be loaded: ${where}${reason}${hint}`, cause);
  }
}

/** Node reads a file as CommonJS when its package.json says so, as that of `npm init` does. */
function syntaxHint(from: string, entry: string, reason: string): string {
  const isCommonJs = /Cannot use import statement outside a module|Unexpected token 'export'/.test(reason);
  if (!isCommonJs) return `; postern plugin check ${from} says where`;
  const extension = entry.endsWith('.ts') ? '.mts' : '.mjs';
  return `; add "type": "module" to the package.json beside ${basename(entry)}, or name the file ${extension}`;
}

function refuseDeclaration({ from }: SiteEntry, plugin: Plugin): void {
  const [complaint] = declarationComplaints(plugin);
  if (complaint !== undefined) throw startError(`Site plugin ${from}: ${complaint}`);
}

function refuseKit(from: string, who: string, kit: unknown): void {
  const complaint = kitComplaint(kit);
  if (complaint !== undefined) throw startError(`Site plugin ${from}: ${who} ${complaint}`);
}

async function knownFingerprint({ from }: SiteEntry, folder: string): Promise<string | undefined> {
  try {
    return (await findCode(from, folder)).files.fingerprint;
  } catch {
    return undefined;
  }
}

/** `./plugins/greylisting/index.js` → `greylisting`. */
function nameOf({ from }: SiteEntry): string {
  const path = from.replace(/\/+$/, '').replace(/\/index\.[cm]?[jt]s$/, '');
  return basename(path, extname(path)) || from;
}
