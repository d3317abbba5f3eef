import { isDeepStrictEqual } from 'node:util';
import type { Difference } from '../contracts/server.js';
import type { Plugin } from '../plugin.js';
import type { FailedPlugin } from './plugin-faults.js';
import { type PluginSet, type SiteOrigin, consumedTokens, tokenIds } from './plugin-set.js';
import type { RunningPlugin } from './running-plugin.js';

/** The plugins at one moment. */
export interface CurrentPlugins {
  /** As configured. */
  readonly wanted: PluginSet;
  /** In start order. */
  readonly running: readonly RunningPlugin[];
  readonly failed: readonly FailedPlugin[];
  /** Origin of the site plugins that run. */
  readonly site: ReadonlyMap<string, SiteOrigin>;
  /** When each was activated, ISO 8601. */
  readonly since: ReadonlyMap<RunningPlugin, string>;
  /** By id: services of core and of the running plugins. */
  readonly services: ReadonlyMap<string, unknown>;
}

interface PluginSwap {
  readonly leaving: readonly RunningPlugin[];
  readonly fresh: readonly RunningPlugin[];
  readonly wanted: PluginSet;
  readonly failed: readonly FailedPlugin[];
  /** ISO 8601. */
  readonly at: string;
}

/** The plugins after a swap; a successor takes the place of its predecessor. */
export function afterSwap(present: CurrentPlugins, exchange: PluginSwap): CurrentPlugins {
  const { leaving, fresh, wanted, failed, at } = exchange;
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
    const origin = wanted.site.get(name);
    if (origin !== undefined) site.set(name, origin);
    for (const [key, { id }] of Object.entries(provides)) services.set(id, running.service(key));
  }
  const running = [
    ...present.running.flatMap((one) => (leaving.includes(one) ? successorOf(one) : one)),
    ...fresh.filter(({ plugin }) => !names.has(plugin.name)),
  ];
  // Rebuilt, so that it does not keep replaced plugins in memory.
  const since = new Map(running.map((one) => [one, present.since.get(one) ?? at] as const));
  return { wanted, failed, services, site, running, since };
}

/** What a reload does to the running plugins. */
export interface PluginPlan {
  /** Stopped, with or without a successor. */
  readonly leaving: readonly RunningPlugin[];
  /** Set up, in the order of the set. */
  readonly coming: readonly Plugin[];
  /** Keep running with new options. */
  readonly reconfigured: readonly RunningPlugin[];
  /** Changed only by a restart: name and reason. */
  readonly waiting: ReadonlyMap<string, string>;
}

type Present = Pick<CurrentPlugins, 'running' | 'site'>;

/** Compares the running plugins with the configured ones. */
export function planPlugins(present: Present, next: PluginSet): PluginPlan {
  const waiting = new Map<string, string>();
  const reconfigured: RunningPlugin[] = [];
  let leaving: RunningPlugin[] = [];
  for (const running of present.running) {
    const { name } = running.plugin;
    const way = changeOf(running, present, next);
    if (way === 'leave') leaving.push(running);
    else if (way === 'reconfigure') reconfigured.push(running);
    else if (way !== 'stay') waiting.set(name, way.waits);
  }
  const names = new Set(present.running.map(({ plugin }) => plugin.name));
  let added = next.plugins.filter(({ name }) => !names.has(name));
  for (const { name } of added.filter((plugin) => !next.site.has(plugin.name))) {
    waiting.set(name, 'A built-in plugin is switched on by a restart.');
  }
  added = added.filter(({ name }) => next.site.has(name));

  // A plugin that stays may use a service of one that leaves; then that one stays too, and so may others whose
  // services it uses.
  for (let held = blockedLeaver(leaving, present); held !== undefined; held = blockedLeaver(leaving, present)) {
    const [running, why] = held;
    waiting.set(running.plugin.name, why);
    leaving = leaving.filter((other) => other !== running);
  }
  const staying = present.running.filter((running) => !leaving.includes(running));
  for (const plugin of added) {
    const holder = consumerOf(tokenIds(plugin.provides), staying);
    if (holder !== undefined) waiting.set(plugin.name, `The plugin ${holder} looks for its service when it starts.`);
  }
  added = added.filter(({ name }) => !waiting.has(name));
  const renewed = new Set(leaving.map(({ plugin }) => plugin.name));
  const coming = next.plugins.filter((plugin) => renewed.has(plugin.name) || added.includes(plugin));
  return { leaving, coming, reconfigured, waiting };
}

