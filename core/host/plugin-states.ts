import type { PluginHost } from './boot.js';
import type { PluginsOverview, PluginState } from '../contracts/plugins-overview.js';
import type { Deprecations } from './deprecations.js';
import type { FailedPlugin } from './failed-plugin.js';
import type { HealthRegistry } from './health-registry.js';
import type { PluginFaults } from './plugin-faults.js';
import { kitVersion } from './kit-version.js';
import { tokensOf } from './plugin-program.js';
import type { RunningPlugin } from './running-plugin.js';
import { versionsOf } from './site-modules.js';
import type { Pipeline } from '../pipeline/pipeline.js';

export interface StatesInput {
  /** They are started behind the overview, which one of them shows. */
  readonly host: () => PluginHost;
  readonly pipeline: Pipeline;
  readonly health: HealthRegistry;
  readonly faults: PluginFaults;
  readonly deprecations: Deprecations;
}

/** How the plugins do: on `/pipeline`, and for those of the site in `/health`. */
export class PluginStates implements PluginsOverview {
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
  follow(): void {
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
      needs: tokensOf(needs),
      uses: tokensOf(uses),
      provides: tokensOf(provides),
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
