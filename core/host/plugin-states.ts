import type { LiveConfiguration } from '../config/live.js';
import type { PluginsOverview, PluginState } from '../contracts/plugins-overview.js';
import type { Log } from '../log/log.js';
import type { Pipeline } from '../pipeline/pipeline.js';
import { kitVersion } from './declaration.js';
import type { FailedPlugin, PluginFaults } from './plugin-faults.js';
import type { HealthRegistry } from './health.js';
import type { PluginHost } from './plugin-host.js';
import { tokenIds } from './plugin-set.js';
import type { RunningPlugin } from './running-plugin.js';
import { type SiteMemory, FallbackHooks } from './site-memory.js';
import { versionsOf } from './site-modules.js';

export interface PluginTrackerDeps {
  readonly live: LiveConfiguration;
  /** The host is created after the overview, which one of its plugins shows. */
  readonly host: () => PluginHost;
  readonly pipeline: Pipeline;
  readonly health: HealthRegistry;
  readonly memory: SiteMemory;
  readonly faults: PluginFaults;
  readonly log: Log;
}

/** Updates what depends on the running plugins: shadow mode, fallback hooks, states, and the memory of site plugins. */
export class PluginTracker {
  readonly states: PluginStates;
  readonly #fallbackHooks: FallbackHooks;
  readonly #deprecations: Deprecations;
  readonly #deps: PluginTrackerDeps;

  constructor(deps: PluginTrackerDeps) {
    const { pipeline, memory, log } = deps;
    this.#deps = deps;
    this.#deprecations = new Deprecations(log);
    this.#fallbackHooks = new FallbackHooks(pipeline, memory);
    this.states = new PluginStates(deps, this.#deprecations);
  }

  /** Hooks of plugins in shadow mode are only logged. */
  applyShadow(): void {
    const { live, pipeline } = this.#deps;
    const { settings, site } = live.current;
    const whole = [...site].filter(([, { entry }]) => entry.mode === 'shadow').map(([name]) => name);
    pipeline.shadow([...settings.smtp.shadow, ...whole]);
  }

  /** Call within the swap. */
  update(): void {
    const { failed, running, site } = this.#deps.host().current;
    this.applyShadow();
    this.#fallbackHooks.update(
      failed,
      running.map(({ plugin }) => plugin.name),
    );
    this.states.update();
    for (const { plugin } of running) {
      if (site.get(plugin.name)?.kitNumber === true) this.#deprecations.note(plugin.name, 'kit-number');
    }
  }

  /** Saves what the running site plugins are; failed ones keep their old record. */
  remember(): Promise<void> {
    const { host, memory, pipeline } = this.#deps;
    const { running, site, failed } = host().current;
    const now = running.flatMap(({ plugin: { name, provides } }) => {
      const origin = site.get(name);
      if (origin === undefined) return [];
      const { entry, replaces } = origin;
      return { name, from: entry.from, replaces, provides: tokenIds(provides), routes: pipeline.hasRoutes(name) };
    });
    const names = new Set(now.map(({ name }) => name));
    const missing = failed.flatMap(({ entry }) => memory.of(entry.from)).filter(({ name }) => !names.has(name));
    return memory.keep([...now, ...new Map(missing.map((one) => [one.name, one])).values()]);
  }
}

/** States of the plugins: on `/pipeline`, and in `/health` for site plugins. */
class PluginStates implements PluginsOverview {
  readonly #deps: PluginTrackerDeps;
  readonly #deprecations: Deprecations;
  #checks = new Map<string, () => void>();
  #known: ReadonlyMap<string, RunningPlugin> = new Map();

  constructor(deps: PluginTrackerDeps, deprecations: Deprecations) {
    this.#deps = deps;
    this.#deprecations = deprecations;
  }

  plugins(): readonly PluginState[] {
    const { running, failed, wanted } = this.#host.current;
    const waiting = this.#host.waiting(wanted);
    const hooks = this.#deps.pipeline.describe();
    return [
      ...running.map((one) =>
        this.#running(one, hooks.filter(({ plugin }) => plugin === one.plugin.name).length, waiting),
      ),
      ...failed.map((one) => failedState(one)),
      ...this.#replaced(),
    ];
  }

