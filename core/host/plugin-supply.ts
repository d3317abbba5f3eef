import type { Plugin } from '../plugin.js';
import type { Program, SiteOrigin } from './plugin-program.js';
import type { LoadedSite } from '../site/site-plugins.js';

/** All plugins that there are, whether or not they are switched on. */
export type PluginSupply = Omit<Program, 'options'>;

/** A plugin of the site takes the place of a built-in one of the same name. */
export function supplyOf(builtIns: readonly Plugin[], { modules, unloaded }: LoadedSite): PluginSupply {
  const site = new Map<string, SiteOrigin>();
  for (const { entry, place, fingerprint, plugins } of modules) {
    for (const { name, kit } of plugins) {
      const replaces = builtIns.some((builtIn) => builtIn.name === name);
      const kitNumber = typeof kit === 'number';
      site.set(name, { entry, file: place.entry, fingerprint, replaces, kitNumber });
    }
  }
  const kept = builtIns.filter(({ name }) => !site.has(name));
  return { plugins: [...kept, ...modules.flatMap(({ plugins }) => plugins)], site, unloaded };
}
