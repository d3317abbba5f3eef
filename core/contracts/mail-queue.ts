import type { Address } from '../mime/address.js';
import type { Hop } from '../pipeline/verdict.js';
import type { EntryState, RecordedReply } from './queue-entry.js';
import { service } from './service.js';

/** A message in the queue. Times are milliseconds since the epoch. */
export interface QueuedMessage {
  /** The `uid` of the pages and calls. */
  readonly id: string;
  readonly state: EntryState;
  /** Null for the null reverse-path. */
  readonly sender: string | null;
  readonly recipients: readonly QueuedMessageRecipient[];
  /** Bytes. */
  readonly size: number;
  readonly queuedAt: number;
  readonly expiresAt: number;
}

export interface QueuedMessageRecipient {
  readonly address: string;
  /** `relay` for other servers, else the delivery target of this server. */
  readonly target: string;
  readonly state: EntryState;
  readonly attempts: number;
  /** Null when there is none. */
  readonly nextAttempt: number | null;
  /** Of the last attempt. */
  readonly reply: RecordedReply | null;
}

/** A message for the queue. */
export interface MessageToQueue {
  /** Null for the null reverse-path. */
  readonly reversePath: Address | null;
  readonly recipients: readonly Address[];
  /** The delivery target of this server; other servers if absent, as the routes and MX records of the domains say. */
  readonly hop?: Hop;
  /** From the first header field to the end, with CRLF line ends. */
  readonly content: () => AsyncIterable<Buffer>;
}

/** The queue: mail for other servers, and for targets of this server that are tried again. */
export interface MailQueue {
  /** The oldest messages first: those that are not finished, at most `limit` (default 100). */
  list(options?: { readonly limit?: number }): Promise<readonly QueuedMessage[]>;
  /** Undefined when there is no such message, finished or not. */
  show(id: string): Promise<QueuedMessage | undefined>;
  /**
   * Resolves with its id when the message is durable in the queue. Hooks of `message` and `deliver` see it; those of `rcptTo` do
   * not.
   *
   * @throws Problem `invalid` when a hook refuses it, `unavailable` for now
   */
  enqueue(message: MessageToQueue): Promise<string>;
  /** Tries it now. @throws Problem `not-found`, as the next three */
  retry(id: string): Promise<void>;
  /** Keeps it for an operator. */
  hold(id: string, reason: string): Promise<void>;
  /** Ends a hold. */
  release(id: string): Promise<void>;
  /** Returns it to its sender with this reason. */
  bounce(id: string, reason: string): Promise<void>;
}

export const queue = service<MailQueue>('postern.queue');
