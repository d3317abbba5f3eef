import type { Reply } from '../protocol/reply.js';
import type { ClientFailure } from './failure.js';

/** Parameters of MAIL. Each is sent only where the server offers its extension; what the message needs and is not offered fails. */
export interface OutgoingSender {
  /** `local@domain`, or null for the null reverse-path. */
  readonly address: string | null;
  /** RFC 3461: how much of the message a DSN returns. */
  readonly ret?: 'FULL' | 'HDRS';
  /** RFC 3461, decoded. */
  readonly envid?: string;
  /** Further parameters as they are written, `KEY` or `KEY=value`; sent whether they are offered or not. */
  readonly parameters?: readonly string[];
}

export interface OutgoingRecipient {
  /** `local@domain`. */
  readonly address: string;
  /** RFC 3461. */
  readonly notify?: readonly ('NEVER' | 'SUCCESS' | 'FAILURE' | 'DELAY')[];
  /** RFC 3461, decoded, with its type: `rfc822;ann@example.org`. */
  readonly orcpt?: string;
  /** As with the sender. */
  readonly parameters?: readonly string[];
}

/** From the first header field to the end, with CRLF line ends. Bare CR or LF are sent as CRLF; dots are stuffed here. */
export interface OutgoingContent {
  /** Small messages as one buffer are fastest. A stream is read once; it is destroyed when the transaction fails. */
  readonly source: Buffer | (() => AsyncIterable<Uint8Array>);
  /** In bytes; for SIZE (RFC 1870). Of a buffer its length by default. */
  readonly size?: number;
  /** Whether there are bytes beyond ASCII. Undefined: found out while sending, where the server has no 8BITMIME. */
  readonly eightBit?: boolean;
  /** Whether header fields hold UTF-8 (RFC 6531); addresses are looked at here. */
  readonly internationalHeader?: boolean;
}

export interface OutgoingMessage {
  readonly sender: OutgoingSender;
  /** In the order of RCPT; duplicates are sent as given. */
  readonly recipients: readonly OutgoingRecipient[];
  readonly content: OutgoingContent;
}

/** What became of one recipient. */
export type RecipientResult =
  | { readonly recipient: OutgoingRecipient; readonly outcome: 'delivered'; readonly reply: Reply }
  | { readonly recipient: OutgoingRecipient; readonly outcome: 'failed'; readonly failure: ClientFailure };

export interface MessageResult {
  /** One for each recipient of the message, in their order. */
  readonly recipients: readonly RecipientResult[];
  /** What ended the transaction for all that were open; undefined when each recipient has a reply of its own. */
  readonly failure: ClientFailure | undefined;
  /** Bytes of the message that were sent, without stuffed dots. */
  readonly bytes: number;
}

export interface SendOptions {
  readonly signal?: AbortSignal;
  /** Told of each recipient as soon as it is settled: of LMTP one by one. Must not throw. */
  readonly settled?: (index: number, result: RecipientResult) => void;
}

/** The result of a message that failed for all its recipients before anything was said of it. */
export function unsent(
  { recipients }: OutgoingMessage,
  failure: ClientFailure,
  settled: SendOptions['settled'],
): MessageResult {
  const results = recipients.map((recipient) => ({ recipient, outcome: 'failed', failure }) as const);
  results.forEach((result, index) => settled?.(index, result));
  return { recipients: results, failure, bytes: 0 };
}
