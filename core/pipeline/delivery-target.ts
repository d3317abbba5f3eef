import type { Reply } from '../smtp/protocol/replies.js';
import type { LinkTarget, SpooledMessage } from '../spool/spool.js';
import type { Recipient, Transaction } from './transaction.js';
import type { Hop } from './verdict.js';

/** Result of one recipient. Live targets and LMTP give each its own reply. */
export type RecipientOutcome =
  | {
      readonly recipient: Recipient;
      readonly outcome: 'delivered';
      /** Of a live target: the server's 2yz, which the client gets when it is the only reply. */
      readonly reply?: Reply;
    }
  | {
      readonly recipient: Recipient;
      /** `deferred` carries 4yz, `refused` 5yz. */
      readonly outcome: 'deferred' | 'refused';
      readonly code: number;
      readonly status: string;
      readonly text: string;
      /** Of a deferred one: nothing is against the recipient, so that the queue may take it from any client. */
      readonly queue?: true;
    };

/**
 * Takes over recipients that a hook routed to it. start → body → commit → complete, or abort.
 *
 * A throw anywhere is a local fault: the other targets are aborted and the client gets 4yz; over LMTP only the target's
 * own recipients do. A `Problem` carries the reply.
 */
export interface DeliveryTarget {
  /**
   * A live target: its `commit` hands the message to another server and returns that server's reply. It runs after the
   * `body` and before the `commit` of all others. A live commit cannot be rolled back.
   */
  readonly live?: boolean;
  /**
   * Called once for each message with all its recipients for this target, duplicates included. Refuses by a `Problem`.
   */
  start(transaction: Transaction, recipients: readonly Recipient[]): Promise<Delivery>;
  /**
   * What it would do with a recipient of that hop, one sentence each: servers, ports, TLS. Changes nothing; may query
   * the DNS.
   */
  explain?(hop: Hop): Promise<readonly string[]>;
  /**
   * For targets that link messages into folders where others may move them. Called after a crash, before mail is
   * accepted, and whenever messages of the log are looked for again, so each finder may remember what it has seen. The
   * answer is the current path of a message with those bytes, undefined when it is nowhere, null when it is no longer
   * needed. Link targets name their target as `owner`.
   */
  finder?(): (placement: LinkTarget, content: Buffer) => Promise<string | null | undefined>;
}

export interface Delivery {
  /** Prepares as far as nothing becomes visible; durable at the latest when `commit` resolves. */
  body(message: SpooledMessage): Promise<void>;
  /**
   * After `body`, for a target that knows it by then: the outcomes of its commit. Live targets are not asked for a message
   * that the client would have to send again.
   */
  expected?(): readonly RecipientOutcome[];
  /** Makes it visible or hands it on; one outcome per recipient given to `start`, in that order. When it throws, nothing remains. */
  commit(): Promise<readonly RecipientOutcome[]>;
  /**
   * After every target of the message has committed, never after an abort: irrevocable work may begin. Never throws.
   */
  complete?(): void;
  /** Before or after `commit`: rolls back what can be rolled back. Never throws. */
  abort(): Promise<void>;
}
