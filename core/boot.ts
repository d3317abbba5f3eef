import { isDeepStrictEqual } from 'node:util';
import { bootOrder } from './boot-order.js';
import type { Log } from './log.js';
import type { Plugin } from './plugin.js';
import { problem } from './problem.js';
import { redactText } from './redact.js';
import { RunningPlugin, type ContextFactory } from './running-plugin.js';
import type { Service, Services } from './service.js';
import { isStartError, startError } from './start-error.js';

/** A service that core itself lends. */
export interface Lent {
  readonly token: Service<unknown>;
  readonly value: unknown;
}

export function lend<T>(token: Service<T>, value: T): Lent {
  return { token, value };
}

export interface HostInput {
  readonly plugins: readonly Plugin[];
  /** Checked options by plugin name. */
  readonly options: ReadonlyMap<string, unknown>;
  readonly lent: readonly Lent[];
  readonly contextOf: ContextFactory;
  readonly log: Log;
}

export interface Reconfigured {
  /** Plugins whose new options are in force. */
  readonly changed: readonly string[];
  /** Plugins whose options changed, but only a restart can bring them into force. */
  readonly restartRequired: readonly string[];
}

/** The plugins of a running server. */
export class PluginHost {
  readonly #running: RunningPlugin[] = [];
  readonly #services = new Map<string, unknown>();
  readonly #input: HostInput;

  constructor(input: HostInput) {
    this.#input = input;
    for (const { token, value } of input.lent) this.#services.set(token.id, value);
  }

  /** Starts all plugins by their needs. When one fails, those that had started are stopped in reverse, and it is named. */
  async start(): Promise<void> {
    const { plugins, lent } = this.#input;
    const ordered = bootOrder(
      plugins,
      lent.map(({ token }) => token),
    );
    for (const plugin of ordered) await this.#startOne(plugin);
  }

  /** Whether that plugin runs and can take new options while it does. */
  takesOptions(name: string): boolean {
    const running = this.#running.find(({ plugin }) => plugin.name === name);
    return running !== undefined && (running.plugin.reload === 'replace' || running.reconfigure !== undefined);
  }

  /** Stops all plugins, the last started first. */
  async stop(): Promise<void> {
    for (let running = this.#running.pop(); running !== undefined; running = this.#running.pop()) await running.stop();
  }

  /**
   * Hands changed options to the plugins that can take them. When one refuses, those before it get their old options
   * back: nothing has changed.
   *
   * @throws Problem `invalid` that names the plugin
   */
  async reconfigure(
    options: ReadonlyMap<string, unknown>,
    beforeTakingBack: () => void = () => undefined,
  ): Promise<Reconfigured> {
    const affected = this.#running.filter(
      ({ plugin, options: old }) => options.has(plugin.name) && !isDeepStrictEqual(old, options.get(plugin.name)),
    );
    const undo: (() => Promise<void>)[] = [];
    const changed: string[] = [];
    const restartRequired: string[] = [];
    let asked = '';
    try {
      for (const running of affected) {
        const { name } = running.plugin;
        asked = name;
        const old = running.options;
        if (running.plugin.reload === 'replace') undo.push(await this.#replace(running, options.get(name)));
        else if (running.reconfigure === undefined) {
          restartRequired.push(name);
          continue;
        } else {
          const give = running.reconfigure;
          await give(options.get(name));
          undo.push(() => give(old));
        }
        changed.push(name);
      }
    } catch (error) {
      beforeTakingBack();
      for (const takeBack of undo.toReversed()) await this.#takeBack(takeBack);
      throw refusedOptions(asked, error);
    }
    return { changed, restartRequired };
  }

  /** The plugins in their order, with what each needs and provides: printed by `--verbose`. */
  describe(): string {
    return this.#running.map(({ plugin }) => describePlugin(plugin)).join('\n');
  }

  async #startOne(plugin: Plugin): Promise<void> {
    const running = await this.#setUp(plugin, this.#input.options.get(plugin.name)).catch(async (error: unknown) => {
      await this.stop();
      throw notStarted(plugin, error);
    });
    try {
      running.activate();
    } catch (error) {
      await running.stop();
      await this.stop();
      throw notStarted(plugin, error);
    }
    this.#running.push(running);
    for (const [key, token] of Object.entries(plugin.provides)) this.#services.set(token.id, running.service(key));
  }

  async #setUp(plugin: Plugin, options: unknown): Promise<RunningPlugin> {
    const running = new RunningPlugin(plugin, this.#input.log);
    const services = { ...this.#lendTo(plugin.uses), ...this.#lendTo(plugin.needs) };
    await running.setup(this.#input.contextOf, services, options);
    return running;
  }

  async #takeBack(undo: () => Promise<void>): Promise<void> {
    try {
      await undo();
    } catch (error) {
      this.#input.log.error({ err: error }, 'a plugin could not go back to its old options');
    }
  }

  /** Sets the plugin up anew beside the old one and swaps the two in one step; resolves with the way back. */
  async #replace(old: RunningPlugin, options: unknown): Promise<() => Promise<void>> {
    const successor = await this.#setUp(old.plugin, options);
    const place = this.#running.indexOf(old);
    old.deactivate();
    try {
      successor.activate();
    } catch (error) {
      old.activate();
      await successor.stop();
      throw error;
    }
    this.#running[place] = successor;
    const former = old.options;
    await old.stop();
    return async () => {
      await this.#replace(successor, former);
    };
  }

  #lendTo(services: Services): Readonly<Record<string, unknown>> {
    return Object.fromEntries(Object.entries(services).map(([key, token]) => [key, this.#services.get(token.id)]));
  }
}

function refusedOptions(name: string, cause: unknown) {
  const why = redactText(cause instanceof Error ? cause.message : String(cause));
  const sentence = `The plugin ${name} refuses its options: ${why}`;
  return problem('invalid', {
    detail: sentence,
    errors: [{ pointer: `/plugins/${name}`, message: sentence }],
    cause,
  });
}

function notStarted(plugin: Plugin, error: unknown) {
  const reason = error instanceof Error ? error.message : String(error);
  return isStartError(error) ? error : startError(`Plugin ${plugin.name} could not start: ${reason}`, error);
}

function describePlugin({ name, needs, uses, provides }: Plugin): string {
  const list = (word: string, services: Services) => {
    const ids = Object.values(services).map((token) => token.id);
    return ids.length === 0 ? '' : `  ${word} ${ids.join(', ')}`;
  };
  return `${name}${list('needs', needs)}${list('uses', uses)}${list('provides', provides)}`;
}
