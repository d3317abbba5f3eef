import type { Address } from '../mime/address.js';
import { service } from '../host/service.js';
import type { Hop } from '../pipeline/verdict.js';

/** A message that somebody who is known hands in: a draft, a DSN, the mail of a plugin. */
export interface Submission {
  /** Who hands it in, `local@domain`: hooks see a session that has signed in by that name. Undefined for the server itself. */
  readonly username: string | undefined;
  /** IP address of whoever asked; the server's own when absent. */
  readonly remoteAddress?: string;
  /** How it came, for the trace: `HTTP`. */
  readonly via?: string;
  /** Null for the null reverse-path `<>`. */
  readonly reversePath: Address | null;
  /**
   * Id of the transaction: may be handed in again after a crash, and is delivered once then (`Transaction.repeatable`). Digits, lower
   * case letters and `-`, at most 64. A new one when absent.
   */
  readonly id?: string;
  /** It was not handed in under this id before: no target has to look for a copy. */
  readonly fresh?: boolean;
  /** Where everybody goes; hooks of `rcptTo` are not asked then. */
  readonly hop?: (address: Address) => Hop;
  /** Notes of the transaction, for hooks and targets. */
  readonly notes?: ReadonlyMap<string, unknown>;
  /** Whom to deliver to; the header fields of the message are not looked at. */
  readonly recipients: readonly Address[];
  /** From the first header field to the end, with CRLF line ends and without Bcc. Read once, and only when all are accepted. */
  readonly content: () => AsyncIterable<Buffer>;
}

export interface Submitted {
  /** Id of the transaction: the `uid` of the queue entry, if a recipient is queued. */
  readonly id: string;
  /** Which recipient is delivered by what, in the order of the submission. */
  readonly recipients: readonly { readonly address: Address; readonly target: string }[];
}

/**
 * Hands mail in as an authenticated SMTP session would: hooks decide about sender and recipients, route them and see the message; the
 * same call delivers local recipients and hands the others to whatever target a hook routes them to.
 */
export interface SubmissionService {
  /**
   * Resolves when every recipient has a durable owner. All or none: when it rejects, nobody got it.
   * @throws Problem `invalid` with one place in `errors` for each recipient that is refused for good, `unavailable` for now
   */
  submit(submission: Submission): Promise<Submitted>;
}

export const submission = service<SubmissionService>('postern.submission');
