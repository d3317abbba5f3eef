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

export interface PluginTrackerOptions {
  readonly live: LiveConfiguration;
  readonly host: () => PluginHost;
  readonly pipeline: Pipeline;
  readonly health: HealthRegistry;
  readonly memory: SiteMemory;
  readonly faults: PluginFaults;
  readonly log: Log;
}

/** What the server does as its plugins come and go: who is shadowed, who is stood in for, how they do, what they were. */
export class PluginTracker {
  readonly states: PluginStates;
  readonly #standIns: FallbackHooks;
  readonly #deprecations: Deprecations;
  readonly #input: PluginTrackerOptions;

  constructor(input: PluginTrackerOptions) {
    const { pipeline, memory, log } = input;
    this.#input = input;
    this.#deprecations = new Deprecations(log);
    this.#standIns = new FallbackHooks(pipeline, memory);
    this.states = new PluginStates({ ...input, deprecations: this.#deprecations });
  }

  /** Verdicts of the plugins that the configuration names are only looked at. */
  applyShadow(): void {
    const { live, pipeline } = this.#input;
    const { settings, site } = live.current;
    const whole = [...site].filter(([, { entry }]) => entry.mode === 'shadow').map(([name]) => name);
    pipeline.shadow([...settings.smtp.shadow, ...whole]);
  }

  /** To be called in the step in which others come into force. */
  update(): void {
    const { failed, running, site } = this.#input.host().present;
    this.applyShadow();
    this.#standIns.update(
      failed,
      running.map(({ plugin }) => plugin.name),
    );
    this.states.update();
    for (const { plugin } of running) {
      if (site.get(plugin.name)?.kitNumber === true) this.#deprecations.note(plugin.name, 'kit-number');
    }
  }

  /** Writes down what the plugins of the site are that run; those that failed are remembered as they were. */
  remember(): Promise<void> {
    const { host, memory, pipeline } = this.#input;
    const { running, site, failed } = host().present;
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

interface StatesInput {
  /** They are started behind the overview, which one of them shows. */
  readonly host: () => PluginHost;
  readonly pipeline: Pipeline;
  readonly health: HealthRegistry;
  readonly faults: PluginFaults;
  readonly deprecations: Deprecations;
}

/** How the plugins do: on `/pipeline`, and for those of the site in `/health`. */
class PluginStates implements PluginsOverview {
  readonly #input: StatesInput;
  #checks = new Map<string, () => void>();
  #known: ReadonlyMap<string, RunningPlugin> = new Map();

  constructor(input: StatesInput) {
    this.#input = input;
  }

  plugins(): readonly PluginState[] {
    const { running, failed, program } = this.#host.present;
    const waiting = this.#host.waiting(program);
    const hooks = this.#input.pipeline.describe();
    return [
      ...running.map((one) =>
        this.#running(one, hooks.filter(({ plugin }) => plugin === one.plugin.name).length, waiting),
      ),
      ...failed.map((one) => failedState(one)),
      ...this.#replaced(),
    ];
  }

  /** To be called when others run than before: health names those of the site, and their faults are counted anew. */
  update(): void {
    const { running, failed, program } = this.#host.present;
    const { faults, health } = this.#input;
    const now = new Map(running.map((one) => [one.plugin.name, one]));
    for (const [name, one] of now) if (this.#known.get(name) !== one) faults.forget(name);
    this.#known = now;
    for (const undo of this.#checks.values()) undo();
    this.#checks = new Map();
    const wanted = program.plugins.map(({ name }) => name).filter((name) => program.site.has(name));
    const names = new Set([...wanted, ...failed.map(({ name }) => name)]);
    // One by one: when a name is taken, those before it are known to be undone.
    for (const name of names) {
      this.#checks.set(
        name,
        health.check('core', `plugin ${name}`, () => this.#report(name)),
      );
    }
  }

  #report(name: string) {
    const failure = this.#host.present.failed.find((one) => one.name === name);
    if (failure === undefined) return this.#input.faults.report(name);
    return { status: 'degraded', why: `It is left out. ${failure.why}` } as const;
  }

  get #host(): PluginHost {
    return this.#input.host();
  }

  #running(one: RunningPlugin, hooks: number, waiting: ReadonlyMap<string, string>): PluginState {
    const { name, kit, needs, uses, provides } = one.plugin;
    const { site, since } = this.#host.present;
    const { faults, deprecations, pipeline } = this.#input;
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
      deprecated: deprecations.of(name),
    };
  }

  #replaced(): readonly PluginState[] {
    const { running, site, since } = this.#host.present;
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

/** What this version of the kit still takes and a later one will not, by a name of ours. */
const deprecated = {
  'kit-number': `kit as a whole number; write it as text, with a minor version: kit: '1.0'.`,
} as const;

type Deprecated = keyof typeof deprecated;

/** Who uses what will go: told in the log once for each plugin, and on its state. */
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
    this.#log.warn(
      { plugin, deprecated: what },
      `a plugin uses what a later version will not have: ${deprecated[what]}`,
    );
  }

  /** A sentence each. */
  of(plugin: string): readonly string[] {
    return [...(this.#used.get(plugin) ?? [])].map((what) => deprecated[what]);
  }

  /** Its code is another one now. */
  forget(plugin: string): void {
    this.#used.delete(plugin);
  }
}
