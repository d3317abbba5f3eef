import type { DeliveryTarget } from '../contracts/delivery-target.js';
import type { Reply } from '../smtp/protocol/replies.js';
import type { SpooledMessage } from '../spool/spool.js';
import type { DeliveryDeadline } from './commit.js';
import type { WatchedEvent, WatchedEvents } from './events.js';
import type { HookOptions, Phase, StageInput } from './hook.js';
import type { AuthenticatedUser, Hop, Stage } from './verdict.js';
import type { Transaction } from './transaction.js';

/** What the hooks of a stage have decided together. */
export type Decision =
  | { readonly outcome: 'pass'; readonly user?: AuthenticatedUser; readonly hop?: Hop; readonly reply?: Reply }
  | { readonly outcome: 'discard'; readonly reason: string }
  /** `plugin` is the one whose hook refused; absent when nobody said the yes that the stage needs. */
  | { readonly outcome: 'refuse'; readonly reply: Reply; readonly plugin?: string };

/** What became of a message. */
export interface DeliveryResult {
  /** The answer to the final dot over SMTP. */
  readonly summary: Reply;
  /** One per recipient of the transaction, in its order, duplicates included: the answer over LMTP (RFC 2033 §4.2). */
  readonly replies: readonly Reply[];
}

/** The pipeline as a transaction sees it: the hooks and targets that were there when it began. */
export interface HookList {
  /** A transaction begins with it, and may ask it until `letGo`. */
  hold(): void;
  letGo(): void;
  /** Answers at once when every hook did. Never throws: a failing hook is a `refuse` with 451 4.3.0. */
  decide<S extends Stage>(stage: S, input: StageInput[S]): Decision | Promise<Decision>;
  /** Asks the routing hooks alone where a recipient goes: what was accepted is not judged again. Never throws. */
  route(input: StageInput['rcptTo']): Decision | Promise<Decision>;
  /** The target that is registered under that name. */
  target(name: string): DeliveryTarget | undefined;
  /**
   * Stages `message` and `deliver`, then the targets. Never throws. The caller releases nothing: the chain does. Tells the
   * watchers what became of each recipient; `accepted`, and `rejected` for the whole message, are for the caller to tell.
   *
   * @param deadline how long the answer is waited for: then it is 451, and what a target does later is taken back
   */
  deliver(transaction: Transaction, message: SpooledMessage, deadline?: DeliveryDeadline): Promise<DeliveryResult>;
  /** Calls the watchers later, never now; what they throw is logged. */
  emit<E extends WatchedEvent>(event: E, data: WatchedEvents[E]): void;
}

/** What says where a hook stands. */
export interface PlacedHook extends Pick<HookOptions, 'before' | 'after'> {
  readonly plugin: string;
  readonly phase: Phase;
}
