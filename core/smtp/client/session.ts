import type { Reply } from '../protocol/reply.js';
import type { Capabilities } from './capabilities.js';
import type { ClientFailure } from './failure.js';
import type {
  MessageResult,
  OutgoingContent,
  OutgoingMessage,
  OutgoingRecipient,
  OutgoingSender,
  SendOptions,
} from './message.js';

/** TLS as it was agreed. */
export interface ClientTls {
  readonly protocol: string;
  readonly cipher: string;
  /** The certificate is good for the name. */
  readonly verified: boolean;
}

/** What MAIL must know of the message before it comes. */
export interface ContentOutline extends Omit<OutgoingContent, 'source'> {
  /** A recipient is international, so the server must be told (RFC 6531 §3.4). */
  readonly internationalRecipient?: boolean;
}

/**
 * A connection to one server that has been greeted, and where that was asked for encrypted and signed in (`openSession`).
 *
 * Either `send` does a whole transaction, or the steps do it one by one; each step awaits the one before. A step resolves
 * with the reply, whatever its code is, and rejects with a `ClientFailure` when there is none, or when it is a 421, with which the
 * server leaves: then the connection is closed.
 */
export interface ClientSession {
  readonly remote: { readonly host: string; readonly address: string; readonly port: number };
  readonly protocol: 'smtp' | 'lmtp';
  readonly greeting: Reply;
  readonly capabilities: Capabilities;
  readonly tls: ClientTls | undefined;
  /** Messages that were sent to their end, whatever the answer was. */
  readonly messages: number;
  /** Monotonic time of the connection, in milliseconds. */
  readonly since: number;
  /**
   * True when another transaction may be begun: none is open, nothing has gone wrong, and the server has said nothing that it was not
   * asked.
   */
  readonly reusable: boolean;
  /** What ended the connection, if something did. */
  readonly failure: ClientFailure | undefined;

  /**
   * MAIL, RCPT, DATA, the message: in as few writes as the server allows. Never rejects. Afterwards the session is `reusable`,
   * or good for nothing but `quit`.
   */
  send(message: OutgoingMessage, options?: SendOptions): Promise<MessageResult>;

  /** Rejects with a `capability` failure, the connection unharmed, when the message cannot go there. */
  mail(sender: OutgoingSender, outline?: ContentOutline): Promise<Reply>;
  rcpt(recipient: OutgoingRecipient): Promise<Reply>;
  /**
   * MAIL and the first RCPT, in one write where the server allows that (RFC 2920). Rejects as `mail` does; what became of RCPT, after
   * a MAIL that was accepted or not, is an answer. Undefined when RCPT is still to be said.
   */
  mailWithRcpt(
    sender: OutgoingSender,
    recipient: OutgoingRecipient,
    outline?: ContentOutline,
  ): Promise<{ readonly mail: Reply; readonly rcpt: Reply | ClientFailure | undefined }>;
  /** 354 when the message may follow. */
  data(): Promise<Reply>;
  /**
   * The message and its dot, behind a 354: the one reply of SMTP, or the replies of LMTP, one for each RCPT that got 2yz, in their order.
   * `received` gets each as it comes; those it got count, when the promise rejects.
   */
  body(content: OutgoingContent, received?: (reply: Reply, index: number) => void): Promise<readonly Reply[]>;
  rset(): Promise<Reply>;
  noop(): Promise<Reply>;
  /** Says QUIT if that is possible and closes the connection. Never rejects. */
  quit(): Promise<void>;
  /** Closes the connection at once. */
  close(): void;
}
