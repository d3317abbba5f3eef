import type { DeliveryTarget } from '../contracts/delivery-target.js';
import type { SpooledMessage } from '../disk/spool.js';
import type { Log } from '../log.js';
import type { Chain, Decision, DeliveryResult } from './chain.js';
import { deliverMessage } from './delivery.js';
import type { Stage, StageInput, WatchedEvent, WatchedEvents } from './hook.js';
import type { Patience } from './patience.js';
import type { RegisteredHook } from './registered-hook.js';
import { StageRun, type StageGround } from './stage-run.js';
import type { Transaction } from './transaction.js';
import { tell, type WatchersByEvent } from './watchers.js';

export type HooksByStage = { readonly [S in Stage]: readonly RegisteredHook<S>[] };

export interface ChainParts {
  readonly hooks: HooksByStage;
  readonly watchers: WatchersByEvent;
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
  readonly log: Log;
}

/** The hooks, watchers and targets of one moment. */
export class FrozenChain implements Chain {
  readonly #parts: ChainParts;

  constructor(parts: ChainParts) {
    this.#parts = parts;
  }

  decide<S extends Stage>(stage: S, input: StageInput[S]): Decision | Promise<Decision> {
    return this.#run(stage, input);
  }

  route(input: StageInput['rcptTo']): Decision | Promise<Decision> {
    const { hooks, targets, log } = this.#parts;
    const routing = hooks.rcptTo.filter(({ phase }) => phase === 'route');
    return new StageRun('rcptTo', routing, input, { log, hasTarget: (name) => targets.has(name) }).decide();
  }

  target(name: string): DeliveryTarget | undefined {
    return this.#parts.targets.get(name);
  }

  deliver(transaction: Transaction, message: SpooledMessage, patience?: Patience): Promise<DeliveryResult> {
    const { targets, log, hooks } = this.#parts;
    return deliverMessage(transaction, message, {
      targets,
      log,
      ...(patience !== undefined && { patience }),
      hasHooks: hooks.message.length > 0 || hooks.deliver.length > 0,
      decide: (stage, input, change) => this.#run(stage, input, change),
      emit: (event, data) => this.emit(event, data),
    });
  }

  emit<E extends WatchedEvent>(event: E, data: WatchedEvents[E]): void {
    const watchers = this.#parts.watchers[event];
    tell(watchers, event, data, this.#parts.log);
  }

  #run<S extends Stage>(
    stage: S,
    input: StageInput[S],
    change?: StageGround<S>['change'],
  ): Decision | Promise<Decision> {
    const { hooks, targets, log } = this.#parts;
    return new StageRun(stage, hooks[stage], input, {
      log,
      hasTarget: (name) => targets.has(name),
      ...(change !== undefined && { change }),
    }).decide();
  }
}
