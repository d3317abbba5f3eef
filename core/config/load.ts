import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { z } from 'zod';
import type {
  Configuration,
  ConfigurationFile,
  EffectiveValue,
  LayerFile,
  Origin,
  ReviewedLayer,
} from '../contracts/server.js';
import { parseDomain } from '../mime/address.js';
import type { Plugin } from '../plugin.js';
import type { AvailablePlugins, PluginSet } from '../host/plugin-set.js';
import { siteEntry, type SiteEntry } from '../host/site-files.js';
import { parseNetworks } from '../net/networks.js';
import { type ListenAddress, placeText, sharedPlaces } from '../net/listening-place.js';
import { isProblem, problem } from '../problem.js';
import { checkAgainst, type Complaint, complaintsOf, configurationError, repeatedKeyComplaints } from './complaint.js';
import { effectiveValues, leavesOf, type Origins } from './effective.js';
import { parseConfigFile, readConfigFile, type ConfigFile } from './file.js';
import { LayerFolder } from './layer-folder.js';
import { mergeLayers, enablesLayers, forbiddenKeyComplaints, type MergedLayers } from './layered.js';
import { literalSecrets, maskedText } from './masking.js';
import { ServerOptions, type ServerSettings } from './options.js';
import { schemaOutline, type Outline } from '../contracts/outline.js';
import { joinPath, type KeyPath } from './positions.js';
import { resolveSecrets } from './secrets.js';

/** Settings of the command line. */
export interface Overrides {
  readonly config?: string;
  readonly data?: string;
  readonly httpPort?: number;
  readonly smtpPort?: number;
}

export interface LoadOptions {
  readonly overrides: Overrides;
  /** Base of relative arguments and of the default configuration file. */
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The plugins for these settings: built-in ones, and those of the site loaded from `folder`. */
  readonly plugins: (sitePlugins: readonly SiteEntry[], folder: string) => Promise<AvailablePlugins>;
  /** Replace the layers in the data folder; the lowest first. */
  readonly layers?: readonly LayerFile[];
}

/** A configuration that passed every check; frozen. Site plugins that could not be loaded are in `unloaded`. */
export interface LoadedConfiguration extends Configuration, PluginSet {
  readonly settings: ServerSettings;
  /** Base of relative paths in the configuration. */
  readonly folder: string;
  /** Every value by its key, secrets not masked: for comparison only. */
  leaves(): ReadonlyMap<KeyPath, unknown>;
  effective(): readonly EffectiveValue[];
  files(): readonly ConfigurationFile[];
}

/**
 * Reads, checks and freezes the configuration.
 *
 * @throws one start error with all issues
 */
export async function loadConfiguration(input: LoadOptions): Promise<LoadedConfiguration> {
  const file = findFile(input);
  const folder = file === undefined ? input.cwd : dirname(file.path);
  const layers = layersBelow(file, input);
  const files = file === undefined ? [] : [...layers, file];
  const complaints: Complaint[] = files.flatMap(repeatedKeyComplaints);
  const { content, places } = mergeLayers(files);
  const overrides = new Map<KeyPath, { origin: Origin; where: string | null }>();

  const checkPart = <S extends z.ZodType>(schema: S, value: unknown, base: KeyPath): z.output<S> | undefined => {
    const outline = (): Outline => schemaOutline(schema);
    const resolved = resolveSecrets(value, outline, folder, input.env);
    for (const [key, source] of resolved.sources) overrides.set(below(base, key), source);
    for (const [key, sentence] of resolved.complaints) {
      complaints.push({ key: below(base, key), sentence, place: places.get(below(base, key)) });
    }
    const checked = checkAgainst(schema, resolved.value);
    const issues = checked.success ? [] : complaintsOf(checked.error, base, outline(), places);
    const said = new Set(complaints.map(({ key }) => key));
    // No other complaint about a secret that is missing or a key that is repeated.
    complaints.push(...issues.filter(({ key }) => !said.has(key)));
    return checked.data;
  };

  const settings = checkPart(ServerOptions, content, '');
  // Stops at forbidden keys of a layer before anything uses them: they might name code.
  const forbidden = layers.flatMap(forbiddenKeyComplaints);
  if (settings === undefined || forbidden.length > 0)
    throw configurationError([...forbidden, ...complaints], file?.path ?? null);
  const { plugins, site, unloaded } = await input.plugins(settings.sitePlugins.map(siteEntry), folder);
  const running = runningOf(plugins, settings);
  // While code could not be loaded, unknown options may be its.
  if (unloaded.length === 0) complaints.push(...unknownPlugins(settings, plugins, places));
  const options = new Map(
    running.map((plugin) => [
      plugin.name,
      checkPart(plugin.options, settings.plugins[plugin.name] ?? {}, joinPath('plugins', plugin.name)),
    ]),
  );
  const domains = settings.domains.map((domain, index) =>
    attempt(() => parseDomain(domain), joinPath('domains', index), complaints, places),
  );
  attempt(() => relayNetworksOf(settings), 'smtp.relayNetworks', complaints, places);
  const overridden = withAbsoluteFolders(applyOverrides(settings, input.overrides, overrides), folder);
  complaints.push(...sharedPlaceComplaints(overridden, places));
  if (complaints.length > 0) throw configurationError(complaints, file?.path ?? null);

  if (!places.has('hostname')) overrides.set('hostname', { origin: 'generated', where: 'operating system' });
  const data = dataFolder(settings.data, folder, input);
  const origins: Origins = { places, overrides };
  return Object.freeze({
    file: file?.path ?? null,
    folder,
    hostname: overridden.hostname,
    data,
    domains: domains.filter((domain) => domain !== undefined),
    relayNetworks: overridden.smtp.relayNetworks,
    settings: deepFreeze(overridden),
    plugins: running,
    site,
    unloaded,
    options: new Map([...options].map(([name, value]) => [name, deepFreeze(value)])),
    effective: () => effective({ ...overridden, data }, running, options, origins),
    leaves: () => {
      const { plugins: _, ...core } = { ...overridden, data };
      return leavesOf({ ...core, plugins: Object.fromEntries(options) });
    },
    files: () => files.map(({ path, text }) => ({ path, text: maskedText(text, outlineOfAll(running)) })).toReversed(),
  });
}

