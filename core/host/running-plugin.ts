import { trackInUse } from '../http/endpoint.js';
import { asProblem } from '../http/shell/problem-boundary.js';
import type { Log } from '../log/log.js';
import type { Hook, HookOptions } from '../pipeline/hook.js';
import type { Stage } from '../pipeline/verdict.js';
import type { Plugin, PluginContext } from '../plugin.js';
import { classOf } from '../problem.js';
import { markOf, runAs } from '../watchdog/running-code.js';
import { PendingWork } from '../concurrency.js';

type TakeOptions = (options: unknown) => void | Promise<void>;
type Release = () => void | Promise<void>;

/** Makes the context of one plugin over its registrations and releases. */
export type ContextFactory = (
  plugin: Plugin,
  registrations: Registrations,
  onClose: (release: Release) => void,
) => PluginContext;

/** Receives the faults of plugins. */
export type FaultSink = (plugin: string, where: string, error: unknown) => void;

/** One plugin from its setup to its stop. */
export class RunningPlugin {
  readonly plugin: Plugin;
  readonly #registrations = new Registrations();
  readonly #releases: Release[] = [];
  readonly #pending = new PendingWork();
  readonly #log: Log;
  readonly #failed: FaultSink;
  #result: Readonly<Record<string, unknown>> = {};
  #options: unknown;
  #keepsFiles = false;
  #stopped: Promise<void> | undefined;
  /** Settles when the last given options are accepted or refused. */
  #taking: Promise<unknown> = Promise.resolve();

  constructor(plugin: Plugin, log: Log, failed: FaultSink = () => undefined) {
    this.plugin = plugin;
    this.#log = log;
    this.#failed = failed;
  }

  get options(): unknown {
    return this.#options;
  }

  /** Whether it requested a folder of its own. */
  get keepsFiles(): boolean {
    return this.#keepsFiles;
  }

