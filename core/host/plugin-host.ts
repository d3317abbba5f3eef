import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../clock.js';
import type { Difference } from '../contracts/server.js';
import type { Log } from '../log/log.js';
import type { Plugin } from '../plugin.js';
import { isStartError, problem } from '../problem.js';
import {
  type FailedPlugin,
  knownFailure,
  startFailure,
  messageWithLocation,
  optionsRefusal,
  pluginRefusal,
  loadFailure,
  setupFailure,
} from './plugin-faults.js';
import type { ProvidedService, Service, Services } from './service.js';
import { afterSwap, planPlugins, pluginDifferences, type PluginPlan, type PresentPlugins } from './plugin-plan.js';
import {
  startOrder,
  describePlugin,
  whyRequired,
  missingServiceError,
  type PluginSet,
  tokenIds,
  withoutUnmetNeeds,
} from './plugin-set.js';
import { type ContextFactory, type FaultSink, RunningPlugin } from './running-plugin.js';
import { withTimeout } from '../concurrency.js';
import type { UncaughtError } from './uncaught.js';

export interface PluginHostOptions extends SetupInput {
  readonly program: PluginSet;
  readonly provided: readonly ProvidedService[];
  readonly clock: Clock;
  /** Called in the one step that changes plugins: the old ones are out of force, the new ones are not yet in. */
  readonly onSwap?: () => void;
  /** Resolves when nothing that began before it was called is under way; then what has left is released. */
  readonly settled?: () => Promise<void>;
}

/** What a reload did to the plugins; it may be taken back until it is committed. */
interface PluginChange {
  /** Lets go of those that have left, as soon as nothing of them is under way. */
  commit(): void;
  undo(): Promise<void>;
}

/** The plugins of a running server. */
export class PluginHost {
  readonly #input: PluginHostOptions;
  #present: PresentPlugins;
  readonly #settling: DrainingPlugins;
  #stopped = false;

  constructor(input: PluginHostOptions) {
    this.#input = input;
    const { program, provided, log, settled = () => Promise.resolve() } = input;
    this.#settling = new DrainingPlugins({ log, settled });
    this.#present = {
      program,
      running: [],
      failed: program.unloaded.map((unloaded) => loadFailure(unloaded, this.#now())),
      site: new Map(),
      since: new Map(),
      services: new Map(provided.map(({ token, value }) => [token.id, value])),
    };
  }

  /** What runs, and what does not. */
  get present(): PresentPlugins {
    return this.#present;
  }

  /**
   * Starts all plugins by their needs. One of the site that fails is left out when the server may run without it. When another
   * one fails, those that had started are stopped in reverse, and it is named.
   */
  async start(): Promise<void> {
    const { program } = this.#present;
    const able = this.#able(program, (plugin, error) => this.#leaveOut(plugin, error));
    for (const plugin of startOrder(able, this.#core)) {
      await this.#startOne(plugin).catch(async (error: unknown) => {
        try {
          this.#leaveOut(plugin, error);
        } catch (refusal) {
          await this.stop();
          throw refusal;
        }
      });
    }
  }

