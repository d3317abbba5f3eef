import type { Permission } from '../../concurrency.js';
import type { Reply } from '../protocol/replies.js';
import type { ClientFailure } from './failure.js';

/**
 * Parameters of MAIL. Each is sent only where the server offers its extension; a missing extension that the message
 * needs is a failure.
 */
export interface OutgoingSender {
  /** `local@domain`, or null for the null reverse-path. */
  readonly address: string | null;
  /** RFC 3461: how much of the message a DSN returns. */
  readonly ret?: 'FULL' | 'HDRS';
  /** RFC 3461, decoded. */
  readonly envid?: string;
  /** Further parameters, `KEY` or `KEY=value`, sent unconditionally. */
  readonly parameters?: readonly string[];
}

export interface OutgoingRecipient {
  /** `local@domain`. */
  readonly address: string;
  /** RFC 3461. */
  readonly notify?: readonly ('NEVER' | 'SUCCESS' | 'FAILURE' | 'DELAY')[];
  /** RFC 3461, decoded, with its type: `rfc822;ann@example.org`. */
  readonly orcpt?: string;
  /** As for the sender. */
  readonly parameters?: readonly string[];
}

/**
 * From the first header field to the end, with CRLF line ends. Bare CR or LF are sent as CRLF, and dots are stuffed.
 */
export interface OutgoingContent {
  /** A small message is fastest as one buffer. A stream is read once and destroyed when the transaction fails. */
  readonly source: Buffer | (() => AsyncIterable<Uint8Array>);
  /** In bytes, for SIZE (RFC 1870). Default for a buffer: its length. */
  readonly size?: number;
  /** Whether there are bytes beyond ASCII. Undefined: detected while sending, where the server has no 8BITMIME. */
  readonly eightBit?: boolean;
  /** Whether header fields contain UTF-8 (RFC 6531); addresses are checked here. */
  readonly internationalHeader?: boolean;
}

export interface OutgoingMessage {
  readonly sender: OutgoingSender;
  /** In the order of RCPT; duplicates are sent as given. */
  readonly recipients: readonly OutgoingRecipient[];
  readonly content: OutgoingContent;
}

/** The result for one recipient. */
export type RecipientResult =
  | { readonly recipient: OutgoingRecipient; readonly outcome: 'delivered'; readonly reply: Reply }
  | { readonly recipient: OutgoingRecipient; readonly outcome: 'failed'; readonly failure: ClientFailure };

export interface MessageResult {
  /** One for each recipient of the message, in order. */
  readonly recipients: readonly RecipientResult[];
  /** The failure that ended the transaction for all open recipients; undefined when each has a reply of its own. */
  readonly failure: ClientFailure | undefined;
  /** Bytes of the message that were sent, without stuffed dots. */
  readonly bytes: number;
}

export interface SendOptions {
  readonly signal?: AbortSignal;
  /** Called once for each recipient as soon as its result is known; in LMTP one by one. Must not throw. */
  readonly settled?: (index: number, result: RecipientResult) => void;
  /**
   * Whether the message may still be ended. Asked when DATA is sent, for an answer that takes a while, and again between
   * the last byte of the text and the final dot; for a message that goes out in one write, before that. Without a true
   * the connection is broken before the dot (`withdrawn`).
   */
  readonly mayEnd?: Permission;
}

/** Result of a message that failed for all recipients before any command was sent. */
export function failedResult(
  { recipients }: OutgoingMessage,
  failure: ClientFailure,
  settled: SendOptions['settled'],
): MessageResult {
  const results = recipients.map((recipient) => ({ recipient, outcome: 'failed', failure }) as const);
  results.forEach((result, index) => settled?.(index, result));
  return { recipients: results, failure, bytes: 0 };
}

/** Facts about the message that MAIL needs before the content. */
export interface ContentOutline extends Omit<OutgoingContent, 'source'> {
  /** A recipient has an internationalized address (RFC 6531 §3.4). */
  readonly internationalRecipient?: boolean;
}
