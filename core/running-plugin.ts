import type { Log } from './log.js';
import type { Plugin, PluginContext } from './plugin.js';
import { Registrations } from './registrations.js';
import { markOf, runAs } from './watchdog/running-code.js';

type Release = () => void | Promise<void>;

/** Makes the context of one plugin over the registrations and releases that belong to it. */
export type ContextFactory = (
  plugin: Plugin,
  registrations: Registrations,
  onClose: (release: Release) => void,
) => PluginContext;

/** One plugin between its setup and its stop. */
export class RunningPlugin {
  readonly plugin: Plugin;
  readonly #registrations = new Registrations();
  readonly #releases: Release[] = [];
  readonly #log: Log;
  #result: Readonly<Record<string, unknown>> = {};
  #options: unknown;

  constructor(plugin: Plugin, log: Log) {
    this.plugin = plugin;
    this.#log = log;
  }

  get options(): unknown {
    return this.#options;
  }

  /** Runs `setup`; nothing is in force before `activate`. When it throws, everything it had opened is released. */
  async setup(contextOf: ContextFactory, services: Readonly<Record<string, unknown>>, options: unknown): Promise<void> {
    this.#options = options;
    const context = contextOf(this.plugin, this.#registrations, (release) => this.#releases.push(release));
    try {
      const given = { ...services, options };
      const result = await runAs(markOf(this.plugin.name, 'setup'), () => this.plugin.setup(context, given));
      this.#result = (result ?? {}) as Record<string, unknown>;
      this.#refuseMissingServices();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  activate(): void {
    this.#registrations.activate();
  }

  deactivate(): void {
    this.#registrations.deactivate();
  }

  service(key: string): unknown {
    return this.#result[key];
  }

  /** Undefined when the plugin cannot change while it runs. */
  get reconfigure(): ((options: unknown) => Promise<void>) | undefined {
    const reconfigure = this.#result['reconfigure'];
    if (typeof reconfigure !== 'function') return undefined;
    return async (options) => {
      const give = reconfigure as (options: unknown) => void | Promise<void>;
      await runAs(markOf(this.plugin.name, 'reconfigure'), () => give(options));
      this.#options = options;
    };
  }

  /** Takes its registrations out of force and releases what it opened, the last first. Never throws. */
  async stop(): Promise<void> {
    this.#registrations.deactivate();
    for (let release = this.#releases.pop(); release !== undefined; release = this.#releases.pop()) {
      try {
        await release();
      } catch (error) {
        this.#log.error({ plugin: this.plugin.name, err: error }, 'a plugin could not release everything');
      }
    }
  }

  #refuseMissingServices(): void {
    const missing = Object.keys(this.plugin.provides).find((key) => this.#result[key] === undefined);
    if (missing !== undefined) throw new Error(`setup returned nothing for ${missing}, which it declares in provides`);
  }
}