  /** Call after a change of plugins: registers site plugins in health and resets faults of new ones. */
  update(): void {
    const { running, failed, wanted } = this.#host.current;
    const { faults, health } = this.#deps;
    const now = new Map(running.map((one) => [one.plugin.name, one]));
    for (const [name, one] of now) if (this.#known.get(name) !== one) faults.forget(name);
    this.#known = now;
    for (const undo of this.#checks.values()) undo();
    this.#checks = new Map();
    const site = wanted.plugins.map(({ name }) => name).filter((name) => wanted.site.has(name));
    const names = new Set([...site, ...failed.map(({ name }) => name)]);
    // Stored one by one: when a name is taken, the checks registered so far can be undone.
    for (const name of names) {
      this.#checks.set(
        name,
        health.check('core', `plugin ${name}`, () => this.#report(name)),
      );
    }
  }

  #report(name: string) {
    const failure = this.#host.current.failed.find((one) => one.name === name);
    if (failure === undefined) return this.#deps.faults.report(name);
    return { status: 'degraded', why: `It is left out. ${failure.why}` } as const;
  }

  get #host(): PluginHost {
    return this.#deps.host();
  }

  #running(one: RunningPlugin, hooks: number, waiting: ReadonlyMap<string, string>): PluginState {
    const { name, kit, needs, uses, provides } = one.plugin;
    const { site, since } = this.#host.current;
    const { faults, pipeline } = this.#deps;
    const origin = site.get(name);
    return {
      name,
      from: origin?.entry.from ?? null,
      state: pipeline.isShadowed(name) ? 'shadow' : 'running',
      kit: String(kit),
      since: since.get(one) ?? '',
      versions: origin === undefined ? 0 : versionsOf(origin.file),
      hooks,
      needs: tokenIds(needs),
      uses: tokenIds(uses),
      provides: tokenIds(provides),
      targets: pipeline
        .targets()
        .filter(({ plugin }) => plugin === name)
        .map((target) => target.name),
      faults: faults.count(name),
      lastFault: faults.last(name),
      waiting: waiting.get(name) ?? null,
      deprecated: this.#deprecations.of(name),
    };
  }

  #replaced(): readonly PluginState[] {
    const { running, site, since } = this.#host.current;
    return running
      .filter(({ plugin }) => site.get(plugin.name)?.replaces === true)
      .map((one) => ({ ...noState, name: one.plugin.name, state: 'replaced', since: since.get(one) ?? '' }));
  }
}

const noState = {
  from: null,
  kit: kitVersion,
  versions: 0,
  hooks: 0,
  needs: [],
  uses: [],
  provides: [],
  targets: [],
  faults: 0,
  lastFault: null,
  waiting: null,
  deprecated: [],
} as const;

const failedState = ({ name, entry, where, why, at, kit }: FailedPlugin): PluginState => ({
  ...noState,
  name,
  from: entry.from,
  state: 'failed',
  kit,
  since: at,
  faults: 1,
  lastFault: { at, where, message: why },
});

/** Forms that this version of the kit accepts and a later one will not. */
const deprecated = {
  'kit-number': `kit as a whole number; write it as text, with a minor version: kit: '1.0'.`,
} as const;

type Deprecated = keyof typeof deprecated;

/** Deprecated forms in use: logged once a plugin, and shown on its state. */
class Deprecations {
  readonly #log: Log;
  readonly #used = new Map<string, Set<Deprecated>>();

  constructor(log: Log) {
    this.#log = log;
  }

  note(plugin: string, what: Deprecated): void {
    const used = this.#used.get(plugin) ?? new Set();
    this.#used.set(plugin, used);
    if (used.has(what)) return;
    used.add(what);
    this.#log.warn({ plugin, deprecated: what }, `a plugin uses a deprecated form: ${deprecated[what]}`);
  }

  /** One sentence each. */
  of(plugin: string): readonly string[] {
    return [...(this.#used.get(plugin) ?? [])].map((what) => deprecated[what]);
  }
}
