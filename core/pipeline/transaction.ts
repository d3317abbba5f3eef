import type { Readable } from 'node:stream';
import type { Notify } from '../contracts/queue-entry.js';
import type { Address } from '../mime/address.js';
import type { AuthenticatedUser, Hop } from './verdict.js';

export type ListenerMode = 'mx' | 'submission' | 'lmtp';

/** One connection, as hooks see it. */
export interface SmtpSession {
  /** Unique for the life of the data folder; stands in every log line and in `Received`. */
  readonly id: string;
  readonly listener: { readonly name: string; readonly mode: ListenerMode };
  readonly remote: { readonly address: string; readonly port: number };
  /** True for loopback peers when the limits exempt them. */
  readonly exempt: boolean;
  readonly hello: { readonly verb: 'HELO' | 'EHLO' | 'LHLO'; readonly name: string } | undefined;
  readonly tls: { readonly protocol: string; readonly cipher: string } | undefined;
  readonly user: AuthenticatedUser | undefined;
  /** True for mail that this server or one of its plugins hands in. */
  readonly internal?: boolean;
  /** True when somebody only asks what would happen: hooks answer as always, and change, count, dial and remember nothing. */
  readonly dryRun?: boolean;
  /** ISO 8601 time of the connection. */
  readonly since: string;
  /** Free for hooks; keys carry the plugin's name: `greylist.key`. Gone with the session. */
  readonly notes: Map<string, unknown>;
}

export interface Recipient {
  readonly address: Address;
  /** Set once a hook has routed it. */
  readonly hop: Hop | undefined;
  /** Accepted and kept nowhere, by a `discard`. */
  readonly discarded: boolean;
  readonly dsn?: RecipientDsn;
}

/** What the client wants to hear of a recipient (RFC 3461 §4.1, §4.2). */
export interface RecipientDsn {
  readonly notify?: readonly Notify[];
  /** ORCPT as it came: type, `;` and xtext. */
  readonly originalRecipient?: string;
}

/** What the client wants to be told with (RFC 3461 §4.3, §4.4). */
export interface MessageDsn {
  readonly ret?: 'full' | 'hdrs';
  /** ENVID, decoded. */
  readonly envelopeId?: string;
}

/** MAIL to the end of DATA. */
export interface Transaction {
  /** Unique; the queue id of what it becomes. */
  readonly id: string;
  readonly session: SmtpSession;
  /** Null for the null reverse-path `<>`. */
  readonly reversePath: Address | null;
  /** Declared by SIZE= (RFC 1870), in bytes. */
  readonly declaredSize: number | undefined;
  readonly body: '7BIT' | '8BITMIME';
  readonly smtputf8: boolean;
  readonly dsn?: MessageDsn;
  /** The client came to an MX, has not signed in and is in no relay network: nothing shows that it may use the reverse-path. */
  readonly stranger?: boolean;
  /**
   * The same transaction may come again under the same id, for a crash may have hidden its end: a target that can tell delivers it
   * once.
   */
  readonly repeatable?: boolean;
  /** Of a repeatable one: no earlier try can have delivered it, so that no target has to look for a copy. */
  readonly fresh?: boolean;
  /** Accepted ones, in the order of RCPT, duplicates included. */
  readonly recipients: readonly Recipient[];
  readonly notes: Map<string, unknown>;
}

/** The received message as the `message` stage sees it. The body stays on disk. */
export interface ReceivedMessage {
  /** Bytes, without the trace headers that Postern adds. */
  readonly size: number;
  /** Header fields in order, unfolded, as text; at most the number that `limits` allow. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The message from its first header field to its end, as received after the line-ending rule. */
  open(): Readable;
}

/** A recipient, and which of the client's it is: undefined for one that a hook has added. */
export interface DraftRecipient {
  readonly recipient: Recipient;
  readonly position: number | undefined;
}
