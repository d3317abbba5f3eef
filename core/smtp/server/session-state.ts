import type { Clock } from '../../clock.js';
import { uniqueId } from '../../disk/id.js';
import type { Address } from '../../mime/address.js';
import type { TransactionPipeline, Decision } from '../../pipeline/transaction-pipeline.js';
import type { ListenerMode, Recipient, SmtpSession, Transaction } from '../../pipeline/transaction.js';
import type { Chunk } from '../protocol/command.js';
import type { MailParameters, MessageDsn } from '../protocol/parameters.js';
import type { AuthenticatedUser } from '../../pipeline/verdict.js';
import type { Reply } from '../protocol/replies.js';

export interface Peer {
  readonly listener: { readonly name: string; readonly mode: ListenerMode };
  readonly remote: { readonly address: string; readonly port: number };
  readonly exempt: boolean;
  /** The server's address of the connection, in the form of `normalAddress`. */
  readonly localAddress: () => string;
}

/** The session for hooks; only the SMTP server changes it. */
export class SessionState implements SmtpSession {
  readonly id: string = uniqueId();
  readonly listener: SmtpSession['listener'];
  readonly remote: SmtpSession['remote'];
  readonly exempt: boolean;
  readonly localAddress: () => string;
  readonly since: string;
  readonly notes: Map<string, unknown> = new Map();
  hello: SmtpSession['hello'];
  tls: SmtpSession['tls'];
  user: AuthenticatedUser | undefined;

  constructor(peer: Peer, clock: Clock) {
    this.listener = peer.listener;
    this.remote = peer.remote;
    this.exempt = peer.exempt;
    this.localAddress = peer.localAddress;
    this.since = new Date(clock.now()).toISOString();
  }

  /** RFC 3207 §4.2: discards what was learnt before TLS. */
  secure(tls: NonNullable<SmtpSession['tls']>): void {
    this.tls = tls;
    this.hello = undefined;
    this.user = undefined;
    this.notes.clear();
  }
}

/** A transaction from MAIL on, with its pipeline snapshot. */
export class OpenTransaction implements Transaction {
  readonly id: string = uniqueId();
  readonly session: SessionState;
  readonly pipeline: TransactionPipeline;
  readonly reversePath: Address | null;
  readonly declaredSize: number | undefined;
  readonly body: Transaction['body'];
  readonly smtputf8: boolean;
  readonly dsn?: MessageDsn;
  readonly stranger: boolean;
  readonly recipients: Recipient[] = [];
  readonly notes: Map<string, unknown> = new Map();
  /** BDAT has begun: neither RCPT nor DATA may follow. */
  isChunked = false;

  constructor(
    session: SessionState,
    pipeline: TransactionPipeline,
    reversePath: Address | null,
    parameters: MailParameters & { readonly stranger: boolean },
  ) {
    this.session = session;
    this.stranger = parameters.stranger;
    this.pipeline = pipeline;
    this.reversePath = reversePath;
    this.declaredSize = parameters.declaredSize;
    this.body = parameters.body;
    this.smtputf8 = parameters.smtputf8;
    if (parameters.dsn !== undefined) this.dsn = parameters.dsn;
  }
}

/** The reply to one command. A promise only where a hook is asynchronous. */
export type SessionReply = Reply | Promise<Reply>;

/** Next action of the connection, after the reply; a chunk is read before it. */
export type NextAction = 'close' | 'hang-up' | 'tls' | 'data' | Chunk;

export function whenDecided(
  decision: Decision | Promise<Decision>,
  then: (decision: Decision) => SessionReply,
): SessionReply {
  return decision instanceof Promise ? decision.then(then) : then(decision);
}