type PluginReloadAction = 'stay' | 'leave' | 'reconfigure' | { readonly waits: string };

function changeOf(running: RunningPlugin, { site }: Present, next: PluginSet): PluginReloadAction {
  const { plugin, options } = running;
  const { name } = plugin;
  const wanted = next.plugins.find((other) => other.name === name);
  const isSites = site.has(name);
  if (wanted === undefined) {
    return isSites ? 'leave' : { waits: 'A built-in plugin is switched off by a restart.' };
  }
  if (wanted !== plugin) {
    if (!isSites || !next.site.has(name)) {
      return { waits: 'A site plugin and a built-in one replace each other only at a restart.' };
    }
    return replaceable(running, 'code');
  }
  if (isDeepStrictEqual(options, next.options.get(name))) return 'stay';
  if (plugin.reload === 'replace') return 'leave';
  if (running.reconfigure !== undefined) return 'reconfigure';
  return isSites ? replaceable(running, 'options') : { waits: 'It takes its options when it starts.' };
}

function replaceable({ plugin, keepsFiles }: RunningPlugin, what: 'code' | 'options'): PluginReloadAction {
  if (plugin.reload === 'replace') return 'leave';
  if (plugin.reload === 'restart')
    return { waits: `It declares that only a restart changes its ${what} (reload: 'restart').` };
  if (keepsFiles) {
    return {
      waits: `It keeps files of its own, and does not declare that two of it may run side by side (reload: 'replace').`,
    };
  }
  return 'leave';
}

/** A plugin that cannot leave because one that stays uses its service, and the reason. */
function blockedLeaver(
  leaving: readonly RunningPlugin[],
  { running: all }: Present,
): readonly [RunningPlugin, string] | undefined {
  const staying = all.filter((running) => !leaving.includes(running));
  for (const running of leaving) {
    const holder = consumerOf(tokenIds(running.plugin.provides), staying);
    if (holder !== undefined) return [running, `The plugin ${holder} holds a service that it provides.`];
  }
  return undefined;
}

const consumerOf = (tokens: readonly string[], running: readonly RunningPlugin[]): string | undefined =>
  running.find(({ plugin }) => consumedTokens(plugin).some((token) => tokens.includes(token)))?.plugin.name;

/** Differences for operators: new code, added and removed plugins. Options are compared key by key elsewhere. */
export function pluginDifferences(
  present: Present & Pick<CurrentPlugins, 'failed'>,
  next: PluginSet,
  { waiting }: PluginPlan,
): readonly Difference[] {
  const names = new Set(present.running.map(({ plugin }) => plugin.name));
  const failed = new Set(present.failed.map(({ name }) => name));
  const told = (name: string, before: unknown, after: unknown): Difference => {
    const why = waiting.get(name);
    return { key: `sitePlugins.${name}`, before, after, restart: why !== undefined, ...(why !== undefined && { why }) };
  };
  const comings = next.plugins.flatMap(({ name }) => {
    const [old, now] = [present.site.get(name), next.site.get(name)];
    if (now === undefined) return old === undefined ? [] : [told(name, old.entry.from, 'the built-in plugin')];
    if (!names.has(name)) return [told(name, failed.has(name) ? 'failed' : null, now.entry.from)];
    if (old === undefined) return [told(name, 'the built-in plugin', now.entry.from)];
    return old.fingerprint === now.fingerprint ? [] : [told(name, versionName(old), versionName(now))];
  });
  const wanted = new Set(next.plugins.map(({ name }) => name));
  const goings = [...present.site].filter(([name]) => names.has(name) && !wanted.has(name));
  return [...comings, ...goings.map(([name, { entry }]) => told(name, entry.from, null))];
}

const versionName = ({ fingerprint }: SiteOrigin): string => `code ${fingerprint.slice(0, 12)}`;
