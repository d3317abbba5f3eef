import type { Clock } from '../clock.js';
import type { DeliveryTarget } from '../contracts/delivery-target.js';
import type { Log } from '../log/log.js';
import { startError } from '../problem.js';
import { FrozenChain, type HooksByStage } from './frozen-chain.js';
import {
  phases,
  stages,
  type Hook,
  type HookDescription,
  type HookOptions,
  type Stage,
  type WatchedEvent,
  type Watcher,
} from './hook.js';
import { orderHooks } from './hook-order.js';
import { RegisteredHook } from './registered-hook.js';
import type { HookObserver } from './stage-run.js';
import type { Outcome } from './outcome.js';
import { RegisteredWatcher, tell, type WatchersByEvent } from './watchers.js';

export interface PipelineInput {
  readonly log: Log;
  readonly clock: Clock;
  /** How long a hook without a limit of its own may take, in milliseconds. */
  readonly timeLimitMs?: number;
  /** Told of each hook that failed. */
  readonly failed?: (plugin: string, where: string, why: string) => void;
  /** Told of each answer of a hook; for tests. */
  readonly observe?: HookObserver;
}

/** How long a hook may take that says nothing else. */
const usualTimeLimitMs = 10_000;
const mostTimeLimitMs = 600_000;

type Undo = () => void;
const noHooks: HooksByStage = { connect: [], ehlo: [], auth: [], mailFrom: [], rcptTo: [], message: [], deliver: [] };
const noWatchers: WatchersByEvent = {
  accepted: [],
  rejected: [],
  delivered: [],
  deferred: [],
  bounced: [],
  outcome: [],
  ended: [],
  closed: [],
};

/**
 * What the plugins have registered for mail that comes in. See docs/smtp.md for stages, phases and verdicts.
 *
 * Hooks of a stage run by phase, within it as `before` and `after` say, else in the order of registration. A plugin that
 * registers anew, as on reload, gets the place it had.
 */
export class Pipeline {
  readonly #log: Log;
  readonly #timeLimitMs: number;
  readonly #clock: Clock;
  readonly #observe: HookObserver | undefined;
  readonly #failed: PipelineInput['failed'];
  /** As registered. */
  #hooks = noHooks;
  /** As they are asked. */
  #ordered = noHooks;
  #watchers = noWatchers;
  readonly #targets = new Map<string, { readonly plugin: string; readonly target: DeliveryTarget }>();
  /** The order in which plugins came first. */
  readonly #ranks = new Map<string, number>();
  #shadowed: ReadonlySet<string> = new Set();
  #chain: FrozenChain | undefined;
  /** All that a transaction may still have, the present one last. */
  #chains: readonly FrozenChain[] = [];

  constructor({ log, clock, timeLimitMs = usualTimeLimitMs, observe, failed }: PipelineInput) {
    this.#failed = failed;
    this.#observe = observe;
    this.#log = log;
    this.#clock = clock;
    this.#timeLimitMs = timeLimitMs;
  }

