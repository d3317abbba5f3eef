import type { Plugin } from '../plugin.js';
import { startError, type StartError } from '../problem.js';
import type { Service, Services } from '../contracts/service.js';
import type { SiteEntry, SiteLocation } from './site-files.js';

/** Origin of a site plugin. */
export interface SiteOrigin {
  readonly entry: SiteEntry;
  /** Module that exports it; empty for plugins of a test. */
  readonly file: string;
  readonly fingerprint: string;
  /** Whether it replaces a built-in plugin. */
  readonly replaces: boolean;
  /** Declares its kit as a whole number, an obsolete form. */
  readonly kitNumber: boolean;
}

/** The plugins of a configuration. */
export interface PluginSet {
  /** Enabled plugins, built-in and of the site. */
  readonly plugins: readonly Plugin[];
  /** Validated options of each. */
  readonly options: ReadonlyMap<string, unknown>;
  /** Site plugins by name. */
  readonly site: ReadonlyMap<string, SiteOrigin>;
  /** Elements of `sitePlugins` whose code could not be loaded. */
  readonly unloaded: readonly UnloadedSite[];
}

export const tokenIds = (services: Services): readonly string[] => Object.values(services).map(({ id }) => id);

/** Ids of the services that a plugin needs or uses. */
export const consumedTokens = ({ needs, uses }: Plugin): readonly string[] => [...tokenIds(needs), ...tokenIds(uses)];

/**
 * Why the server must not run without the plugin, as the end of a sentence; undefined when it may be left out.
 *
 * @param plugin its `provides` are ids of services
 */
export function whyRequired(
  {
    name,
    required,
    replaces,
    provides,
  }: {
    readonly name: string;
    readonly required: boolean;
    readonly replaces: boolean;
    readonly provides: readonly string[];
  },
  { plugins, site }: Pick<PluginSet, 'plugins' | 'site'>,
): string | undefined {
  if (required) return 'it is marked as required';
  if (replaces) return `it takes the place of the built-in plugin ${name}, which must not return by itself`;
  for (const builtIn of plugins.filter((plugin) => !site.has(plugin.name))) {
    const held = consumedTokens(builtIn).find((token) => provides.includes(token));
    if (held !== undefined) return `the plugin ${builtIn.name} uses the service ${held}, which it provides`;
  }
  return undefined;
}

/** One line: what it needs, uses and provides. */
export function describePlugin({ name, needs, uses, provides }: Plugin): string {
  const list = (word: string, services: Services) => {
    const ids = tokenIds(services);
    return ids.length === 0 ? '' : `  ${word} ${ids.join(', ')}`;
  };
  return `${name}${list('needs', needs)}${list('uses', uses)}${list('provides', provides)}`;
}

/** The code of one element of `sitePlugins`. */
export interface SiteModule {
  readonly entry: SiteEntry;
  readonly place: SiteLocation;
  /** Differs when one of its files does. */
  readonly fingerprint: string;
  /** At least one. */
  readonly plugins: readonly Plugin[];
}

/** An element that could not be loaded. */
export interface UnloadedSite {
  readonly entry: SiteEntry;
  /** Last part of its path, as the code does not tell its name. */
  readonly name: string;
  /** Undefined when it was not found. */
  readonly fingerprint: string | undefined;
  /** A sentence for an operator. */
  readonly why: string;
}

export interface LoadedSite {
  readonly modules: readonly SiteModule[];
  readonly unloaded: readonly UnloadedSite[];
}

/** All plugins, enabled or not. */
export type AvailablePlugins = Omit<PluginSet, 'options'>;

/**
 * A site plugin replaces a built-in one of the same name. A built-in plugin whose service a site plugin provides runs
 * in its other form, if it has one.
 *
 * @throws start error when two site plugins have one name, or a replacement would only shadow
 */
export function availablePlugins(builtIns: readonly Plugin[], { modules, unloaded }: LoadedSite): AvailablePlugins {
  const site = new Map<string, SiteOrigin>();
  for (const { entry, place, fingerprint, plugins } of modules) {
    for (const { name, kit } of plugins) {
      const replaces = builtIns.some((builtIn) => builtIn.name === name);
      const present = site.get(name);
      if (present !== undefined) throw duplicateName(name, present.entry.from, entry.from);
      if (replaces && entry.mode === 'shadow') throw uselessShadow(name, entry.from);
      const kitNumber = typeof kit === 'number';
      site.set(name, { entry, file: place.entry, fingerprint, replaces, kitNumber });
    }
  }
  const sites = modules.flatMap(({ plugins }) => plugins);
  const provided = new Set(sites.flatMap(({ provides }) => tokenIds(provides)));
  const kept = builtIns
    .filter(({ name }) => !site.has(name))
    .map((builtIn) =>
      tokenIds(builtIn.provides).some((token) => provided.has(token)) ? (builtIn.whenProvided ?? builtIn) : builtIn,
    );
  return { plugins: [...kept, ...sites], site, unloaded };
}

