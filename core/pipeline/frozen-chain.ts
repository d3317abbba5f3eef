import type { DeliveryTarget } from '../contracts/delivery-target.js';
import type { SpooledMessage } from '../spool/spool.js';
import { PendingWork } from '../concurrency.js';
import type { Log } from '../log/log.js';
import type { Chain, Decision, DeliveryResult } from './chain.js';
import { deliverMessage, type DeliveryGround } from './delivery.js';
import type { Stage, StageInput, WatchedEvent, WatchedEvents } from './hook.js';
import type { Patience } from './patience.js';
import type { RegisteredHook } from './registered-hook.js';
import { StageRun, type HookObserver, type StageGround } from './stage-run.js';
import type { Transaction } from './transaction.js';
import { tell, type WatchersByEvent } from './watchers.js';

export type HooksByStage = { readonly [S in Stage]: readonly RegisteredHook<S>[] };

export interface ChainParts {
  readonly hooks: HooksByStage;
  readonly watchers: WatchersByEvent;
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
  /** Plugins whose verdicts are only looked at. */
  readonly shadowed: ReadonlySet<string>;
  readonly log: Log;
  readonly observe?: HookObserver;
}

/** The hooks, watchers and targets of one moment. */
export class FrozenChain implements Chain {
  readonly #parts: ChainParts;
  /** The same for every message: what is made once costs nothing. */
  readonly #delivery: DeliveryGround;
  readonly #stage: Pick<StageGround<Stage>, 'log' | 'hasTarget' | 'shadowed' | 'observe'>;

  readonly #held = new PendingWork();

  constructor(parts: ChainParts) {
    const { hooks, targets, log, shadowed, observe } = parts;
    this.#parts = parts;
    const hasTarget = (name: string) => targets.has(name);
    const ofMessages = [...hooks.message, ...hooks.deliver];
    const watched = observe === undefined ? { log, hasTarget } : { log, hasTarget, observe };
    this.#stage = shadowed.size === 0 ? watched : { ...watched, shadowed };
    this.#delivery = {
      targets,
      log,
      hasHooks: ({ user }) => ofMessages.some(({ signedIn }) => !signedIn || user !== undefined),
      decide: (stage, input, change) => this.#run(stage, input, change),
      emit: (event, data) => this.emit(event, data),
    };
  }

  hold(): void {
    this.#held.begin();
  }

  letGo(): void {
    this.#held.end();
  }

  get isHeld(): boolean {
    return this.#held.count > 0;
  }

  /** Resolves when no transaction has it any more, and no decision of it is under way. */
  idle(): Promise<void> {
    return this.#held.idle();
  }

  decide<S extends Stage>(stage: S, input: StageInput[S]): Decision | Promise<Decision> {
    return this.#held.track(this.#run(stage, input));
  }

  route(input: StageInput['rcptTo']): Decision | Promise<Decision> {
    const routing = this.#parts.hooks.rcptTo.filter(({ phase }) => phase === 'route');
    return new StageRun('rcptTo', routing, input, this.#stage).decide();
  }

  /** In the order they are asked. */
  hooks<S extends Stage>(stage: S): readonly RegisteredHook<S>[] {
    return this.#parts.hooks[stage];
  }

  isShadowed(plugin: string): boolean {
    return this.#parts.shadowed.has(plugin);
  }

  /** Decides as always, tells each answer, and counts nothing. */
  trace<S extends Stage>(
    stage: S,
    input: StageInput[S],
    trace: NonNullable<StageGround<S>['trace']>,
  ): Decision | Promise<Decision> {
    return new StageRun(stage, this.#parts.hooks[stage], input, { ...this.#stage, trace }).decide();
  }

  target(name: string): DeliveryTarget | undefined {
    return this.#parts.targets.get(name);
  }

  deliver(transaction: Transaction, message: SpooledMessage, patience?: Patience): Promise<DeliveryResult> {
    return deliverMessage(transaction, message, this.#delivery, patience);
  }

  emit<E extends WatchedEvent>(event: E, data: WatchedEvents[E]): void {
    tell(this.#parts.watchers[event], data);
  }

  #run<S extends Stage>(
    stage: S,
    input: StageInput[S],
    change?: StageGround<S>['change'],
  ): Decision | Promise<Decision> {
    const ground = change === undefined ? this.#stage : { ...this.#stage, change };
    return new StageRun(stage, this.#parts.hooks[stage], input, ground).decide();
  }
}
