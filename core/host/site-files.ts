import { createHash } from 'node:crypto';
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, extname, join, resolve, sep } from 'node:path';
import { z } from 'zod';
import type { WatchedCode } from '../contracts/server.js';
import { startError } from '../problem.js';

/** Default time limit of loading and starting. */
const defaultStartSeconds = 30;

export const SitePluginOption = z.union([
  z.string().min(1),
  z.strictObject({
    from: z
      .string()
      .min(1)
      .describe('A folder or a file (relative to the configuration file), or the name of a package.')
      .meta({ examples: ['./greylisting'] }),
    mode: z
      .enum(['enforce', 'shadow'])
      .default('enforce')
      .describe('"shadow": its hooks are asked, and what they answer is only written to the log.'),
    required: z
      .boolean()
      .default(false)
      .describe('Whether the server does not start without it. Otherwise a plugin that fails is left out.'),
    startSeconds: z
      .int()
      .min(1)
      .max(600)
      .default(defaultStartSeconds)
      .describe('How long it may take to load, to start, and to take new options, in seconds.'),
  }),
]);

/** One element of `sitePlugins`, with defaults filled in. */
export interface SiteEntry {
  readonly from: string;
  readonly mode: 'enforce' | 'shadow';
  readonly required: boolean;
  readonly startSeconds: number;
}

export const siteEntry = (option: z.output<typeof SitePluginOption>): SiteEntry =>
  typeof option === 'string'
    ? { from: option, mode: 'enforce', required: false, startSeconds: defaultStartSeconds }
    : option;

/** Where the code of a site plugin is. */
export interface SiteLocation {
  /** Module that exports it; absolute, links resolved. */
  readonly entry: string;
  /** Its folder; undefined for a single file. */
  readonly folder: string | undefined;
  /** Version of the kit in its `package.json`. */
  readonly kit: string | undefined;
}

const maxFiles = 2000;
const maxBytes = 64 * 1024 * 1024;
const entryNames = ['index.js', 'index.mjs', 'index.cjs', 'index.ts', 'index.mts'];

/**
 * Finds a file, a folder with an `index.js` or a `package.json`, or a package installed beside the configuration.
 *
 * @throws start error
 */
export function findSitePlugin(from: string, folder: string): SiteLocation {
  const path = resolve(folder, from);
  if (existsSync(path)) return placeOf(from, path);
  if (/^[./]/.test(from)) throw startError(`Site plugin ${from}: there is no file or folder ${path}.`);
  const places = createRequire(join(folder, 'postern.json5')).resolve.paths(from) ?? [];
  const installed = places.map((place) => join(place, from)).find((place) => existsSync(place));
  if (installed === undefined) {
    throw startError(`Site plugin ${from}: neither a file or folder ${path} nor an installed package.`);
  }
  return placeOf(from, installed);
}

/** Module that exports the plugin; undefined when not found. */
export function entryFileOf(from: string, folder: string): string | undefined {
  try {
    return findSitePlugin(from, folder).entry;
  } catch {
    return undefined;
  }
}

/** Files of a plugin. */
export interface SiteFiles {
  /** Absolute paths: its folder without packages and hidden files, and what its modules import by a relative path. */
  readonly paths: readonly string[];
  /** Differs when one of the files does. */
  readonly fingerprint: string;
}

/** @throws start error beyond the limits of files and bytes */
export async function filesOf(from: string, { entry, folder }: SiteLocation): Promise<SiteFiles> {
  const files = new Set([entry, ...(folder === undefined ? [] : await filesBelow(from, folder))]);
  const hash = createHash('sha256');
  let bytes = 0;
  // Grows during the loop by the files that modules import.
  for (const file of files) {
    const content = await readFile(file).catch(() => undefined);
    if (content === undefined) continue;
    bytes += content.length;
    if (files.size > maxFiles || bytes > maxBytes) throw tooMuch(from);
    hash.update(`${file.startsWith(folder ?? '\0') ? file.slice(folder?.length) : file}\0${content.length}\0`);
    hash.update(content);
    for (const named of await relativeImports(file, content)) files.add(named);
  }
  return { paths: [...files], fingerprint: hash.digest('hex') };
}

