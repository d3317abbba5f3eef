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
import type { ProvidedService, Service, Services } from '../contracts/service.js';
import { afterSwap, planPlugins, pluginDifferences, type PluginPlan, type CurrentPlugins } from './plugin-plan.js';
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

export interface PluginHostOptions {
  readonly contextOf: ContextFactory;
  readonly log: Log;
  readonly failed?: FaultSink;
  readonly wanted: PluginSet;
  readonly provided: readonly ProvidedService[];
  readonly clock: Clock;
  /** Called within the swap: the old plugins are deactivated, the new ones not yet activated. */
  readonly onSwap?: () => void;
  /** Resolves when all work that began before the call has ended; then replaced plugins are released. */
  readonly settled?: () => Promise<void>;
}

/** Result of a reload; can be undone until it is committed. */
interface PluginChange {
  /** Releases the replaced plugins as soon as they are idle. */
  commit(): void;
  undo(): Promise<void>;
}

/** The plugins of a running server. */
export class PluginHost {
  readonly #options: PluginHostOptions;
  #current: CurrentPlugins;
  readonly #draining: DrainingPlugins;
  #stopped = false;

  constructor(options: PluginHostOptions) {
    this.#options = options;
    const { wanted, provided, log, settled = () => Promise.resolve() } = options;
    this.#draining = new DrainingPlugins(log, settled);
    this.#current = {
      wanted,
      running: [],
      failed: wanted.unloaded.map((unloaded) => loadFailure(unloaded, this.#now())),
      site: new Map(),
      since: new Map(),
      services: new Map(provided.map(({ token, value }) => [token.id, value])),
    };
  }

  get current(): CurrentPlugins {
    return this.#current;
  }

  /** The service that a running plugin provides; undefined without one. */
  find<T>({ id }: Service<T>): T | undefined {
    return this.#current.services.get(id) as T | undefined;
  }

  /**
   * Starts all plugins in the order of their dependencies. A site plugin that fails is left out unless it is required.
   * When another one fails, those already started are stopped in reverse order.
   */
  async start(): Promise<void> {
    const { wanted } = this.#current;
    const able = this.#startable(wanted, (plugin, error) => this.#leaveOut(plugin, error));
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
    await this.#draining.stop();
    const { running, site } = this.#current;
    this.#current = { ...this.#current, running: [] };
    for (const one of running.toReversed()) {
      if (site.has(one.plugin.name)) await this.#draining.discard(one);
      else await one.stop();
    }
  }

  /**
   * What a reload with these plugins would change, options aside.
   *
   * @throws Problem `invalid` for code that cannot be loaded
   */
  differences(next: PluginSet): readonly Difference[] {
    this.#refuseUnloaded(next);
    return pluginDifferences(this.#current, next, planPlugins(this.#current, next));
  }

  /** Plugins that change only at a restart, with the reason. */
  waiting(next: PluginSet): ReadonlyMap<string, string> {
    return planPlugins(this.#current, next).waiting;
  }

  /**
   * Replaces plugins: sets up the new ones beside the running ones and swaps them in one step. Changes nothing when one
   * refuses.
   *
   * @throws Problem `invalid` that names the plugin; `unavailable` when the server stops
   */
  async reload(next: PluginSet, beforeRollback: () => void = () => undefined): Promise<PluginChange> {
    this.#refuseWhenStopped();
    const plan = planPlugins(this.#current, next);
    const { fresh, failed } = await this.#setUpAll(plan, next);
    const undo: (() => void | Promise<void>)[] = [];
    const rollback = async () => {
      for (const step of undo.toReversed()) await this.#rollback(step);
      for (const running of fresh.toReversed()) await this.#draining.discard(running);
    };
    try {
      for (const running of plan.reconfigured) undo.push(await reconfigurePlugin(running, next, this.#options.log));
      this.#refuseWhenStopped();
      undo.push(this.#swap(plan.leaving, fresh, { wanted: next, failed }));
    } catch (error) {
      beforeRollback();
      this.#options.onSwap?.();
      await rollback();
      throw error;
    }
    return { commit: () => void this.#draining.drain(plan.leaving), undo: rollback };
  }

  /** Counts an uncaught error as a fault of the plugin that it came from, and logs it. */
  reportUncaught({ error, origin, from }: UncaughtError): void {
    const { log, failed } = this.#options;
    const { wanted, failed: missing } = this.#current;
    const known = [...wanted.site].find(([, { entry }]) => entry.from === from)?.[0];
    const plugin = known ?? missing.find(({ entry }) => entry.from === from)?.name;
    const where = origin === 'unhandledRejection' ? 'a promise without a handler' : 'a callback';
    if (plugin !== undefined) failed?.(plugin, where, error);
    log.error({ plugin, from, where, err: error }, 'uncaught error of a site plugin; the server continues');
  }

  /** The plugins in their order, with what each needs and provides: printed by `--verbose`. */
  describe(): string {
    return this.#current.running.map(({ plugin }) => describePlugin(plugin)).join('\n');
  }

  get #core(): readonly Service<unknown>[] {
    return this.#options.provided.map(({ token }) => token);
  }

  #now(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }

  /** All plugins except those of the site whose needs are unmet. */
  #startable({ plugins, site }: PluginSet, missing: (plugin: Plugin, error: Error) => void): readonly Plugin[] {
    return withoutUnmetNeeds(
      plugins,
      this.#core,
      ({ name }) => site.has(name),
      (plugin, service) => missing(plugin, missingServiceError(plugin, service)),
    );
  }

  async #startOne(plugin: Plugin): Promise<void> {
    const { wanted, services } = this.#current;
    const running = await setUpPlugin(plugin, wanted, services, this.#options);
    try {
      running.activate();
    } catch (error) {
      await running.stop();
      throw error;
    }
    const { failed } = this.#current;
    this.#current = afterSwap(this.#current, { leaving: [], fresh: [running], wanted, failed, at: this.#now() });
  }

  /** @throws start error when the server requires the plugin */
  #leaveOut(plugin: Plugin, error: unknown): void {
    const { wanted, failed } = this.#current;
    const { name, provides } = plugin;
    const origin = wanted.site.get(name);
    if (origin === undefined) throw startFailure(plugin, error);
    const { required } = origin.entry;
    const known = { name, required, replaces: origin.replaces, provides: tokenIds(provides) };
    const because = whyRequired(known, wanted);
    if (because !== undefined) throw startFailure(plugin, error, { origin, because });
    const failure = setupFailure(plugin, origin, {
      options: wanted.options.get(name),
      cause: error,
      at: this.#now(),
    });
    this.#current = { ...this.#current, failed: [...failed, failure] };
    this.#options.log.error({ plugin: name, err: error }, 'a site plugin could not start and is left out');
  }

  async #setUpAll({ coming }: PluginPlan, next: PluginSet) {
    this.#refuseUnloaded(next);
    const fresh: RunningPlugin[] = [];
    const failed = next.unloaded.map((unloaded) => {
      const failure = loadFailure(unloaded, this.#now());
      return knownFailure(this.#current.failed, failure) ?? failure;
    });
    const services = new Map(this.#current.services);
    const refuse = (plugin: Plugin, error: unknown): void => {
      const failure = this.#knownFailure(plugin, next, error);
      if (failure === undefined) throw this.#refusalOf(plugin, next, error);
      failed.push(failure);
    };
    try {
      const able = this.#startable(next, refuse);
      for (const plugin of startOrder(able, this.#core).filter((one) => coming.includes(one))) {
        try {
          const running = await setUpPlugin(plugin, next, services, this.#options);
          fresh.push(running);
          for (const [key, { id }] of Object.entries(plugin.provides)) services.set(id, running.service(key));
        } catch (error) {
          refuse(plugin, error);
        }
      }
    } catch (error) {
      for (const running of fresh.toReversed()) await this.#draining.discard(running);
      throw error;
    }
    return { fresh, failed };
  }

  /** The failure when it is the same as before. */
  #knownFailure(plugin: Plugin, next: PluginSet, error: unknown): FailedPlugin | undefined {
    const { name } = plugin;
    const origin = next.site.get(name);
    if (origin === undefined) return undefined;
    const failure = setupFailure(plugin, origin, { options: next.options.get(name), cause: error, at: this.#now() });
    return knownFailure(this.#current.failed, failure);
  }

  #refusalOf(plugin: Plugin, next: PluginSet, error: unknown): unknown {
    const { running, site } = this.#current;
    const { name } = plugin;
    const old = running.find((one) => one.plugin.name === name);
    if (old?.plugin === plugin && !isStartError(error)) return optionsRefusal(name, error);
    const origin = next.site.get(name) ?? site.get(name);
    const why = messageWithLocation(error, origin);
    return pluginRefusal({ name, entry: origin?.entry, why, runs: old !== undefined, cause: error });
  }

  /** Refuses code that cannot be loaded, unless the same failure is already known. */
  #refuseUnloaded(next: PluginSet): void {
    const { failed, site } = this.#current;
    for (const unloaded of next.unloaded) {
      if (knownFailure(failed, loadFailure(unloaded, '')) !== undefined) continue;
      const { entry, name, why } = unloaded;
      const runs = [...site.values()].some((origin) => origin.entry.from === entry.from);
      throw pluginRefusal({ name, entry, why, runs });
    }
  }

  /** Swaps the plugins in one synchronous step; returns the undo. */
  #swap(
    leaving: readonly RunningPlugin[],
    fresh: readonly RunningPlugin[],
    next: Pick<CurrentPlugins, 'wanted' | 'failed'>,
  ) {
    const before = this.#current;
    const { onSwap = () => undefined } = this.#options;
    const back = (): void => {
      for (const running of fresh) running.deactivate();
      if (this.#stopped) return;
      this.#current = before;
      onSwap();
      for (const running of leaving) running.activate();
    };
    let [asked] = fresh;
    for (const running of leaving) running.deactivate();
    this.#current = afterSwap(before, { leaving, fresh, ...next, at: this.#now() });
    try {
      onSwap();
      for (const running of fresh) {
        asked = running;
        running.activate();
      }
    } catch (error) {
      back();
      throw asked === undefined ? error : this.#refusalOf(asked.plugin, next.wanted, error);
    }
    return back;
  }

  /** A plugin activated after the stop would never be stopped. */
  #refuseWhenStopped(): void {
    if (this.#stopped) throw problem('unavailable', 'The server is stopping.');
  }

  async #rollback(step: () => void | Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      this.#options.log.error({ err: error }, 'a plugin could not be rolled back');
    }
  }
}

/**
 * Runs `setup` of a plugin with its options and services; a site plugin must finish within `startSeconds`. Releases
 * everything it opened when it fails.
 */
async function setUpPlugin(
  plugin: Plugin,
  { options, site }: Pick<PluginSet, 'options' | 'site'>,
  services: ReadonlyMap<string, unknown>,
  { contextOf, log, failed }: Pick<PluginHostOptions, 'contextOf' | 'log' | 'failed'>,
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
 * Gives a running plugin new options; returns the undo. A site plugin must finish within `startSeconds`; one that
 * finishes late gets its old options back.
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
    else await withTimeout(seconds * 1000, taken, `it has not applied them after ${seconds} s`);
  };
  try {
    await give(options.get(name));
  } catch (error) {
    if (underWay)
      give(old).catch((err: unknown) =>
        log.error({ plugin: name, err }, 'a plugin could not return to its old options'),
      );
    throw optionsRefusal(name, error);
  }
  return () => give(old);
}

/** How long replaced plugins wait for work that began with them. */
const drainTimeoutMs = 10 * 60_000;
/** How long a plugin may take to release its resources. */
const releaseTimeoutMs = 10_000;

/** Replaced plugins that sessions may still use. */
class DrainingPlugins {
  readonly #log: Log;
  readonly #settled: () => Promise<void>;
  readonly #draining = new Set<RunningPlugin>();
  #end: () => void = () => undefined;
  readonly #ended = new Promise<void>((resolve) => (this.#end = resolve));

  /** @param settled resolves when all work that began before the call has ended */
  constructor(log: Log, settled: () => Promise<void>) {
    this.#log = log;
    this.#settled = settled;
  }

  /** Stops them after all work that began with them. */
  async drain(leaving: readonly RunningPlugin[]): Promise<void> {
    if (leaving.length === 0) return;
    for (const running of leaving) this.#draining.add(running);
    try {
      const idle = Promise.race([this.#idle(leaving), this.#ended]);
      await withTimeout(drainTimeoutMs, idle, 'something that began with them still runs');
    } catch (error) {
      const plugins = leaving.map(({ plugin }) => plugin.name);
      this.#log.warn({ plugins, err: error }, 'replaced plugins are stopped although their work still runs');
    }
    for (const running of leaving.toReversed()) {
      await this.discard(running);
      this.#draining.delete(running);
    }
  }

  /** Stops a plugin; does not wait longer than `releaseTimeoutMs`. */
  async discard(running: RunningPlugin): Promise<void> {
    try {
      await withTimeout(releaseTimeoutMs, running.stop(), 'it has not released its resources');
    } catch (error) {
      this.#log.error({ plugin: running.plugin.name, err: error }, 'a plugin does not stop');
    }
  }

  /** The server stops: no session uses them any more. */
  async stop(): Promise<void> {
    this.#end();
    for (const running of [...this.#draining].toReversed()) await this.discard(running);
  }

  async #idle(leaving: readonly RunningPlugin[]): Promise<void> {
    await this.#settled();
    for (const running of leaving) await running.idle();
    // Watchers run one turn later.
    await setImmediate();
  }
}
