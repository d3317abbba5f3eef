import type { Address } from '../mime/address.js';
import type { Permission } from '../concurrency.js';
import { service } from './service.js';
import type { Transaction } from '../pipeline/transaction.js';
import type { Hop } from '../pipeline/verdict.js';
import type { FinishedAttempt } from '../pipeline/events.js';
import type { OutgoingAttempt } from '../pipeline/hook.js';
import type { Decision } from '../pipeline/transaction-pipeline.js';
import type { RecipientOutcome } from '../pipeline/delivery-target.js';

/** A queued message that is delivered to targets of this server now. */
export interface Parcel {
  /** Stable over retries: a target that recognises it delivers once. */
  readonly id: string;
  /** Null for the null reverse-path. */
  readonly reversePath: Address | null;
  /** All with hops of one target. */
  readonly recipients: readonly { readonly address: Address; readonly hop: Hop }[];
  readonly smtputf8: boolean;
  /** No earlier try can have delivered it, so that targets need not search for a copy. */
  readonly fresh?: boolean;
  /** Asked before it is committed, as of the transaction. */
  readonly mayCommit?: Permission | undefined;
  /** From its first trace header field to its end, with CRLF line ends. */
  readonly content: () => AsyncIterable<Buffer>;
}

/** Access to the delivery targets for those who deliver later. */
export interface LocalDelivery {
  /** One outcome for each recipient, in order. @throws Problem for local faults, `conflict` without a yes of `mayCommit`; then no recipient has it */
  deliver(parcel: Parcel): Promise<readonly RecipientOutcome[]>;
  /** What hooks say about an attempt that is about to begin. Never rejects. */
  mayAttempt(attempt: OutgoingAttempt): Decision | Promise<Decision>;
  /** Notifies the watchers of an attempt whose result is durable. Never throws. */
  attempted(finished: FinishedAttempt): void;
  /** Where the routing hooks send a recipient; undefined when no hook accepts it or one refuses. */
  route(transaction: Transaction, address: Address): Promise<Hop | undefined>;
}

export const localDelivery = service<LocalDelivery>('postern.local-delivery');
