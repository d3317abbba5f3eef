import type { Reply } from '../smtp/protocol/replies.js';
import type { LinkTarget, SpooledMessage } from '../spool/spool.js';
import type { Recipient, Transaction } from '../pipeline/transaction.js';
import type { Hop } from '../pipeline/verdict.js';

/** What became of one recipient. A reply of its own is for targets in line with the client, and for LMTP. */
export type RecipientOutcome =
  | {
      readonly recipient: Recipient;
      readonly outcome: 'delivered';
      /** Of a live target: the server's own 2yz, which the client gets when it is the only answer. */
      readonly reply?: Reply;
    }
  | {
      readonly recipient: Recipient;
      /** `deferred` goes with 4yz, `refused` with 5yz. */
      readonly outcome: 'deferred' | 'refused';
      readonly code: number;
      readonly status: string;
      readonly text: string;
    };

/**
 * Takes over recipients that a hook routed to it. start → body → commit → complete, or abort.
 *
 * A throw anywhere is a local fault: siblings are aborted and the client is told 4yz. A `Problem` says how to answer.
 */
export interface DeliveryTarget {
  /**
   * In line with the client: its `commit` hands the message to another server and gives that one's answer. Driven behind
   * the `body` of all others and in front of their `commit`. What a live target has committed cannot be taken back.
   */
  readonly live?: boolean;
  /** Called once for each message with all its recipients for this target, duplicates included. Refuses by a `Problem`. */
  start(transaction: Transaction, recipients: readonly Recipient[]): Promise<Delivery>;
  /** What it would do with a recipient of that hop, a sentence each: servers, ports, TLS. Changes nothing; may ask the DNS. */
  explain?(hop: Hop): Promise<readonly string[]>;
  /**
   * For targets that place messages in folders where others move them on. Called once after a crash, before messages come
   * in; the answer tells where a message of those bytes is now, undefined when it is nowhere, null when nobody wants it any more. Placements
   * name their target as `owner`.
   */
  finder?(): (placement: LinkTarget, content: Buffer) => Promise<string | null | undefined>;
}

export interface Delivery {
  /** Makes everything durable but invisible. */
  body(message: SpooledMessage): Promise<void>;
  /** Only links; one outcome per recipient given to `start`, in that order. When it throws, nothing of it is left. */
  commit(): Promise<readonly RecipientOutcome[]>;
  /**
   * After every target of the message has committed, and never after an abort: work that cannot be taken back may begin. Never
   * throws.
   */
  complete?(): void;
  /** Before or after `commit`: takes everything back that can be taken back. Never throws. */
  abort(): Promise<void>;
}
