import type { Address } from '../mime/address.js';
import { service } from '../host/service.js';
import type { Transaction } from '../pipeline/transaction.js';
import type { Hop } from '../pipeline/verdict.js';
import type { RecipientOutcome } from './delivery-target.js';

/** A message that was accepted before and goes to delivery targets of this server now: from the queue. */
export interface Parcel {
  /** The same whenever it is tried again: targets that can tell deliver it once. */
  readonly id: string;
  /** Null for the null reverse-path. */
  readonly reversePath: Address | null;
  /** All with hops of one target. */
  readonly recipients: readonly { readonly address: Address; readonly hop: Hop }[];
  readonly smtputf8: boolean;
  /** No earlier try can have delivered it: targets need not look for a copy. */
  readonly fresh?: boolean;
  /** From its first trace header field to its end, with CRLF line ends. */
  readonly content: () => AsyncIterable<Buffer>;
}

/** Lends the delivery targets to those who deliver later. */
export interface LocalDelivery {
  /** One outcome for each recipient, in their order. @throws Problem for local faults: nobody has got it then */
  deliver(parcel: Parcel): Promise<readonly RecipientOutcome[]>;
  /** Where the routing hooks send a recipient; undefined when no hook takes it or one refuses. */
  route(transaction: Transaction, address: Address): Promise<Hop | undefined>;
}

export const localDelivery = service<LocalDelivery>('postern.local-delivery');