function placeOf(from: string, path: string): SiteLocation {
  if (!statSync(path).isDirectory()) return { entry: realpathSync(path), folder: undefined, kit: undefined };
  const manifest = readManifest(join(path, 'package.json'));
  const main = manifest === undefined ? undefined : mainOf(manifest);
  const names = main === undefined ? entryNames : [main];
  const found = names.map((name) => join(path, name)).find((file) => existsSync(file) && statSync(file).isFile());
  if (found === undefined) {
    const hint = manifest?.scripts?.build === undefined ? '' : ' Build it first: npm run build.';
    throw startError(`Site plugin ${from}: the folder has no ${main ?? 'index.js'}.${hint}`);
  }
  return { entry: realpathSync(found), folder: realpathSync(path), kit: manifest?.postern?.kit };
}

interface Manifest {
  readonly main?: unknown;
  readonly exports?: unknown;
  readonly scripts?: { readonly build?: unknown } | null;
  readonly postern?: { readonly kit?: string } | null;
}

function readManifest(path: string): Manifest | undefined {
  if (!existsSync(path)) return undefined;
  const manifest = parsed(path, readFileSync(path, 'utf8'));
  if (typeof manifest === 'object' && manifest !== null) return manifest;
  throw startError(`${path} is not a JSON object.`);
}

function parsed(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw startError(`${path} is not valid JSON.`, cause);
  }
}

/** `exports` in its common forms, else `main`. */
function mainOf({ exports, main }: Manifest): string | undefined {
  return exported(exports) ?? (typeof main === 'string' ? main : undefined);
}

function exported(target: unknown): string | undefined {
  if (typeof target === 'string') return target;
  if (typeof target !== 'object' || target === null) return undefined;
  const { '.': root, import: asModule, node, default: usual } = target as Readonly<Record<string, unknown>>;
  return exported(root) ?? exported(asModule) ?? exported(node) ?? exported(usual);
}

async function filesBelow(from: string, folder: string): Promise<readonly string[]> {
  const files: string[] = [];
  const folders = [folder];
  for (let at = folders.pop(); at !== undefined; at = folders.pop()) {
    const entries = await readdir(at, { withFileTypes: true });
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      if (entry.name.startsWith('.') || entry.name === 'node_modules') continue;
      if (entry.isDirectory()) folders.push(join(at, entry.name));
      else if (entry.isFile() || entry.isSymbolicLink()) files.push(join(at, entry.name));
      if (files.length + folders.length > maxFiles) throw tooMuch(from);
    }
  }
  return files;
}

const tooMuch = (from: string) =>
  startError(`Site plugin ${from}: it has more than ${maxFiles} files or 64 MB; give it a folder of its own.`);

/** Every string that looks like a relative import and names a file. */
async function relativeImports(file: string, content: Buffer): Promise<readonly string[]> {
  if (!/^\.[cm]?[jt]s$/.test(extname(file))) return [];
  const named = [...content.toString('utf8').matchAll(/['"`](\.{1,2}\/[^'"`\n]{1,300})['"`]/g)];
  const found: string[] = [];
  for (const [, specifier = ''] of named) {
    const path = resolve(dirname(file), specifier);
    for (const candidate of [path, `${path}.js`, `${path}.cjs`, `${path}.json`, join(path, 'index.js')]) {
      const is = await stat(candidate).catch(() => undefined);
      if (is?.isFile() === true) found.push(candidate);
    }
  }
  return found;
}

/** Files and fingerprint of the site plugins as they are now. Never rejects: an error is part of the fingerprint. */
export async function watchedCode(entries: readonly SiteEntry[], folder: string): Promise<WatchedCode> {
  const folders = new Set<string>();
  const hash = createHash('sha256');
  for (const { from } of entries) {
    try {
      const { paths, fingerprint } = await filesOf(from, findSitePlugin(from, folder));
      hash.update(fingerprint);
      for (const path of paths) folders.add(dirname(path));
    } catch (error) {
      hash.update(error instanceof Error ? error.message : String(error));
      const place = resolve(folder, from);
      folders.add(dirname(place)).add(place);
    }
  }
  return { folders: [...folders].filter((path) => existsSync(path)), digest: hash.digest('hex') };
}

const places = new Map<string, string>();

/** Files and folders that site plugins were loaded from, absolute, with their element of `sitePlugins`. */
export const siteLocations = (): ReadonlyMap<string, string> => places;

export function registerSiteLocation({ folder, entry }: SiteLocation, from: string): void {
  places.set(folder === undefined ? entry : `${folder}${sep}`, from);
}

/** The element of `sitePlugins` that a file belongs to. */
export function siteEntryOf(file: string): string | undefined {
  return [...places].find(([place]) => (place.endsWith(sep) ? file.startsWith(place) : file === place))?.[1];
}
