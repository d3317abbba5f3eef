import { heldBy } from '../http/endpoint-hold.js';
import { asProblem } from '../http/failure.js';
import type { Log } from '../log/log.js';
import type { Hook, HookOptions, Stage } from '../pipeline/hook.js';
import type { Plugin, PluginContext } from '../plugin.js';
import { classOf } from '../problem.js';
import { markOf, runAs } from '../watchdog/running-code.js';
import { PendingWork } from '../concurrency.js';

type TakeOptions = (options: unknown) => void | Promise<void>;
type Release = () => void | Promise<void>;

/** Makes the context of one plugin over the registrations and releases that belong to it. */
export type ContextFactory = (
  plugin: Plugin,
  registrations: Registrations,
  onClose: (release: Release) => void,
) => PluginContext;

/** Told of what a plugin does not do as it should. */
export type FaultSink = (plugin: string, where: string, error: unknown) => void;

/** One plugin between its setup and its stop. */
export class RunningPlugin {
  readonly plugin: Plugin;
  readonly #registrations = new Registrations();
  readonly #releases: Release[] = [];
  readonly #inFlight = new PendingWork();
  readonly #log: Log;
  readonly #failed: FaultSink;
  #result: Readonly<Record<string, unknown>> = {};
  #options: unknown;
  #ownsFiles = false;
  #stopped: Promise<void> | undefined;
  /** Ends when the last options that it was given are taken or refused. */
  #taking: Promise<unknown> = Promise.resolve();

  constructor(plugin: Plugin, log: Log, failed: FaultSink = () => undefined) {
    this.plugin = plugin;
    this.#log = log;
    this.#failed = failed;
  }

  get options(): unknown {
    return this.#options;
  }

  /** Whether it has asked for a folder of its own. */
  get ownsFiles(): boolean {
    return this.#ownsFiles;
  }

  /** Runs `setup`; nothing is in force before `activate`. When it throws, everything it had opened is released. */
  async setup(contextOf: ContextFactory, services: Readonly<Record<string, unknown>>, options: unknown): Promise<void> {
    this.#options = options;
    const context = contextOf(this.plugin, this.#registrations, (release) => this.#onClose(release));
    const followed = instrumentedContext(context, {
      inFlight: this.#inFlight,
      ownsFiles: () => void (this.#ownsFiles = true),
      failed: (where, error) => this.#failed(this.plugin.name, where, error),
    });
    try {
      const given = { ...services, options };
      const result = await runAs(markOf(this.plugin.name, 'setup'), () => this.plugin.setup(followed, given));
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

  /** Undefined when the plugin cannot change while it runs. What it is given, it is given one behind the other. */
  get reconfigure(): ((options: unknown) => Promise<void>) | undefined {
    const reconfigure = this.#result['reconfigure'];
    if (typeof reconfigure !== 'function') return undefined;
    return (options) => {
      const taken = this.#take(options, reconfigure as TakeOptions, this.#taking);
      this.#taking = taken.catch(() => undefined);
      return taken;
    };
  }

  /** Resolves when none of its hooks, watchers, tasks and endpoints is under way. */
  idle(): Promise<void> {
    return this.#inFlight.idle();
  }

  /** Takes its registrations out of force and releases what it opened, the last first. Never throws. */
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

  /** What a setup opens that was given up meanwhile is released at once. */
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

  async #take(options: unknown, take: TakeOptions, before: Promise<unknown>): Promise<void> {
    await before;
    await runAs(markOf(this.plugin.name, 'reconfigure'), () => take(options));
    this.#options = options;
  }

  #refuseMissingServices(): void {
    const missing = Object.keys(this.plugin.provides).find((key) => this.#result[key] === undefined);
    if (missing !== undefined) throw new Error(`setup returned nothing for ${missing}, which it declares in provides`);
  }
}

type Undo = () => void;

/**
 * What one plugin has registered. Collected while `setup` runs and put into force together afterwards, so that a setup
 * which fails leaves nothing, and a plugin can be swapped for its successor in one step.
 */
class Registrations {
  readonly #staged: (() => Undo)[] = [];
  readonly #undo: Undo[] = [];
  #active = false;

  /** `register` runs when the plugin becomes active, and what it returns when it stops. What is refused is not kept. */
  add(register: () => Undo): void {
    if (this.#active) this.#undo.push(register());
    this.#staged.push(register);
  }

  /** All or nothing: when one fails, those before it are undone. May be called again after `deactivate`. */
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

/** Who wants to know how a plugin does. */
interface PluginInstrumentation {
  readonly inFlight: PendingWork;
  /** It keeps files of its own. */
  ownsFiles(): void;
  failed(where: string, error: unknown): void;
}

/** The same context; what the plugin's own functions do is followed: what is under way, and what they throw. */
function instrumentedContext(context: PluginContext, follower: PluginInstrumentation): PluginContext {
  const { http, smtp } = context;
  const { inFlight } = follower;

  /** What is no function is for others to refuse. */
  function follow<A extends readonly unknown[], R>(
    where: string,
    act: (...given: A) => R,
    counts: (error: unknown) => boolean = () => true,
  ): (...given: A) => R {
    if (typeof act !== 'function') return act;
    const failed = (error: unknown): void => {
      if (counts(error)) follower.failed(where, error);
    };
    return (...given) => {
      try {
        const result = inFlight.track(act(...given));
        if (result instanceof Promise) result.catch(failed);
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
            return heldBy({ ...endpoint, handle: follow(`${method} ${path}`, handle, isOurFault) }, () => {
              inFlight.begin();
              return () => inFlight.end();
            });
          }),
        ),
    },
    smtp: {
      ...smtp,
      on: instrumentedHooks(smtp, inFlight),
      watch: (event, watcher) => smtp.watch(event, follow(`watcher ${event}`, watcher)),
    },
    metrics: {
      ...context.metrics,
      gauge: (name, help, labels, collect) =>
        context.metrics.gauge(name, help, labels, collect && follow(`metric ${name}`, collect)),
    },
    health: {
      check: (component, check) => context.health.check(component, follow(`health check ${component}`, check)),
    },
    every: (seconds, task) => context.every(seconds, follow('timer', task)),
    folder: (name) => {
      follower.ownsFiles();
      return context.folder(name);
    },
  };
}

/** What a peer is told with 4xx is his own doing. */
const isOurFault = (error: unknown): boolean => classOf(asProblem(error)).http >= 500;

/** Hooks that answer later are under way until then. What is no function is for the pipeline to refuse. */
function instrumentedHooks(smtp: PluginContext['smtp'], inFlight: PendingWork): PluginContext['smtp']['on'] {
  const followed = <S extends Stage>(hook: Hook<S>): Hook<S> =>
    typeof hook === 'function' ? (input) => inFlight.track(hook(input)) : hook;
  function register<S extends Stage>(stage: S, ...rest: readonly [Hook<S>] | readonly [HookOptions, Hook<S>]): void {
    if (rest.length === 1) smtp.on(stage, followed(rest[0]));
    else smtp.on(stage, rest[0], followed(rest[1]));
  }
  return register;
}
