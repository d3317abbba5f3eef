import type { Address } from '../mime/address.js';
import { service } from './service.js';
import type { Hop } from '../pipeline/verdict.js';

/** A message from a known submitter: a draft, a DSN, the mail of a plugin. */
export interface Submission {
  /** The submitter, `local@domain`: hooks see a session authenticated by that name. Undefined for the server itself. */
  readonly username: string | undefined;
  /** IP address of the caller; default the server's own. */
  readonly remoteAddress?: string;
  /** Protocol for the trace fields: `HTTP`. */
  readonly via?: string;
  /** Null for the null reverse-path `<>`. */
  readonly reversePath: Address | null;
  /**
   * Id of the transaction: may be submitted again after a crash, and is then delivered once (`Transaction.repeatable`).
   * Digits, lower case letters and `-`, at most 64. Default a new one.
   */
  readonly id?: string;
  /** It was not submitted under this id before, so that targets need not search for a copy. */
  readonly fresh?: boolean;
  /** Route of all recipients; hooks of `rcptTo` do not run then. */
  readonly hop?: (address: Address) => Hop;
  /** Notes of the transaction, for hooks and targets. */
  readonly notes?: ReadonlyMap<string, unknown>;
  /** The recipients; header fields of the message are ignored. */
  readonly recipients: readonly Address[];
  /**
   * From the first header field to the end, with CRLF line ends and without Bcc. Read once, and only when all are
   * accepted.
   */
  readonly content: () => AsyncIterable<Buffer>;
}

export interface Submitted {
  /** Id of the transaction: the `uid` of the queue entry, if a recipient is queued. */
  readonly id: string;
  /** Targets of the recipients, in the order of the submission. */
  readonly recipients: readonly { readonly address: Address; readonly target: string }[];
}

/**
 * Submits mail as an authenticated SMTP session would: hooks decide about sender and recipients, route them and see the
 * message; local recipients and all others are delivered by the same call.
 */
export interface SubmissionService {
  /**
   * Resolves when every recipient has a durable owner. All or none: when it rejects, no recipient has it.
   * @throws Problem `invalid` with one place in `errors` for each permanently refused recipient, `unavailable` for now
   */
  submit(submission: Submission): Promise<Submitted>;
}

export const submission = service<SubmissionService>('postern.submission');
