import type { Clock } from '../clock.js';
import { PendingWork } from '../concurrency.js';
import type { DeliveryTarget } from './delivery-target.js';
import type { Log } from '../log/log.js';
import { startError } from '../problem.js';
import type { SpooledMessage } from '../spool/spool.js';
import type { DeliveryDeadline } from './commit.js';
import { deliverMessage, type DeliveryContext } from './delivery.js';
import {
  type Outcome,
  RegisteredWatcher,
  emit,
  type WatchedEvent,
  type WatchedEvents,
  type Watcher,
  type WatchersByEvent,
} from './events.js';
import { type Hook, type HookDescription, type HookOptions, phases, type StageInput } from './hook.js';
import type { TransactionPipeline, Decision, DeliveryResult, PlacedHook } from './transaction-pipeline.js';
import { type HookObserver, RegisteredHook, type RunContext, HookRunner } from './hook-runner.js';
import { type Stage, stages } from './verdict.js';
import type { Transaction } from './transaction.js';

interface PipelineInput {
  readonly log: Log;
  readonly clock: Clock;
  /** Default time limit of a hook, in milliseconds. */
  readonly timeLimitMs?: number;
  /** Maximum size of a message; no limit if absent. */
  readonly messageBytes?: () => number;
  /** Called with each failed hook. */
  readonly failed?: (plugin: string, where: string, why: string) => void;
  /** Called with each verdict; for tests. */
  readonly observe?: HookObserver;
}

/** Default time limit of a hook. */
const defaultTimeLimitMs = 10_000;
const maxTimeLimitMs = 600_000;
/** What a body that a hook writes may have beyond the maximum size of a message: a footer fits. */
const bodyHeadroom = 2 ** 20;

type Undo = () => void;
const noHooks: HooksByStage = {
  connect: [],
  ehlo: [],
  auth: [],
  mailFrom: [],
  rcptTo: [],
  message: [],
  deliver: [],
  attempt: [],
};
const noWatchers: WatchersByEvent = {
  accepted: [],
  rejected: [],
  delivered: [],
  deferred: [],
  bounced: [],
  outcome: [],
  attempted: [],
  ended: [],
  closed: [],
};

/**
 * Registry of hooks, watchers and targets. See docs/smtp.md for stages, phases and verdicts.
 *
 * Hooks of a stage run by phase, within it by `before` and `after`, else in the order of registration. A plugin that
 * registers again, as on reload, keeps its position.
 */
export class Pipeline {
  readonly #log: Log;
  readonly #timeLimitMs: number;
  readonly #clock: Clock;
  readonly #observe: HookObserver | undefined;
  readonly #failed: PipelineInput['failed'];
  readonly #maxBodyBytes: () => number;
  /** In the order of registration. */
  #hooks = noHooks;
  /** In the order of execution. */
  #ordered = noHooks;
  #watchers = noWatchers;
  readonly #targets = new Map<string, { readonly plugin: string; readonly target: DeliveryTarget }>();
  /** The order in which plugins first registered. */
  readonly #ranks = new Map<string, number>();
  #shadowed: ReadonlySet<string> = new Set();
  #snapshot: PipelineSnapshot | undefined;
  /** Snapshots that a transaction may still use, the current one last. */
  #snapshots: readonly PipelineSnapshot[] = [];

  constructor({ log, clock, timeLimitMs = defaultTimeLimitMs, observe, failed, messageBytes }: PipelineInput) {
    this.#maxBodyBytes = () => (messageBytes?.() ?? Infinity) + bodyHeadroom;
    this.#failed = failed;
    this.#observe = observe;
    this.#log = log;
    this.#clock = clock;
    this.#timeLimitMs = timeLimitMs;
  }