/** @throws start error for a text that cannot be a layer */
export function reviewLayer(name: string, text: string, plugins: readonly Plugin[]): ReviewedLayer {
  const file = parseConfigFile(name, text);
  const complaints = [...repeatedKeyComplaints(file), ...forbiddenKeyComplaints(file)];
  if (complaints.length > 0) throw configurationError(complaints, file.path);
  const { plugins: options } = file.content;
  const outline = outlineOfAll(plugins);
  return {
    text: maskedText(text, outline),
    secrets: literalSecrets(text, outline),
    keys: [
      ...Object.keys(file.content),
      ...Object.keys(typeof options === 'object' ? (options ?? {}) : {}).map((name) => joinPath('plugins', name)),
    ],
  };
}

type Places = Pick<LoadOptions, 'overrides' | 'cwd' | 'env'>;

/** Installed by packages of a distribution. */
const systemFile = '/etc/postern/postern.json5';

/** The data folder that a start would use; reads nothing else of the configuration. */
export function dataFolderAt(input: Places): string {
  const file = findFile(input);
  const { data = 'data' } = file?.content ?? {};
  const folder = file === undefined ? input.cwd : dirname(file.path);
  return dataFolder(typeof data === 'string' ? data : 'data', folder, input);
}

/** The first that exists: `--config`, POSTERN_CONFIG, `./postern.json5`, `/etc/postern/postern.json5`. */
function findFile({ overrides, cwd, env }: Places): ConfigFile | undefined {
  const named = overrides.config ?? (env['POSTERN_CONFIG'] || undefined);
  if (named !== undefined) return readConfigFile(resolve(cwd, named));
  const found = [resolve(cwd, 'postern.json5'), systemFile].find((path) => existsSync(path));
  return found === undefined ? undefined : readConfigFile(found);
}

const dataFolder = (data: string, folder: string, { overrides, cwd }: Places): string =>
  overrides.data === undefined ? resolve(folder, data) : resolve(cwd, overrides.data);

/** Synced layers apply only when the operator's own file enables them. */
function layersBelow(file: ConfigFile | undefined, input: LoadOptions): readonly ConfigFile[] {
  if (file === undefined || !enablesLayers(file.content)) return [];
  const layers = input.layers ?? new LayerFolder(dataFolderAt(input)).load();
  return layers.map(({ name, text }) => parseConfigFile(`sync:${name}`, text));
}

function runningOf(all: readonly Plugin[], { plugins }: ServerSettings): readonly Plugin[] {
  return all
    .filter(({ name }) => plugins[name] !== false)
    .map((plugin) => (typeof plugins[plugin.name] === 'object' ? plugin : (plugin.unconfigured ?? plugin)));
}

