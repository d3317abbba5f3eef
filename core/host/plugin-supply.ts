import type { Plugin } from '../plugin.js';
import { tokensOf, type Program, type SiteOrigin } from './plugin-program.js';
import type { LoadedSite } from './site-plugins.js';
import { startError, type StartError } from '../problem.js';

/** All plugins that there are, whether or not they are switched on. */
export type PluginSupply = Omit<Program, 'options'>;

/**
 * A plugin of the site takes the place of a built-in one of the same name. One that provides what a built-in would leaves that in its
 * other form, if it has one.
 *
 * @throws start error when two of the site have one name, or one takes a place in which it would do nothing
 */
export function supplyOf(builtIns: readonly Plugin[], { modules, unloaded }: LoadedSite): PluginSupply {
  const site = new Map<string, SiteOrigin>();
  for (const { entry, place, fingerprint, plugins } of modules) {
    for (const { name, kit } of plugins) {
      const replaces = builtIns.some((builtIn) => builtIn.name === name);
      const present = site.get(name);
      if (present !== undefined) throw twice(name, present.entry.from, entry.from);
      if (replaces && entry.mode === 'shadow') throw idle(name, entry.from);
      const kitNumber = typeof kit === 'number';
      site.set(name, { entry, file: place.entry, fingerprint, replaces, kitNumber });
    }
  }
  const sites = modules.flatMap(({ plugins }) => plugins);
  const provided = new Set(sites.flatMap(({ provides }) => tokensOf(provides)));
  const kept = builtIns
    .filter(({ name }) => !site.has(name))
    .map((builtIn) =>
      tokensOf(builtIn.provides).some((token) => provided.has(token)) ? (builtIn.whenProvided ?? builtIn) : builtIn,
    );
  return { plugins: [...kept, ...sites], site, unloaded };
}

function twice(name: string, first: string, second: string): StartError {
  if (first !== second) {
    return startError(`${first} and ${second} both bring a plugin called ${name}: a plugin's name must be its own.`);
  }
  return startError(`sitePlugins names ${first} twice, or ${first} brings two plugins called ${name}: leave one out.`);
}

const idle = (name: string, from: string): StartError =>
  startError(
    `${from} takes the place of the built-in plugin ${name}, and in shadow nobody would do its work: give it another name to try it, or mode: "enforce".`,
  );
