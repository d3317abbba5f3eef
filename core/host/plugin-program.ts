import type { Plugin } from '../plugin.js';
import type { Services } from './service.js';
import type { SiteEntry } from './site-entry.js';
import type { UnloadedSite } from './site-plugins.js';

/** Where a plugin of the site comes from. */
export interface SiteOrigin {
  readonly entry: SiteEntry;
  /** Of the module that exports it; empty for a plugin that a test drives. */
  readonly file: string;
  readonly fingerprint: string;
  /** Whether it takes the place of one that comes with the server. */
  readonly replaces: boolean;
  /** Its declaration says its kit as a whole number, as declarations did once. */
  readonly kitNumber: boolean;
}

/** The plugins that a configuration wants to run. */
export interface Program {
  /** Those that are switched on, built-in and of the site. */
  readonly plugins: readonly Plugin[];
  /** Checked options of each. */
  readonly options: ReadonlyMap<string, unknown>;
  /** Those of the site, by name. */
  readonly site: ReadonlyMap<string, SiteOrigin>;
  /** Elements of `sitePlugins` whose code could not be loaded. */
  readonly unloaded: readonly UnloadedSite[];
}

export const tokensOf = (services: Services): readonly string[] => Object.values(services).map(({ id }) => id);

/** Ids of the services that it is given. */
export const takenBy = ({ needs, uses }: Plugin): readonly string[] => [...tokensOf(needs), ...tokensOf(uses)];

/** What is known of a plugin that may have to be left out. */
export interface Dispensable {
  readonly name: string;
  readonly required: boolean;
  readonly replaces: boolean;
  /** Ids of the services that it provides. */
  readonly provides: readonly string[];
}

/** Why the server must not run without it, as the end of a sentence; undefined when it may be left out. */
export function indispensable(
  { name, required, replaces, provides }: Dispensable,
  { plugins, site }: Pick<Program, 'plugins' | 'site'>,
): string | undefined {
  if (required) return 'it is marked as required';
  if (replaces) return `it takes the place of the built-in plugin ${name}, which must not come back unasked`;
  for (const builtIn of plugins.filter((plugin) => !site.has(plugin.name))) {
    const held = takenBy(builtIn).find((token) => provides.includes(token));
    if (held !== undefined) return `the plugin ${builtIn.name} uses the service ${held}, which it provides`;
  }
  return undefined;
}

/** One line: what it needs, uses and provides. */
export function describePlugin({ name, needs, uses, provides }: Plugin): string {
  const list = (word: string, services: Services) => {
    const ids = tokensOf(services);
    return ids.length === 0 ? '' : `  ${word} ${ids.join(', ')}`;
  };
  return `${name}${list('needs', needs)}${list('uses', uses)}${list('provides', provides)}`;
}