  /** Runs `setup`; registrations become active in `activate`. When it throws, everything it opened is released. */
  async setup(contextOf: ContextFactory, services: Readonly<Record<string, unknown>>, options: unknown): Promise<void> {
    this.#options = options;
    const context = contextOf(this.plugin, this.#registrations, (release) => this.#onClose(release));
    const instrumented = instrumentedContext(context, {
      pending: this.#pending,
      keepsFiles: () => void (this.#keepsFiles = true),
      failed: (where, error) => this.#failed(this.plugin.name, where, error),
    });
    try {
      const given = { ...services, options };
      const result = await runAs(markOf(this.plugin.name, 'setup'), () => this.plugin.setup(instrumented, given));
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

  /** Undefined when the plugin cannot change while it runs. Calls run one after the other. */
  get reconfigure(): ((options: unknown) => Promise<void>) | undefined {
    const reconfigure = this.#result['reconfigure'];
    if (typeof reconfigure !== 'function') return undefined;
    return (options) => {
      const taken = this.#reconfigure(options, reconfigure as TakeOptions, this.#taking);
      this.#taking = taken.catch(() => undefined);
      return taken;
    };
  }

  /** Resolves when none of its hooks, watchers, tasks and endpoints runs. */
  idle(): Promise<void> {
    return this.#pending.idle();
  }

  /** Deactivates its registrations and releases what it opened, the last first. Never throws. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#registrations.deactivate();
    for (let release = this.#releases.pop(); release !== undefined; release = this.#releases.pop()) {
      await this.#release(release);
    }
  }

  /** Releases at once what an abandoned setup opens. */
  #onClose(release: Release): void {
    if (typeof release !== 'function') throw new TypeError('onClose: not a function.');
    if (this.#stopped === undefined) this.#releases.push(release);
    else void this.#release(release);
  }

  async #release(release: Release): Promise<void> {
    try {
      await release();
    } catch (error) {
      this.#failed(this.plugin.name, 'release', error);
      this.#log.error({ plugin: this.plugin.name, err: error }, 'a plugin could not release everything');
    }
  }

  async #reconfigure(options: unknown, take: TakeOptions, before: Promise<unknown>): Promise<void> {
    await before;
    await runAs(markOf(this.plugin.name, 'reconfigure'), () => take(options));
    this.#options = options;
  }

  #refuseMissingServices(): void {
    const missing = Object.keys(this.plugin.provides).find((key) => !Object.hasOwn(this.#result, key));
    if (missing !== undefined) throw new Error(`setup returned nothing for ${missing}, which it declares in provides`);
  }
}

type Undo = () => void;

/**
 * Registrations of one plugin. Staged during `setup` and activated together, so that a failed setup leaves nothing and
 * a swap is one step.
 */
class Registrations {
  readonly #staged: (() => Undo)[] = [];
  readonly #undo: Undo[] = [];
  #active = false;

  /** `register` runs on activation and returns its undo. Rejected registrations are not kept. */
  add(register: () => Undo): void {
    if (this.#active) this.#undo.push(register());
    this.#staged.push(register);
  }

  /** All or nothing: when one fails, earlier ones are undone. May be called again after `deactivate`. */
  activate(): void {
    try {
      for (const register of this.#staged) this.#undo.push(register());
      this.#active = true;
    } catch (error) {
      this.deactivate();
      throw error;
    }
  }

  deactivate(): void {
    this.#active = false;
    for (let undo = this.#undo.pop(); undo !== undefined; undo = this.#undo.pop()) undo();
  }
}

/** Receives what a plugin does. */
interface PluginInstrumentation {
  readonly pending: PendingWork;
  /** The plugin keeps files of its own. */
  keepsFiles(): void;
  failed(where: string, error: unknown): void;
}

/** The same context with the plugin's functions wrapped: counts running work and reports thrown errors. */
function instrumentedContext(context: PluginContext, instrumentation: PluginInstrumentation): PluginContext {
  const { http, smtp } = context;
  const { pending } = instrumentation;

  /** Passes on what is not a function: the registry refuses it. */
  function wrap<A extends readonly unknown[], R>(
    where: string,
    act: (...given: A) => R,
    counts: (error: unknown) => boolean = () => true,
  ): (...given: A) => R {
    if (typeof act !== 'function') return act;
    const failed = (error: unknown): void => {
      if (counts(error)) instrumentation.failed(where, error);
    };
    return (...given) => {
      try {
        const result = act(...given);
        if (result instanceof Promise) pending.track(result).catch(failed);
        return result;
      } catch (error) {
        failed(error);
        throw error;
      }
    };
  }

  return {
    ...context,
    http: {
      ...http,
      mount: (endpoints) =>
        http.mount(
          endpoints.map((endpoint) => {
            const { method, path, handle } = endpoint;
            return trackInUse({ ...endpoint, handle: wrap(`${method} ${path}`, handle, isOurFault) }, pending);
          }),
        ),
    },
    smtp: {
      ...smtp,
      on: instrumentedHooks(smtp, pending),
      watch: (event, watcher) => smtp.watch(event, wrap(`watcher ${event}`, watcher)),
    },
    metrics: {
      ...context.metrics,
      gauge: (name, help, labels, collect) =>
        context.metrics.gauge(name, help, labels, collect && wrap(`metric ${name}`, collect)),
    },
    health: {
      check: (component, check) => context.health.check(component, wrap(`health check ${component}`, check)),
    },
    every: (seconds, task) => context.every(seconds, wrap('timer', task)),
    folder: (name) => {
      instrumentation.keepsFiles();
      return context.folder(name);
    },
  };
}

/** 4xx is a fault of the client. */
const isOurFault = (error: unknown): boolean => classOf(asProblem(error)).http >= 500;

/** Counts asynchronous hooks as running work. Passes on what is not a function: the pipeline refuses it. */
function instrumentedHooks(smtp: PluginContext['smtp'], pending: PendingWork): PluginContext['smtp']['on'] {
  const instrumented = <S extends Stage>(hook: Hook<S>): Hook<S> =>
    typeof hook === 'function' ? (input) => pending.track(hook(input)) : hook;
  function register<S extends Stage>(stage: S, ...rest: readonly [Hook<S>] | readonly [HookOptions, Hook<S>]): void {
    if (rest.length === 1) smtp.on(stage, instrumented(rest[0]));
    else smtp.on(stage, rest[0], instrumented(rest[1]));
  }
  return register;
}