  /** Stops all plugins, the last started first. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#settling.stop();
    const { running, site } = this.#present;
    this.#present = { ...this.#present, running: [] };
    for (const one of running.toReversed()) {
      if (site.has(one.plugin.name)) await this.#settling.discard(one);
      else await one.stop();
    }
  }

  /** What that program would change, options aside. @throws Problem `invalid` for code that cannot be loaded */
  differences(next: PluginSet): readonly Difference[] {
    this.#refuseUnloaded(next);
    return pluginDifferences(this.#present, next, planPlugins(this.#present, next));
  }

  /** Of that program: the plugins that only a restart brings into force, with the reason. */
  waiting(next: PluginSet): ReadonlyMap<string, string> {
    return planPlugins(this.#present, next).waiting;
  }

  /**
   * Brings another program into force: what is new is set up beside what runs, and swapped in one step. When one refuses,
   * nothing has changed.
   *
   * @throws Problem `invalid` that names the plugin; `unavailable` when the server stops
   */
  async reload(next: PluginSet, beforeTakingBack: () => void = () => undefined): Promise<PluginChange> {
    this.#refuseWhenStopped();
    const plan = planPlugins(this.#present, next);
    const { fresh, failed } = await this.#setUpAll(plan, next);
    const undo: (() => void | Promise<void>)[] = [];
    const takeBack = async () => {
      for (const step of undo.toReversed()) await this.#takeBack(step);
      for (const running of fresh.toReversed()) await this.#settling.discard(running);
    };
    try {
      for (const running of plan.reconfigured) undo.push(await reconfigurePlugin(running, next, this.#input.log));
      this.#refuseWhenStopped();
      undo.push(this.#swap(plan.leaving, fresh, { program: next, failed }));
    } catch (error) {
      beforeTakingBack();
      this.#input.onSwap?.();
      await takeBack();
      throw error;
    }
    return { commit: () => void this.#settling.drain(plan.leaving), undo: takeBack };
  }

  /** Counts an uncaught error as a fault of the plugin that it came from, and logs it. */
  reportUncaught({ error, origin, from }: UncaughtError): void {
    const { log, failed } = this.#input;
    const { program, failed: missing } = this.#present;
    const known = [...program.site].find(([, { entry }]) => entry.from === from)?.[0];
    const plugin = known ?? missing.find(({ entry }) => entry.from === from)?.name;
    const where = origin === 'unhandledRejection' ? 'a promise that nobody awaits' : 'a callback of its own';
    if (plugin !== undefined) failed?.(plugin, where, error);
    log.error(
      { plugin, from, where, err: error },
      'nobody caught an error of a plugin of the site; the server goes on',
    );
  }

  /** The plugins in their order, with what each needs and provides: printed by `--verbose`. */
  describe(): string {
    return this.#present.running.map(({ plugin }) => describePlugin(plugin)).join('\n');
  }

  get #core(): readonly Service<unknown>[] {
    return this.#input.provided.map(({ token }) => token);
  }

  #now(): string {
    return new Date(this.#input.clock.now()).toISOString();
  }

  /** All but those of the site that need what nobody provides. */
  #able({ plugins, site }: PluginSet, missing: (plugin: Plugin, error: Error) => void): readonly Plugin[] {
    return withoutUnmetNeeds(
      plugins,
      this.#core,
      ({ name }) => site.has(name),
      (plugin, service) => missing(plugin, missingServiceError(plugin, service)),
    );
  }

  async #startOne(plugin: Plugin): Promise<void> {
    const { program, services } = this.#present;
    const running = await setUpPlugin(plugin, program, services, this.#input);
    try {
      running.activate();
    } catch (error) {
      await running.stop();
      throw error;
    }
    const { failed } = this.#present;
    this.#present = afterSwap(this.#present, { leaving: [], fresh: [running], program, failed, at: this.#now() });
  }

  /** @throws start error when the server must not run without it */
  #leaveOut(plugin: Plugin, error: unknown): void {
    const { program, failed } = this.#present;
    const { name, provides } = plugin;
    const origin = program.site.get(name);
    if (origin === undefined) throw startFailure(plugin, error);
    const { required } = origin.entry;
    const known = { name, required, replaces: origin.replaces, provides: tokenIds(provides) };
    const because = whyRequired(known, program);
    if (because !== undefined) throw startFailure(plugin, error, { origin, because });
    const failure = setupFailure(plugin, origin, {
      options: program.options.get(name),
      cause: error,
      at: this.#now(),
    });
    this.#present = { ...this.#present, failed: [...failed, failure] };
    this.#input.log.error({ plugin: name, err: error }, 'a plugin of the site could not start and is left out');
  }

  async #setUpAll({ coming }: PluginPlan, next: PluginSet) {
    this.#refuseUnloaded(next);
    const fresh: RunningPlugin[] = [];
    const failed = next.unloaded.map((unloaded) => {
      const failure = loadFailure(unloaded, this.#now());
      return knownFailure(this.#present.failed, failure) ?? failure;
    });
    const services = new Map(this.#present.services);
    const refuse = (plugin: Plugin, error: unknown): void => {
      const failure = this.#knownFailure(plugin, next, error);
      if (failure === undefined) throw this.#refusalOf(plugin, next, error);
      failed.push(failure);
    };
    try {
      const able = this.#able(next, refuse);
      for (const plugin of startOrder(able, this.#core).filter((one) => coming.includes(one))) {
        try {
          const running = await setUpPlugin(plugin, next, services, this.#input);
          fresh.push(running);
          for (const [key, { id }] of Object.entries(plugin.provides)) services.set(id, running.service(key));
        } catch (error) {
          refuse(plugin, error);
        }
      }
    } catch (error) {
      for (const running of fresh.toReversed()) await this.#settling.discard(running);
      throw error;
    }
    return { fresh, failed };
  }

  /** One that fails as it did before is nothing new. */
  #knownFailure(plugin: Plugin, next: PluginSet, error: unknown): FailedPlugin | undefined {
    const { name } = plugin;
    const origin = next.site.get(name);
    if (origin === undefined) return undefined;
    const failure = setupFailure(plugin, origin, { options: next.options.get(name), cause: error, at: this.#now() });
    return knownFailure(this.#present.failed, failure);
  }

  #refusalOf(plugin: Plugin, next: PluginSet, error: unknown): unknown {
    const { running, site } = this.#present;
    const { name } = plugin;
    const old = running.find((one) => one.plugin.name === name);
    if (old?.plugin === plugin && !isStartError(error)) return optionsRefusal(name, error);
    const origin = next.site.get(name) ?? site.get(name);
    const why = messageWithLocation(error, origin);
    return pluginRefusal({ name, entry: origin?.entry, why, runs: old !== undefined, cause: error });
  }

  /** Code that could not be loaded refuses, unless it is known to be broken just so. */
  #refuseUnloaded(next: PluginSet): void {
    const { failed, site } = this.#present;
    for (const unloaded of next.unloaded) {
      if (knownFailure(failed, loadFailure(unloaded, '')) !== undefined) continue;
      const { entry, name, why } = unloaded;
      const runs = [...site.values()].some((origin) => origin.entry.from === entry.from);
      throw pluginRefusal({ name, entry, why, runs });
    }
  }

  /** Swaps them in one step, in which nothing can be asked; returns the way back. */
  #swap(
    leaving: readonly RunningPlugin[],
    fresh: readonly RunningPlugin[],
    next: Pick<PresentPlugins, 'program' | 'failed'>,
  ) {
    const before = this.#present;
    const { onSwap = () => undefined } = this.#input;
    const back = (): void => {
      for (const running of fresh) running.deactivate();
      if (this.#stopped) return;
      this.#present = before;
      onSwap();
      for (const running of leaving) running.activate();
    };
    let [asked] = fresh;
    for (const running of leaving) running.deactivate();
    this.#present = afterSwap(before, { leaving, fresh, ...next, at: this.#now() });
    try {
      onSwap();
      for (const running of fresh) {
        asked = running;
        running.activate();
      }
    } catch (error) {
      back();
      throw asked === undefined ? error : this.#refusalOf(asked.plugin, next.program, error);
    }
    return back;
  }

  /** What came into force now would never be stopped. */
  #refuseWhenStopped(): void {
    if (this.#stopped) throw problem('unavailable', 'The server is stopping.');
  }

  async #takeBack(step: () => void | Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      this.#input.log.error({ err: error }, 'a plugin could not go back to what it was');
    }
  }
}

interface SetupInput {
  readonly contextOf: ContextFactory;
  readonly log: Log;
  readonly failed?: FaultSink;
}

/**
 * Runs the `setup` of a plugin with its options and the services that it is lent. One of the site may not take longer than its
 * entry says. When it fails, everything it had opened is released.
 */
async function setUpPlugin(
  plugin: Plugin,
  { options, site }: Pick<PluginSet, 'options' | 'site'>,
  services: ReadonlyMap<string, unknown>,
  { contextOf, log, failed }: SetupInput,
): Promise<RunningPlugin> {
  const { name, needs, uses } = plugin;
  const lacking = tokenIds(needs).find((id) => !services.has(id));
  if (lacking !== undefined) throw new Error(`it needs ${lacking}, whose plugin has failed`);
  const running = new RunningPlugin(plugin, log, failed);
  const ready = running.setup(
    contextOf,
    { ...servicesFor(uses, services), ...servicesFor(needs, services) },
    options.get(name),
  );
  const seconds = site.get(name)?.entry.startSeconds;
  if (seconds === undefined) await ready;
  else {
    await withTimeout(seconds * 1000, ready, `it has not started after ${seconds} s`).catch((error: unknown) => {
      void running.stop();
      throw error;
    });
  }
  return running;
}

function servicesFor(services: Services, all: ReadonlyMap<string, unknown>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(services).map(([key, { id }]) => [key, all.get(id)]));
}

/**
 * Gives a running plugin other options, and returns the way back. One of the site may not take longer than its entry says; when
 * it takes them all the same, it gets the old ones behind them.
 *
 * @throws Problem `invalid` that names the plugin
 */
async function reconfigurePlugin(
  running: RunningPlugin,
  { options, site }: Pick<PluginSet, 'options' | 'site'>,
  log: Log,
): Promise<() => Promise<void>> {
  const { options: old, reconfigure } = running;
  const { name } = running.plugin;
  const seconds = site.get(name)?.entry.startSeconds;
  let underWay = false;
  const give = async (given: unknown): Promise<void> => {
    if (reconfigure === undefined) return;
    underWay = true;
    const taken = reconfigure(given).finally(() => (underWay = false));
    if (seconds === undefined) await taken;
    else await withTimeout(seconds * 1000, taken, `it has not taken them after ${seconds} s`);
  };
  try {
    await give(options.get(name));
  } catch (error) {
    if (underWay)
      give(old).catch((err: unknown) =>
        log.error({ plugin: name, err }, 'a plugin keeps options that were taken back'),
      );
    throw optionsRefusal(name, error);
  }
  return () => give(old);
}

/** How long those that have left are kept for what began with them. */
const drainTimeoutMs = 10 * 60_000;
/** How long a plugin may take to release what it holds. */
const releaseTimeoutMs = 10_000;

interface SettlingInput {
  readonly log: Log;
  /** Resolves when nothing that began before it was called is under way. */
  readonly settled: () => Promise<void>;
}

/** Plugins that are out of force and may still be asked, by sessions that began with them. */
class DrainingPlugins {
  readonly #input: SettlingInput;
  readonly #settling = new Set<RunningPlugin>();
  #end: () => void = () => undefined;
  readonly #ended = new Promise<void>((resolve) => (this.#end = resolve));

  constructor(input: SettlingInput) {
    this.#input = input;
  }

  /** Closes them behind all that began with them. */
  async drain(leaving: readonly RunningPlugin[]): Promise<void> {
    if (leaving.length === 0) return;
    for (const running of leaving) this.#settling.add(running);
    try {
      const idle = Promise.race([this.#idle(leaving), this.#ended]);
      await withTimeout(drainTimeoutMs, idle, 'something that began with them still runs');
    } catch (error) {
      const plugins = leaving.map(({ plugin }) => plugin.name);
      this.#input.log.warn({ plugins, err: error }, 'plugins that were replaced are closed all the same');
    }
    for (const running of leaving.toReversed()) {
      await this.discard(running);
      this.#settling.delete(running);
    }
  }

  /** Nobody waits for ever for a plugin of the site to let go. */
  async discard(running: RunningPlugin): Promise<void> {
    try {
      await withTimeout(releaseTimeoutMs, running.stop(), 'it has not released what it holds');
    } catch (error) {
      this.#input.log.error({ plugin: running.plugin.name, err: error }, 'a plugin does not come to its end');
    }
  }

  /** The server ends: nobody will ask them any more. */
  async stop(): Promise<void> {
    this.#end();
    for (const running of [...this.#settling].toReversed()) await this.discard(running);
  }

  async #idle(leaving: readonly RunningPlugin[]): Promise<void> {
    await this.#input.settled();
    for (const running of leaving) await running.idle();
    // Watchers are told a turn later.
    await setImmediate();
  }
}
