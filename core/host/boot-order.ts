import type { Plugin } from '../plugin.js';
import { indispensable, tokensOf, type Program } from './plugin-program.js';
import type { Service, Services } from './service.js';
import { startError, type StartError } from '../problem.js';

/** Plugins in the order in which they can start: whoever provides a service stands in front of whoever needs it. */
export function bootOrder(plugins: readonly Plugin[], coreServices: readonly Service<unknown>[]): readonly Plugin[] {
  refuseDuplicates(plugins);
  const providers = providersOf(plugins, coreServices);
  refuseMissing(plugins, providers);
  return sort(plugins, providers);
}

/**
 * The order in which a start would take the plugins of the program.
 *
 * @throws start error for what would stop that start
 */
export function orderOfStart(program: Program, coreServices: readonly Service<unknown>[]): readonly Plugin[] {
  const { plugins, site } = program;
  const mayMiss = ({ name, provides }: Plugin): boolean => {
    const origin = site.get(name);
    if (origin === undefined) return false;
    const { entry, replaces } = origin;
    const known = { name, required: entry.required, replaces, provides: tokensOf(provides) };
    return indispensable(known, program) === undefined;
  };
  return bootOrder(
    withoutMissing(plugins, coreServices, mayMiss, () => undefined),
    coreServices,
  );
}

/**
 * Leaves out those that may be left out and need what nobody provides, and whoever needs them; `missing` is told each with the
 * service.
 */
export function withoutMissing(
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
  return withoutMissing(others, coreServices, mayMiss, missing);
}

export const missingService = ({ name }: Plugin, service: string): StartError =>
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
      throw missingService(plugin, missing.id);
    }
  }
}

/** Depth first, in the given order, so that the result is stable. */
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
