import type { FailedPlugin } from './failed-plugin.js';
import type { Program, SiteOrigin } from './plugin-program.js';
import type { RunningPlugin } from './running-plugin.js';

/** The plugins of one moment. */
export interface PresentPlugins {
  /** What shall run. */
  readonly program: Program;
  /** In the order of their start. */
  readonly running: readonly RunningPlugin[];
  readonly failed: readonly FailedPlugin[];
  /** Of those that run: where their code came from. */
  readonly site: ReadonlyMap<string, SiteOrigin>;
  /** When they came into force, ISO 8601. */
  readonly since: ReadonlyMap<RunningPlugin, string>;
  /** By their ids: those of core and of those that run. */
  readonly services: ReadonlyMap<string, unknown>;
}

export interface PluginExchange {
  readonly leaving: readonly RunningPlugin[];
  readonly fresh: readonly RunningPlugin[];
  readonly program: Program;
  readonly failed: readonly FailedPlugin[];
  /** ISO 8601. */
  readonly at: string;
}

/** The plugins behind an exchange; a successor has the place of the one before it. */
export function exchanged(present: PresentPlugins, exchange: PluginExchange): PresentPlugins {
  const { leaving, fresh, program, failed, at } = exchange;
  const names = new Set(present.running.map(({ plugin }) => plugin.name));
  const successorOf = (old: RunningPlugin) => fresh.filter(({ plugin }) => plugin.name === old.plugin.name);
  const services = new Map(present.services);
  const site = new Map(present.site);
  for (const { plugin } of leaving) {
    site.delete(plugin.name);
    for (const { id } of Object.values(plugin.provides)) services.delete(id);
  }
  for (const running of fresh) {
    const { name, provides } = running.plugin;
    const origin = program.site.get(name);
    if (origin !== undefined) site.set(name, origin);
    for (const [key, { id }] of Object.entries(provides)) services.set(id, running.service(key));
  }
  const running = [
    ...present.running.flatMap((one) => (leaving.includes(one) ? successorOf(one) : one)),
    ...fresh.filter(({ plugin }) => !names.has(plugin.name)),
  ];
  // Nothing here holds what has left.
  const since = new Map(running.map((one) => [one, present.since.get(one) ?? at] as const));
  return { program, failed, services, site, running, since };
}
