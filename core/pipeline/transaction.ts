import type { Readable } from 'node:stream';
import type { Permission } from '../concurrency.js';
import type { Address } from '../mime/address.js';
import type { MessageDsn, RecipientDsn } from '../smtp/protocol/parameters.js';
import type { AuthenticatedUser, Hop } from './verdict.js';

export type ListenerMode = 'mx' | 'submission' | 'lmtp';

/** One connection, as hooks see it. */
export interface SmtpSession {
  /** Unique for the life of the data folder; in every log line and in `Received`. */
  readonly id: string;
  readonly listener: { readonly name: string; readonly mode: ListenerMode };
  readonly remote: { readonly address: string; readonly port: number };
  /** True for loopback clients when the limits exempt them. */
  readonly exempt: boolean;
  readonly hello: { readonly verb: 'HELO' | 'EHLO' | 'LHLO'; readonly name: string } | undefined;
  readonly tls: { readonly protocol: string; readonly cipher: string } | undefined;
  readonly user: AuthenticatedUser | undefined;
  /** True for mail submitted by this server or one of its plugins. */
  readonly internal?: boolean;
  /** True for an explanation: hooks decide as always, but change, count, dial and store nothing. */
  readonly dryRun?: boolean;
  /** ISO 8601 time of the connection. */
  readonly since: string;
  /** For hooks; keys start with the plugin's name: `greylist.key`. Removed with the session. */
  readonly notes: Map<string, unknown>;
}

export interface Recipient {
  readonly address: Address;
  /** Set once a hook has routed it. */
  readonly hop: Hop | undefined;
  /** Accepted and not stored, by a `discard`. */
  readonly discarded: boolean;
  readonly dsn?: RecipientDsn;
}

/** From MAIL to the end of DATA. */
export interface Transaction {
  /** Unique; also the id of its queue entry. */
  readonly id: string;
  readonly session: SmtpSession;
  /** Null for the null reverse-path `<>`. */
  readonly reversePath: Address | null;
  /** Declared by SIZE= (RFC 1870), in bytes. */
  readonly declaredSize: number | undefined;
  readonly body: '7BIT' | '8BITMIME';
  readonly smtputf8: boolean;
  readonly dsn?: MessageDsn;
  /**
   * The client came to an MX, unauthenticated and outside of the relay networks: nothing entitles it to the
   * reverse-path.
   */
  readonly stranger?: boolean;
  /** The transaction may be repeated under the same id after a crash: a target that recognises it delivers once. */
  readonly repeatable?: boolean;
  /** Of a repeatable one: no earlier try can have delivered it, so that targets need not search for a copy. */
  readonly fresh?: boolean;
  /**
   * Of mail that another server may have taken over: whether it may still be delivered. Asked before `commit`; a live
   * target asks again before the end of the message.
   */
  readonly mayCommit?: Permission;
  /** Accepted ones, in the order of RCPT, duplicates included. */
  readonly recipients: readonly Recipient[];
  readonly notes: Map<string, unknown>;
}

/** The received message for the `message` stage. The body stays on disk. */
export interface ReceivedMessage {
  /** In bytes, without the trace fields that Postern adds. */
  readonly size: number;
  /** Header fields in order, unfolded, as text: the first 2,000 within the first 256 KiB of the header. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The header is longer: fields are missing in `headers`, or their ends. */
  readonly headersTruncated: boolean;
  /** Address of a client that is a stranger (`Transaction.stranger`). Parsing the message is scheduled by it. */
  readonly strangerAddress?: string | undefined;
  /** The message from its first header field to its end, as received after the line-ending rule. */
  open(): Readable;
}

/** A recipient, and its index among the client's: undefined for one that a hook added. */
export interface DraftRecipient {
  readonly recipient: Recipient;
  readonly position: number | undefined;
}