function duplicateName(name: string, first: string, second: string): StartError {
  if (first !== second) {
    return startError(`${first} and ${second} both bring a plugin called ${name}: a plugin's name must be its own.`);
  }
  return startError(`sitePlugins names ${first} twice, or ${first} brings two plugins called ${name}: leave one out.`);
}

const uselessShadow = (name: string, from: string): StartError =>
  startError(
    `${from} takes the place of the built-in plugin ${name}, and in shadow mode no plugin would do its work: give it another name to try it, or mode: "enforce".`,
  );

/** Plugins in start order: providers of a service before its consumers. */
export function startOrder(plugins: readonly Plugin[], coreServices: readonly Service<unknown>[]): readonly Plugin[] {
  refuseDuplicates(plugins);
  const providers = providersOf(plugins, coreServices);
  refuseMissing(plugins, providers);
  return sort(plugins, providers);
}

/**
 * The order in which a start would take the plugins of a set.
 *
 * @throws start error for what would stop that start
 */
export function startOrderOf(program: PluginSet, coreServices: readonly Service<unknown>[]): readonly Plugin[] {
  const { plugins, site } = program;
  const mayMiss = ({ name, provides }: Plugin): boolean => {
    const origin = site.get(name);
    if (origin === undefined) return false;
    const { entry, replaces } = origin;
    const known = { name, required: entry.required, replaces, provides: tokenIds(provides) };
    return whyRequired(known, program) === undefined;
  };
  return startOrder(
    withoutUnmetNeeds(plugins, coreServices, mayMiss, () => undefined),
    coreServices,
  );
}

/**
 * Leaves out plugins that may be missing and need a service that no plugin provides, and then those that depend on
 * them. Calls `missing` for each with the service.
 */
export function withoutUnmetNeeds(
  plugins: readonly Plugin[],
  coreServices: readonly Service<unknown>[],
  mayMiss: (plugin: Plugin) => boolean,
  missing: (plugin: Plugin, service: string) => void,
): readonly Plugin[] {
  const provided = new Set(
    [...coreServices, ...plugins.flatMap(({ provides }) => tokens(provides))].map(({ id }) => id),
  );
  const lacking = plugins.filter(
    (plugin) => mayMiss(plugin) && tokens(plugin.needs).some((token) => !provided.has(token.id)),
  );
  if (lacking.length === 0) return plugins;
  for (const plugin of lacking) {
    missing(plugin, tokens(plugin.needs).find((token) => !provided.has(token.id))?.id ?? '');
  }
  const others = plugins.filter((plugin) => !lacking.includes(plugin));
  return withoutUnmetNeeds(others, coreServices, mayMiss, missing);
}

export const missingServiceError = ({ name }: Plugin, service: string): StartError =>
  startError(`Plugin ${name} needs ${service}, and no plugin that is switched on provides it.`);

type Providers = ReadonlyMap<string, Plugin | 'core'>;

const tokens = (services: Services): readonly Service<unknown>[] => Object.values(services);

function refuseDuplicates(plugins: readonly Plugin[]): void {
  const seen = new Set<string>();
  for (const { name } of plugins) {
    if (seen.has(name)) throw startError(`Two plugins are called ${name}: a plugin's name must be its own.`);
    seen.add(name);
  }
}

function providersOf(plugins: readonly Plugin[], coreServices: readonly Service<unknown>[]): Providers {
  const providers = new Map<string, Plugin | 'core'>(coreServices.map((token) => [token.id, 'core']));
  for (const plugin of plugins) {
    for (const token of tokens(plugin.provides)) {
      const other = providers.get(token.id);
      if (other !== undefined) {
        const name = other === 'core' ? 'the server itself' : `plugin ${other.name}`;
        throw startError(`Plugin ${plugin.name} provides ${token.id}, which ${name} provides already: switch one off.`);
      }
      providers.set(token.id, plugin);
    }
  }
  return providers;
}

function refuseMissing(plugins: readonly Plugin[], providers: Providers): void {
  for (const plugin of plugins) {
    const missing = tokens(plugin.needs).find((token) => !providers.has(token.id));
    if (missing !== undefined) {
      throw missingServiceError(plugin, missing.id);
    }
  }
}

/** Depth first in the given order, so that the result is stable. */
function sort(plugins: readonly Plugin[], providers: Providers): readonly Plugin[] {
  const ordered: Plugin[] = [];
  const path: Plugin[] = [];

  function visit(plugin: Plugin): void {
    if (ordered.includes(plugin)) return;
    if (path.includes(plugin)) {
      const cycle = [...path.slice(path.indexOf(plugin)), plugin].map(({ name }) => name);
      throw startError(`Plugins need each other in a circle: ${cycle.join(' → ')}.`);
    }
    path.push(plugin);
    for (const token of [...tokens(plugin.needs), ...tokens(plugin.uses)]) {
      const provider = providers.get(token.id);
      if (provider !== undefined && provider !== 'core') visit(provider);
    }
    path.pop();
    ordered.push(plugin);
  }

  for (const plugin of plugins) visit(plugin);
  return ordered;
}
