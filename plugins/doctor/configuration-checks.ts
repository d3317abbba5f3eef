import type { Stats } from 'node:fs';
import { lstat, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { EffectiveValue } from '../../core/contracts/server.js';
import { advice, fine, skipped, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import { pluralize } from '../../core/text/format.js';
import { siteUrlOf } from '../../core/host/site-plugins.js';
import { isPem } from '../../core/net/tls-material.js';
import type { CoreCheck, DoctorContext } from './doctor-context.js';

const writableByAll = 0o002;
const writableByGroup = 0o020;
const readableByAll = 0o004;
/** Maximum files of a plugin to check. */
const maxFiles = 2000;

/** Checks of a configuration that could be read. */
export const configurationChecks: readonly CoreCheck[] = [
  { group: 'Configuration', name: 'configuration', run: configurationFile },
  { group: 'Configuration', name: 'secrets', run: secretsInFile },
  { group: 'Configuration', name: 'site-plugins', run: sitePlugins },
];

function configurationFile({ configuration }: DoctorContext): readonly Finding[] {
  const { file, plugins } = configuration;
  const what = file === null ? 'There is no postern.json5 here: the defaults count' : `${file} has no mistakes`;
  return [fine(`${what}; ${pluralize(plugins.length, 'plugin')}.`)];
}

async function secretsInFile({ configuration }: DoctorContext): Promise<readonly Finding[]> {
  const { file } = configuration;
  if (file === null) return [];
  const leaves = configuration.leaves();
  const secrets = configuration.effective().filter(({ secret, origin }) => secret && origin === 'file');
  const written = secrets.filter(
    ({ key, where }) => where?.startsWith(`${file}:`) === true && !namesKeyFile(key, leaves.get(key)),
  );
  const elsewhere = secrets.flatMap(({ where }) => (where !== null && isFileOfSecret(where) ? [where] : []));
  const findings = await Promise.all([inConfiguration(file, written), ...[...new Set(elsewhere)].map(inFileOfItsOwn)]);
  return findings.flat();
}

/** Other origins have a line after the path. */
const isFileOfSecret = (where: string): boolean => !/:\d+$/.test(where);

async function inConfiguration(file: string, secrets: readonly EffectiveValue[]): Promise<readonly Finding[]> {
  if (secrets.length === 0) return [fine('There is no secret in the configuration file.')];
  const { mode } = await stat(file);
  const keys = secrets.map(({ key }) => key).join(', ');
  if ((mode & readableByAll) === 0)
    return [fine(`Secrets in the configuration file (${keys}) are readable by its users only.`)];
  return [
    advice(
      `Everybody on this machine may read the secrets in ${file}: ${keys}.`,
      `chmod o-r ${file}, or name them by { file: "…" } or { env: "…" }.`,
    ),
  ];
}

async function inFileOfItsOwn(path: string): Promise<readonly Finding[]> {
  const { mode } = await stat(path);
  if ((mode & readableByAll) === 0) return [];
  return [advice(`Everybody on this machine may read ${path}, which holds a secret.`, `chmod o-r ${path}`)];
}

/** The option of a private key may be the key itself, or the path of its file, which is no secret. */
function namesKeyFile(key: string, value: unknown): boolean {
  return /^smtp\.listeners\.\d+\.key$/.test(key) && typeof value === 'string' && !isPem(value);
}

/** The code runs with all rights of the server. */
async function sitePlugins({ configuration }: DoctorContext): Promise<readonly Finding[]> {
  const findings: Finding[] = configuration.unloaded.map(({ why, entry }) =>
    trouble(why, `Repair it, and reload; postern plugin check ${entry.from} tells more.`),
  );
  for (const plugin of configuration.plugins) {
    const place = siteUrlOf(plugin);
    if (place !== undefined) findings.push(await codeOf(plugin.name, fileURLToPath(place)));
  }
  return findings.length === 0 ? [skipped('There are no plugins of this site.')] : findings;
}

async function codeOf(plugin: string, path: string): Promise<Finding> {
  const open = await firstOpen(path);
  if (open === undefined) return fine(`The code of the plugin ${plugin}, ${path}, is written by its owner only.`);
  const who = (open.stats.mode & writableByAll) !== 0 ? 'Everybody' : 'The group';
  const is = `${who} on this machine may change ${open.path}, which the server runs as the plugin ${plugin}.`;
  const todo = `chmod -R go-w ${path}`;
  return who === 'Everybody' ? trouble(is, todo) : advice(is, todo);
}

interface OpenEntry {
  readonly path: string;
  readonly stats: Stats;
}

/** The least protected entry, including its folder, where a file could be replaced. */
async function firstOpen(path: string): Promise<OpenEntry | undefined> {
  let group: OpenEntry | undefined;
  for (const entry of await entriesOf(path)) {
    const stats = await lstat(entry).catch(() => undefined);
    if (stats === undefined || stats.isSymbolicLink()) continue;
    // In a folder with the sticky bit, users can only replace their own files.
    const sticky = stats.isDirectory() && (stats.mode & 0o1000) !== 0;
    if ((stats.mode & writableByAll) !== 0 && !sticky) return { path: entry, stats };
    if ((stats.mode & writableByGroup) !== 0 && !sticky) group ??= { path: entry, stats };
  }
  return group;
}

async function entriesOf(path: string): Promise<readonly string[]> {
  const found = [dirname(path), path];
  const folders = [path];
  for (let folder = folders.pop(); folder !== undefined && found.length < maxFiles; folder = folders.pop()) {
    const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
    for (const entry of entries) {
      const below = join(folder, entry.name);
      found.push(below);
      if (entry.isDirectory() && entry.name !== 'node_modules') folders.push(below);
    }
  }
  return found.slice(0, maxFiles);
}