  /** Throws a start error for options that cannot be: an unknown stage or phase, a bad limit, a circle of before and after. */
  on<S extends Stage>(plugin: string, stage: S, options: HookOptions, hook: Hook<S>): Undo {
    const place = { ...options, plugin, timeLimitMs: options.timeLimitMs ?? this.#timeLimitMs };
    refuseBadPlace(plugin, stage, place, hook);
    const registered = new RegisteredHook(stage, place, hook, {
      log: this.#log,
      clock: this.#clock,
      failed: (why) => this.#failed?.(plugin, `hook ${stage}`, why),
    });
    this.#keepHooks(stage, [...this.#hooks[stage], registered]);
    return () => this.#keepHooks(stage, without(this.#hooks[stage], registered));
  }

  watch<E extends WatchedEvent>(plugin: string, event: E, watcher: Watcher<E>): Undo {
    if (!Object.hasOwn(this.#watchers, event))
      throw startError(`Plugin ${plugin}: there is no event ${event}; events: ${Object.keys(noWatchers).join(', ')}.`);
    if (typeof watcher !== 'function') throw startError(`Plugin ${plugin}, watcher of ${event}: not a function.`);
    const registered = new RegisteredWatcher(plugin, event, watcher, this.#log);
    this.#keepWatchers(event, [...this.#watchers[event], registered]);
    return () => this.#keepWatchers(event, without(this.#watchers[event], registered));
  }

  /** Tells what came of queued mail; `outcome` is asked only when somebody watches. Never throws. */
  tell(plugin: string, outcome: () => Outcome): void {
    const watchers = this.#watchers.outcome;
    if (watchers.length === 0) return;
    try {
      tell(watchers, outcome());
    } catch (error) {
      this.#log.error({ plugin, event: 'outcome', err: error }, 'an event cannot be told');
    }
  }

  /** Throws a start error when the name is taken. */
  deliverTo(plugin: string, name: string, target: DeliveryTarget): Undo {
    const present = this.#targets.get(name);
    if (present !== undefined) {
      throw startError(`Plugins ${present.plugin} and ${plugin} both deliver to the target ${name}: use only one.`);
    }
    if (typeof target?.start !== 'function') {
      throw startError(`Plugin ${plugin}, target ${name}: it has no start(transaction, recipients).`);
    }
    const registered = { plugin, target };
    this.#targets.set(name, registered);
    this.#chain = undefined;
    return () => {
      if (this.#targets.get(name) === registered) this.#targets.delete(name);
      this.#chain = undefined;
    };
  }

  /** The target that is registered under that name. */
  target(name: string): DeliveryTarget | undefined {
    return this.#targets.get(name)?.target;
  }

  /** Every target, and whose it is. */
  targets(): readonly { readonly name: string; readonly plugin: string }[] {
    return [...this.#targets].map(([name, { plugin }]) => ({ name, plugin }));
  }

  /** The chain as it stands; the same one until a registration changes. */
  snapshot(): FrozenChain {
    this.#chain ??= this.#freeze();
    return this.#chain;
  }

  /** Resolves when no transaction has a chain any more that is older than the present one. */
  async settled(): Promise<void> {
    const present = this.snapshot();
    await Promise.all(this.#chains.filter((chain) => chain !== present).map((chain) => chain.idle()));
  }

  #freeze(): FrozenChain {
    const chain = new FrozenChain({
      hooks: this.#ordered,
      watchers: this.#watchers,
      targets: new Map([...this.#targets].map(([name, { target }]) => [name, target])),
      shadowed: this.#shadowed,
      log: this.#log,
      ...(this.#observe !== undefined && { observe: this.#observe }),
    });
    this.#chains = [...this.#chains.filter((older) => older.isHeld), chain];
    return chain;
  }

  /** From now on the verdicts of these plugins are only looked at. */
  shadow(plugins: readonly string[]): void {
    this.#shadowed = new Set(plugins);
    this.#chain = undefined;
  }

  isShadowed(plugin: string): boolean {
    return this.#shadowed.has(plugin);
  }

  /** Whether the plugin has a part in where mail goes: a target, or a hook that routes. */
  hasRoutes(plugin: string): boolean {
    const hooks = this.#hooks.rcptTo.filter(({ phase }) => phase === 'route');
    return [...hooks, ...this.#targets.values()].some((registered) => registered.plugin === plugin);
  }

  /** All hooks in the order they are asked. */
  describe(): readonly HookDescription[] {
    const modeOf = (plugin: string) => (this.#shadowed.has(plugin) ? 'shadow' : 'enforce');
    return stages.flatMap((stage) => this.#ordered[stage].map((hook) => hook.describe(modeOf(hook.plugin))));
  }

  #keepHooks<S extends Stage>(stage: S, hooks: readonly RegisteredHook<S>[]): void {
    for (const { plugin } of hooks) if (!this.#ranks.has(plugin)) this.#ranks.set(plugin, this.#ranks.size);
    const ranked = hooks.toSorted((one, other) => this.#rank(one.plugin) - this.#rank(other.plugin));
    const ordered = orderHooks(ranked);
    this.#hooks = { ...this.#hooks, [stage]: ranked };
    this.#ordered = { ...this.#ordered, [stage]: ordered };
    this.#chain = undefined;
  }

  #keepWatchers<E extends WatchedEvent>(event: E, watchers: readonly RegisteredWatcher<E>[]): void {
    this.#watchers = { ...this.#watchers, [event]: watchers };
    this.#chain = undefined;
  }

  #rank(plugin: string): number {
    return this.#ranks.get(plugin) ?? this.#ranks.size;
  }
}

/** Site plugins are JavaScript: what the compiler would refuse is refused here. */
function refuseBadPlace(plugin: string, stage: string, place: HookOptions, hook: unknown): void {
  const { order = 'policy', timeLimitMs = 0 } = place;
  const refuse = (sentence: string) => startError(`Plugin ${plugin}, hook of ${stage}: ${sentence}`);
  if (!stages.some((known) => known === stage)) throw refuse(`there is no such stage; stages: ${stages.join(', ')}.`);
  if (!phases.includes(order)) throw refuse(`there is no phase ${order}; phases: ${phases.join(', ')}.`);
  if (!Number.isInteger(timeLimitMs) || timeLimitMs < 1 || timeLimitMs > mostTimeLimitMs) {
    throw refuse(`timeLimitMs must be 1 to ${mostTimeLimitMs}.`);
  }
  if (typeof hook !== 'function') throw refuse('the hook is not a function.');
}

function without<T>(list: readonly T[], member: T): readonly T[] {
  return list.filter((other) => other !== member);
}