  /**
   * Throws a start error for invalid options: one that there is not, an unknown stage or phase, an invalid limit, a cycle
   * of before and after.
   */
  on<S extends Stage>(plugin: string, stage: S, options: HookOptions, hook: Hook<S>): Undo {
    const place = { ...options, plugin, timeLimitMs: options.timeLimitMs ?? this.#timeLimitMs };
    refuseBadPlace(plugin, stage, { options, ...place }, hook);
    const registered = new RegisteredHook(stage, place, hook, {
      log: this.#log,
      clock: this.#clock,
      failed: (why) => this.#failed?.(plugin, `hook ${stage}`, why),
    });
    this.#setHooks(stage, [...this.#hooks[stage], registered]);
    return () => this.#setHooks(stage, without(this.#hooks[stage], registered));
  }

  watch<E extends WatchedEvent>(plugin: string, event: E, watcher: Watcher<E>): Undo {
    if (!Object.hasOwn(this.#watchers, event))
      throw startError(`Plugin ${plugin}: there is no event ${event}; events: ${Object.keys(noWatchers).join(', ')}.`);
    if (typeof watcher !== 'function') throw startError(`Plugin ${plugin}, watcher of ${event}: not a function.`);
    const registered = new RegisteredWatcher(plugin, event, watcher, {
      log: this.#log,
      timeLimitMs: this.#timeLimitMs,
      failed: (where, why) => this.#failed?.(plugin, where, why),
    });
    this.#setWatchers(event, [...this.#watchers[event], registered]);
    return () => this.#setWatchers(event, without(this.#watchers[event], registered));
  }

  /** Emits the outcome of queued mail; `outcome` is called only when there are watchers. Never throws. */
  emitOutcome(plugin: string, outcome: () => Outcome): void {
    const watchers = this.#watchers.outcome;
    if (watchers.length === 0) return;
    try {
      emit(watchers, outcome());
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
    this.#snapshot = undefined;
    return () => {
      if (this.#targets.get(name) === registered) this.#targets.delete(name);
      this.#snapshot = undefined;
    };
  }

  /** The target that is registered under that name. */
  target(name: string): DeliveryTarget | undefined {
    return this.#targets.get(name)?.target;
  }

  /** Every target with its plugin. */
  targets(): readonly { readonly name: string; readonly plugin: string }[] {
    return [...this.#targets].map(([name, { plugin }]) => ({ name, plugin }));
  }

  /** The current snapshot; the same one until a registration changes. */
  snapshot(): PipelineSnapshot {
    this.#snapshot ??= this.#freeze();
    return this.#snapshot;
  }

  /** Resolves when no transaction uses an older snapshot. */
  async settled(): Promise<void> {
    const present = this.snapshot();
    await Promise.all(this.#snapshots.filter((snapshot) => snapshot !== present).map((snapshot) => snapshot.idle()));
  }

  #freeze(): PipelineSnapshot {
    const snapshot = new PipelineSnapshot({
      hooks: this.#ordered,
      watchers: this.#watchers,
      targets: new Map([...this.#targets].map(([name, { target }]) => [name, target])),
      shadowed: this.#shadowed,
      log: this.#log,
      maxBodyBytes: this.#maxBodyBytes,
      ...(this.#observe !== undefined && { observe: this.#observe }),
    });
    this.#snapshots = [...this.#snapshots.filter((older) => older.isHeld), snapshot];
    return snapshot;
  }

  /** Puts the verdicts of these plugins into shadow mode. */
  shadow(plugins: readonly string[]): void {
    this.#shadowed = new Set(plugins);
    this.#snapshot = undefined;
  }

  isShadowed(plugin: string): boolean {
    return this.#shadowed.has(plugin);
  }

  /** Whether the plugin decides where mail goes: it has a target, or a hook that routes. */
  hasRoutes(plugin: string): boolean {
    const hooks = this.#hooks.rcptTo.filter(({ phase }) => phase === 'route');
    return [...hooks, ...this.#targets.values()].some((registered) => registered.plugin === plugin);
  }

  /** All hooks in the order of execution. */
  describe(): readonly HookDescription[] {
    const modeOf = (plugin: string) => (this.#shadowed.has(plugin) ? 'shadow' : 'enforce');
    return stages.flatMap((stage) => this.#ordered[stage].map((hook) => hook.describe(modeOf(hook.plugin))));
  }

  #setHooks<S extends Stage>(stage: S, hooks: readonly RegisteredHook<S>[]): void {
    for (const { plugin } of hooks) if (!this.#ranks.has(plugin)) this.#ranks.set(plugin, this.#ranks.size);
    const ranked = hooks.toSorted((one, other) => this.#rank(one.plugin) - this.#rank(other.plugin));
    const ordered = orderHooks(ranked);
    this.#hooks = { ...this.#hooks, [stage]: ranked };
    this.#ordered = { ...this.#ordered, [stage]: ordered };
    this.#snapshot = undefined;
  }

  #setWatchers<E extends WatchedEvent>(event: E, watchers: readonly RegisteredWatcher<E>[]): void {
    this.#watchers = { ...this.#watchers, [event]: watchers };
    this.#snapshot = undefined;
  }

  #rank(plugin: string): number {
    return this.#ranks.get(plugin) ?? this.#ranks.size;
  }
}

const hookOptions: Readonly<Record<keyof HookOptions, true>> = {
  order: true,
  before: true,
  after: true,
  signedIn: true,
  timeLimitMs: true,
};

/** Site plugins are JavaScript, so this checks at run time what the compiler checks for others. */
function refuseBadPlace(
  plugin: string,
  stage: string,
  { options, order = 'policy', timeLimitMs = 0 }: HookOptions & { readonly options: HookOptions },
  hook: unknown,
): void {
  const refuse = (sentence: string) => startError(`Plugin ${plugin}, hook of ${stage}: ${sentence}`);
  if (!stages.some((known) => known === stage)) throw refuse(`there is no such stage; stages: ${stages.join(', ')}.`);
  const strange = Object.keys(options).find((key) => !Object.hasOwn(hookOptions, key));
  if (strange !== undefined)
    throw refuse(`there is no option ${strange}; options: ${Object.keys(hookOptions).join(', ')}.`);
  if (!phases.includes(order)) throw refuse(`there is no phase ${order}; phases: ${phases.join(', ')}.`);
  if (!Number.isInteger(timeLimitMs) || timeLimitMs < 1 || timeLimitMs > maxTimeLimitMs) {
    throw refuse(`timeLimitMs must be 1 to ${maxTimeLimitMs}.`);
  }
  if (typeof hook !== 'function') throw refuse('the hook is not a function.');
}

function without<T>(list: readonly T[], member: T): readonly T[] {
  return list.filter((other) => other !== member);
}

type HooksByStage = { readonly [S in Stage]: readonly RegisteredHook<S>[] };

interface SnapshotDeps {
  readonly hooks: HooksByStage;
  readonly watchers: WatchersByEvent;
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
  /** Plugins in shadow mode: their verdicts are only recorded. */
  readonly shadowed: ReadonlySet<string>;
  readonly log: Log;
  readonly maxBodyBytes: () => number;
  readonly observe?: HookObserver;
}

/** The hooks, watchers and targets of one moment. */
export class PipelineSnapshot implements TransactionPipeline {
  readonly #deps: SnapshotDeps;
  /** Shared by all messages, hence created once. */
  readonly #delivery: DeliveryContext;
  readonly #stage: Pick<RunContext<Stage>, 'log' | 'hasTarget' | 'shadowed' | 'observe'>;

  readonly #held = new PendingWork();

  constructor(deps: SnapshotDeps) {
    const { hooks, targets, log, shadowed, observe, maxBodyBytes } = deps;
    this.#deps = deps;
    const hasTarget = (name: string) => targets.has(name);
    const ofMessages = [...hooks.message, ...hooks.deliver];
    const watched = observe === undefined ? { log, hasTarget } : { log, hasTarget, observe };
    this.#stage = shadowed.size === 0 ? watched : { ...watched, shadowed };
    this.#delivery = {
      targets,
      log,
      maxBodyBytes,
      hasHooks: ({ user }) => ofMessages.some(({ signedIn }) => !signedIn || user !== undefined),
      decide: (stage, input, change) => this.#run(stage, input, change),
      emit: (event, data) => this.emit(event, data),
    };
  }

  acquire(): void {
    this.#held.begin();
  }

  release(): void {
    this.#held.end();
  }

  get isHeld(): boolean {
    return this.#held.count > 0;
  }

  /** Resolves when no transaction uses it, and no decision is pending. */
  idle(): Promise<void> {
    return this.#held.idle();
  }

  decide<S extends Stage>(stage: S, input: StageInput[S]): Decision | Promise<Decision> {
    return this.#held.track(this.#run(stage, input));
  }

  route(input: StageInput['rcptTo']): Decision | Promise<Decision> {
    const routing = this.#deps.hooks.rcptTo.filter(({ phase }) => phase === 'route');
    return new HookRunner('rcptTo', routing, input, this.#stage).run();
  }

  /** In the order of execution. */
  hooks<S extends Stage>(stage: S): readonly RegisteredHook<S>[] {
    return this.#deps.hooks[stage];
  }

  isShadowed(plugin: string): boolean {
    return this.#deps.shadowed.has(plugin);
  }

  /** Decides as usual, reports each verdict, and counts nothing. */
  trace<S extends Stage>(
    stage: S,
    input: StageInput[S],
    trace: NonNullable<RunContext<S>['trace']>,
  ): Decision | Promise<Decision> {
    return new HookRunner(stage, this.#deps.hooks[stage], input, { ...this.#stage, trace }).run();
  }

  target(name: string): DeliveryTarget | undefined {
    return this.#deps.targets.get(name);
  }

  deliver(transaction: Transaction, message: SpooledMessage, deadline?: DeliveryDeadline): Promise<DeliveryResult> {
    return deliverMessage(transaction, message, this.#delivery, deadline);
  }

  emit<E extends WatchedEvent>(event: E, data: WatchedEvents[E]): void {
    emit(this.#deps.watchers[event], data);
  }

  #run<S extends Stage>(
    stage: S,
    input: StageInput[S],
    change?: RunContext<S>['change'],
  ): Decision | Promise<Decision> {
    const context = change === undefined ? this.#stage : { ...this.#stage, change };
    return new HookRunner(stage, this.#deps.hooks[stage], input, context).run();
  }
}

/**
 * Sorts the hooks of one stage: by phase; within it by `before` and `after`, those with `after: '*'` last; else in the
 * given order. Missing plugins are ignored. A cycle is a start error that names its plugins.
 */
function orderHooks<H extends PlacedHook>(hooks: readonly H[]): readonly H[] {
  return phases.flatMap((phase) => orderPhase(hooks.filter((hook) => hook.phase === phase)));
}

function orderPhase<H extends PlacedHook>(hooks: readonly H[]): readonly H[] {
  const ordered: H[] = [];
  const waiting = [...hooks];
  while (waiting.length > 0) {
    const ready = waiting.filter((hook) => !waiting.some((other) => goesBefore(other, hook)));
    const next = ready.find(({ after }) => after !== '*') ?? ready[0];
    if (next === undefined) throw circle(waiting);
    ordered.push(next);
    waiting.splice(waiting.indexOf(next), 1);
  }
  return ordered;
}

/** True when one of the two names the other; hooks of one plugin do not order each other. */
function goesBefore(one: PlacedHook, other: PlacedHook): boolean {
  return one.plugin !== other.plugin && (names(one.before, other.plugin) || names(other.after, one.plugin));
}

function names(plugins: string | readonly string[] | undefined, plugin: string): boolean {
  return plugins === plugin || (Array.isArray(plugins) && plugins.includes(plugin));
}

/** Every one of `waiting` is preceded by another: following those finds a cycle. */
function circle(waiting: readonly PlacedHook[]): Error {
  const trail: PlacedHook[] = [];
  let hook = waiting[0];
  while (hook !== undefined && !trail.includes(hook)) {
    trail.push(hook);
    const behind: PlacedHook = hook;
    hook = waiting.find((other) => goesBefore(other, behind));
  }
  const round = hook === undefined ? trail : trail.slice(trail.indexOf(hook));
  const names = [...new Set(round.map(({ plugin }) => plugin))];
  const list = `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
  return startError(
    `The hooks of ${list} in phase ${waiting[0]?.phase} each want to run before the other: change their before or after.`,
  );
}
