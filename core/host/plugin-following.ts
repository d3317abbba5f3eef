import type { PluginHost } from './boot.js';
import type { LiveConfiguration } from '../config/live.js';
import { Deprecations } from './deprecations.js';
import type { HealthRegistry } from './health-registry.js';
import type { Log } from '../log/log.js';
import type { PluginFaults } from './plugin-faults.js';
import { tokensOf } from './plugin-program.js';
import { PluginStates } from './plugin-states.js';
import type { SiteMemory } from './site-memory.js';
import type { Pipeline } from '../pipeline/pipeline.js';
import { StandIns } from './stand-ins.js';

export interface FollowingInput {
  readonly live: LiveConfiguration;
  readonly host: () => PluginHost;
  readonly pipeline: Pipeline;
  readonly health: HealthRegistry;
  readonly memory: SiteMemory;
  readonly faults: PluginFaults;
  readonly log: Log;
}

/** What the server does as its plugins come and go: who is shadowed, who is stood in for, how they do, what they were. */
export class PluginFollowing {
  readonly states: PluginStates;
  readonly #standIns: StandIns;
  readonly #deprecations: Deprecations;
  readonly #input: FollowingInput;

  constructor(input: FollowingInput) {
    const { pipeline, memory, log } = input;
    this.#input = input;
    this.#deprecations = new Deprecations(log);
    this.#standIns = new StandIns(pipeline, memory);
    this.states = new PluginStates({ ...input, deprecations: this.#deprecations });
  }

  /** Verdicts of the plugins that the configuration names are only looked at. */
  shadow(): void {
    const { live, pipeline } = this.#input;
    const { settings, site } = live.current;
    const whole = [...site].filter(([, { entry }]) => entry.mode === 'shadow').map(([name]) => name);
    pipeline.shadow([...settings.smtp.shadow, ...whole]);
  }

  /** To be called in the step in which others come into force. */
  follow(): void {
    const { failed, running, site } = this.#input.host().present;
    this.shadow();
    this.#standIns.follow(
      failed,
      running.map(({ plugin }) => plugin.name),
    );
    this.states.follow();
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
      return { name, from: entry.from, replaces, provides: tokensOf(provides), routes: pipeline.hasRoutes(name) };
    });
    const names = new Set(now.map(({ name }) => name));
    const missing = failed.flatMap(({ entry }) => memory.of(entry.from)).filter(({ name }) => !names.has(name));
    return memory.keep([...now, ...new Map(missing.map((one) => [one.name, one])).values()]);
  }
}