/** The outline of the whole file, with the options of plugins. */
function outlineOfAll(running: readonly Plugin[]): Outline {
  const outline = schemaOutline(ServerOptions);
  const plugins = Object.fromEntries(running.map((plugin) => [plugin.name, schemaOutline(plugin.options)]));
  return { ...outline, properties: { ...outline.properties, plugins: { properties: plugins } } };
}

function effective(
  settings: ServerSettings,
  running: readonly Plugin[],
  options: ReadonlyMap<string, unknown>,
  origins: Origins,
): readonly EffectiveValue[] {
  const { plugins: _, ...core } = settings;
  const outline = schemaOutline(ServerOptions);
  const { plugins: _plugins, $schema: _schema, ...properties } = outline.properties ?? {};
  const own = effectiveValues(core, ServerOptions.parse({}), { ...outline, properties }, '', origins);
  const theirs = running.flatMap((plugin) => {
    const defaults = checkAgainst(plugin.options, {});
    const base = joinPath('plugins', plugin.name);
    return effectiveValues(options.get(plugin.name), defaults.data, schemaOutline(plugin.options), base, origins);
  });
  return [...own, ...theirs];
}

/** The command line overrides the file. `--smtp-port` is the first listener's. */
function applyOverrides(
  settings: ServerSettings,
  { data, httpPort, smtpPort }: Overrides,
  overrides: Map<KeyPath, { origin: Origin; where: string | null }>,
): ServerSettings {
  const note = (key: KeyPath, flag: string) => overrides.set(key, { origin: 'command line', where: flag });
  if (data !== undefined) note('data', '--data');
  if (httpPort !== undefined) note('http.port', '--http-port');
  if (smtpPort !== undefined) note('smtp.listeners.0.port', '--smtp-port');
  const [first, ...others] = settings.smtp.listeners;
  return {
    ...settings,
    http: { ...settings.http, ...(httpPort !== undefined && { port: httpPort }) },
    smtp: {
      ...settings.smtp,
      ...(smtpPort !== undefined && first !== undefined && { listeners: [{ ...first, port: smtpPort }, ...others] }),
    },
  };
}

function withAbsoluteFolders(settings: ServerSettings, folder: string): ServerSettings {
  const { viewOverrides } = settings.http;
  if (viewOverrides === undefined) return settings;
  return { ...settings, http: { ...settings.http, viewOverrides: resolve(folder, viewOverrides) } };
}

/** A network of all addresses would make this server an open relay. */
function relayNetworksOf({ smtp }: ServerSettings): void {
  parseNetworks(smtp.relayNetworks);
  const everybody = smtp.relayNetworks.find((network) => /\/0+$/.test(network.trim()));
  if (everybody === undefined) return;
  throw problem(
    'invalid',
    `${everybody} is every address there is: that would be an open relay. Name your own networks.`,
  );
}

function sharedPlaceComplaints({ http, smtp }: ServerSettings, places: MergedLayers['places']): readonly Complaint[] {
  const listeners = smtp.listeners.map((listener, index) => ({
    ...listener,
    key: joinPath('smtp.listeners', index),
    who: `the listener ${listener.name}`,
  }));
  const pages = { ...http, key: 'http', who: 'http' };
  return sharedPlaces<ListenAddress & { readonly key: KeyPath; readonly who: string }>([pages, ...listeners]).map(
    ([taken, { key, ...again }]) => {
      const elsewhere = taken.host === again.host ? '' : `, on ${taken.host}`;
      const sentence = `cannot listen on ${placeText(again)}: ${taken.who} does${elsewhere}; name another place.`;
      return { key, sentence, place: places.get(key) };
    },
  );
}

function unknownPlugins(
  settings: ServerSettings,
  plugins: readonly Plugin[],
  places: MergedLayers['places'],
): readonly Complaint[] {
  const known = plugins.map((plugin) => plugin.name);
  return Object.keys(settings.plugins)
    .filter((name) => !known.includes(name))
    .map((name) => {
      const key = joinPath('plugins', name);
      return {
        key,
        sentence: `there is no such plugin; known plugins: ${known.join(', ')}.`,
        place: places.get(key),
      };
    });
}

function attempt<T>(
  parse: () => T,
  key: KeyPath,
  complaints: Complaint[],
  places: MergedLayers['places'],
): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (!isProblem(error)) throw error;
    complaints.push({ key, sentence: error.message, place: places.get(key) });
    return undefined;
  }
}

const below = (base: KeyPath, key: KeyPath): KeyPath => (base === '' ? key : joinPath(base, key));

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) deepFreeze(member);
  }
  return value;
}
