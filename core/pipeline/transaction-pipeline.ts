import type { DeliveryTarget } from './delivery-target.js';
import type { Reply } from '../smtp/protocol/replies.js';
import type { SpooledMessage } from '../spool/spool.js';
import type { DeliveryDeadline } from './commit.js';
import type { WatchedEvent, WatchedEvents } from './events.js';
import type { HookOptions, Phase, StageInput } from './hook.js';
import type { AuthenticatedUser, Hop, Stage } from './verdict.js';
import type { Recipient, Transaction } from './transaction.js';

/** The combined decision of the hooks of a stage. */
export type Decision =
  | { readonly outcome: 'pass'; readonly user?: AuthenticatedUser; readonly hop?: Hop; readonly reply?: Reply }
  | { readonly outcome: 'discard'; readonly reason: string }
  /** `plugin` is the one that refused; absent when no hook accepted what needs to be accepted. */
  | { readonly outcome: 'refuse'; readonly reply: Reply; readonly plugin?: string };

/** The result of a message. */
export interface DeliveryResult {
  /** The answer to the final dot over SMTP. */
  readonly summary: Reply;
  /** One per recipient of the transaction, in its order, duplicates included: the answer over LMTP (RFC 2033 §4.2). */
  readonly replies: readonly Reply[];
  /** Those that the server has accepted, as hooks left them, each with the target that has it; or discarded. */
  readonly recipients: readonly Recipient[];
}

/** The pipeline of a transaction: the hooks and targets that existed when it began. */
export interface TransactionPipeline {
  /** Marks it as used by a transaction, until `release`. */
  acquire(): void;
  release(): void;
  /** Synchronous when every hook is. Never throws: a failing hook is a `refuse` with 451 4.3.0. */
  decide<S extends Stage>(stage: S, input: StageInput[S]): Decision | Promise<Decision>;
  /** Runs only the routing hooks of a recipient, without judging it again. Never throws. */
  route(input: StageInput['rcptTo']): Decision | Promise<Decision>;
  /** The target registered under that name. */
  target(name: string): DeliveryTarget | undefined;
  /**
   * Stages `message` and `deliver`, then the targets. Never throws. It releases the message and the pipeline. It
   * notifies the watchers of each recipient; the caller emits `accepted`, and `rejected` for the whole message.
   *
   * @param deadline bounds the wait; after it the reply is 451, and later results of targets are rolled back
   */
  deliver(transaction: Transaction, message: SpooledMessage, deadline?: DeliveryDeadline): Promise<DeliveryResult>;
  /** Calls the watchers later; what they throw is logged. */
  emit<E extends WatchedEvent>(event: E, data: WatchedEvents[E]): void;
}

/** Describes a hook and its position. */
export interface PlacedHook extends Pick<HookOptions, 'before' | 'after'> {
  readonly plugin: string;
  readonly phase: Phase;
}
