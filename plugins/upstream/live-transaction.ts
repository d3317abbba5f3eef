import type { RecipientOutcome } from '../../core/pipeline/delivery-target.js';
import type { Address } from '../../core/mime/address.js';
import { clientKey } from '../../core/net/ip-address.js';
import type { Recipient, SmtpSession, Transaction } from '../../core/pipeline/transaction.js';
import type { RecipientDsn } from '../../core/smtp/protocol/parameters.js';
import type { ClientIdentity } from '../../core/smtp/client/remote-server.js';
import { type ClientFailure, isClientFailure, timeoutFailure } from '../../core/smtp/client/failure.js';
import type { OutgoingRecipient } from '../../core/smtp/client/message.js';
import type { PooledSession } from '../../core/smtp/client/pool.js';
import type { ClientSession } from '../../core/smtp/client/session.js';
import type { Reply } from '../../core/smtp/protocol/replies.js';
import type { SpooledMessage } from '../../core/spool/spool.js';
import { type Begun, outcomeOf, outcomesOf, type Upstream } from './upstream.js';
import { contentOf, lackingFor, mirroredMessage, outlineAhead, recipientOf, senderOf } from './mirrored-message.js';
import type { Call } from './upstream-host.js';

/**
 * A client's transaction, relayed to an upstream in step: MAIL and RCPT with the client's RCPT, then the message. One
 * step at a time; a caller may stop waiting, but the steps continue.
 */
export class LiveTransaction {
  readonly upstream: Upstream;
  readonly #transaction: Transaction;
  #turn: Promise<unknown> = Promise.resolve();
  #lease: PooledSession | undefined;
  #host: Begun['host'] | undefined;
  /** Connection of the last MAIL, which is closed on timeout. */
  #session: ClientSession | undefined;
  /** The refusal of MAIL, or the failure of the connection: the answer to everything after it. */
  #refusal: Reply | ClientFailure | undefined;
  /** Recipients accepted by the upstream, in the order of RCPT, with its replies. */
  #accepted: { readonly address: string; readonly reply: Reply }[] = [];
  #ended = false;

  constructor(upstream: Upstream, transaction: Transaction) {
    this.upstream = upstream;
    this.#transaction = transaction;
  }

  /**
   * The upstream's answer to this recipient, or why there is none. Never rejects with a `ClientFailure`. An LMTP server
   * stores a copy for each RCPT, so it is not asked again for one that it has accepted.
   */
  rcpt(address: Address, dsn?: RecipientDsn): Promise<Reply | ClientFailure> {
    return this.#inTurn(() =>
      this.#within(this.upstream.settings.answerMs, (signal) => this.#ask(address, dsn, signal)),
    );
  }

  /**
   * Sends the message to these recipients; one outcome for each, in order. Uses the open transaction when it has
   * exactly this envelope; otherwise, when a hook has changed it or the connection is lost, a new one.
   *
   * @param transaction the client's, as hooks have changed it
   */
  deliver(
    transaction: Transaction,
    recipients: readonly Recipient[],
    message: SpooledMessage,
  ): Promise<readonly RecipientOutcome[]> {
    return this.#inTurn(async () => {
      const lease = this.#lease;
      const isOpen = lease !== undefined && lease.session.failure === undefined;
      const sent =
        isOpen && this.#hasJust(transaction, recipients) ? await this.#sendOn(lease, recipients, message) : undefined;
      if (sent !== undefined) return sent;
      await this.#releaseSession();
      return sendAnew(this.upstream, transaction, recipients, message);
    }).finally(() => this.end());
  }

  /** Called at the end of the client's transaction: resets the upstream's and returns the connection. */
  end(): void {
    this.#ended = true;
    void this.#inTurn(() => this.#releaseSession());
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  async #within(
    ms: number,
    work: (signal: AbortSignal) => Promise<Reply | ClientFailure>,
  ): Promise<Reply | ClientFailure> {
    const overrun = new AbortController();
    const timer = setTimeout(() => {
      overrun.abort();
      this.#session?.close();
    }, ms);
    const answer = await work(overrun.signal).finally(() => clearTimeout(timer));
    if (!overrun.signal.aborted) return answer;
    this.#refusal = timeoutFailure('rcpt');
    return this.#refusal;
  }

  async #ask(address: Address, dsn: RecipientDsn | undefined, signal: AbortSignal): Promise<Reply | ClientFailure> {
    try {
      const recipient = recipientOf(address, dsn);
      const isFirst = this.#lease === undefined && this.#refusal === undefined;
      const ahead = isFirst ? await this.#begin(recipient, signal) : undefined;
      const lease = this.#lease;
      if (this.#refusal !== undefined || lease === undefined) return this.#refusal ?? timeoutFailure('rcpt');
      if (ahead !== undefined && isClientFailure(ahead)) throw ahead;
      const isLmtp = this.upstream.settings.protocol === 'lmtp';
      const known = isLmtp ? this.#accepted.find((one) => one.address === address.address) : undefined;
      if (known !== undefined) return known.reply;
      const reply = ahead ?? (await lease.session.rcpt(recipient));
      if (reply.code < 300) this.#accepted.push({ address: address.address, reply });
      return reply;
    } catch (error) {
      if (!isClientFailure(error)) throw error;
      const isLost = this.#lease === undefined || this.#lease.session.failure !== undefined;
      if (isLost) this.#refusal = error;
      return error;
    }
  }

  /**
   * The server's answer to the first RCPT; undefined when it refused MAIL. A server that disconnects or hangs between
   * the two counts as unavailable, as one does at MAIL.
   */
  async #begin(recipient: OutgoingRecipient, signal: AbortSignal): Promise<Reply | ClientFailure | undefined> {
    this.#session = undefined;
    if (this.#ended) return undefined;
    let ahead: Reply | ClientFailure | undefined;
    const { lease, reply, host } = await this.upstream.begin(
      async (session) => {
        this.#session = session;
        const outline = outlineAhead(this.#transaction, session.capabilities);
        const { mail, rcpt } = await session.mailWithRcpt(senderOf(this.#transaction), recipient, outline);
        if (mail.code >= 300) return mail;
        ahead = rcpt ?? (await replyOrFailure(session.rcpt(recipient)));
        if (isClientFailure(ahead) && session.failure !== undefined) throw ahead;
        return mail;
      },
      callOf(this.upstream, this.#transaction, signal),
    );
    this.#lease = lease;
    this.#host = host;
    if (reply.code >= 300) this.#refusal = reply;
    return ahead;
  }

  #hasJust({ reversePath }: Transaction, recipients: readonly Recipient[]): boolean {
    return (
      reversePath?.address === this.#transaction.reversePath?.address &&
      recipients.length === this.#accepted.length &&
      recipients.every(({ address }, index) => address.address === this.#accepted[index]?.address)
    );
  }

  /** Undefined when the connection was lost before the message was sent: no recipient has it. */
  async #sendOn(
    { session }: PooledSession,
    recipients: readonly Recipient[],
    message: SpooledMessage,
  ): Promise<readonly RecipientOutcome[] | undefined> {
    const content = await contentOf(message, this.#transaction);
    const lacking = await lackingFor(content, session.capabilities);
    if (lacking !== undefined) return outcomesOf(recipients, lacking);
    const said: (Reply | undefined)[] = [];
    try {
      const refused = await session.message(content, (reply, index) => (said[index] = reply));
      this.#host?.heard(undefined);
      if (refused !== undefined) return outcomesOf(recipients, refused);
      const [only] = said;
      if (session.protocol === 'smtp' && only !== undefined) return outcomesOf(recipients, only);
      return recipients.map((recipient, index) => outcomeOf(recipient, said[index] ?? timeoutFailure('final')));
    } catch (error) {
      if (!isClientFailure(error)) throw error;
      if (error.step === 'data' && error.kind === 'closed') return undefined;
      this.#host?.heard(error);
      return recipients.map((recipient, index) => outcomeOf(recipient, said[index] ?? error));
    }
  }

  async #releaseSession(): Promise<void> {
    const lease = this.#lease;
    this.#lease = undefined;
    this.#session = undefined;
    this.#accepted = [];
    if (lease === undefined) return;
    const { session } = lease;
    if (session.failure === undefined && !session.reusable) {
      await session.rset().catch(() => session.close());
    }
    lease.release();
  }
}

/**
 * Sends a message without an open transaction: from the queue, or after a connection was lost. Never rejects with a
 * `ClientFailure`. Finding a server takes at most two reply timeouts: later the client has long been told to try again.
 */
export async function sendAnew(
  upstream: Upstream,
  transaction: Transaction,
  recipients: readonly Recipient[],
  message: SpooledMessage,
): Promise<readonly RecipientOutcome[]> {
  const outgoing = await mirroredMessage(transaction, recipients, message);
  const search = new AbortController();
  const timer = setTimeout(() => search.abort(), 2 * upstream.settings.answerMs);
  const { mayCommit } = transaction;
  const call = callOf(upstream, transaction, search.signal);
  const sent = upstream.send(outgoing, call, mayCommit && { mayEnd: mayCommit });
  const { recipients: results } = await sent.finally(() => clearTimeout(timer));
  return recipients.map((recipient, index) => {
    const result = results[index];
    if (result === undefined) return outcomeOf(recipient, timeoutFailure('final'));
    return outcomeOf(recipient, result.outcome === 'delivered' ? result.reply : result.failure);
  });
}

/** Uses a connection for this client alone when the server receives its identity (XCLIENT). */
function callOf({ settings }: Upstream, { session }: Transaction, signal: AbortSignal): Call {
  if (session.internal === true) return { signal };
  return {
    signal,
    ...(!session.exempt && { holder: clientKey(session.remote.address) }),
    ...(settings.xclient && { client: { session, identity: identityOf(session) } }),
  };
}

function identityOf({ remote, hello, user, listener }: SmtpSession): ClientIdentity {
  const lmtp = listener.mode === 'lmtp';
  return {
    ADDR: remote.address,
    PORT: remote.port,
    ...(hello !== undefined && { HELO: hello.name }),
    PROTO: lmtp ? 'LMTP' : hello?.verb === 'HELO' ? 'SMTP' : 'ESMTP',
    ...(user !== undefined && { LOGIN: user.username }),
  };
}

/** A failure is an answer too. */
async function replyOrFailure(reply: Promise<Reply>): Promise<Reply | ClientFailure> {
  try {
    return await reply;
  } catch (error) {
    if (!isClientFailure(error)) throw error;
    return error;
  }
}

/** Open upstream transactions of client transactions. */
export class LiveTransactions {
  /** By destination. */
  readonly #open = new WeakMap<Transaction['notes'], Map<string, LiveTransaction>>();
  /** A hook may still run after its client has left: nothing is begun then. */
  readonly #over = new WeakSet<Transaction['notes']>();

  find({ notes }: Transaction, destination: string): LiveTransaction | undefined {
    return this.#open.get(notes)?.get(destination);
  }

  /** The open one, or a new one; an ended one when the client's transaction is over. */
  at(transaction: Transaction, destination: string, upstream: Upstream): LiveTransaction {
    const { notes } = transaction;
    if (this.#over.has(notes)) return ended(upstream, transaction);
    const open = this.#open.get(notes) ?? new Map<string, LiveTransaction>();
    this.#open.set(notes, open);
    const live = open.get(destination) ?? new LiveTransaction(upstream, transaction);
    open.set(destination, live);
    return live;
  }

  /** To be called at the end of the client's transaction. */
  end({ notes }: Transaction): void {
    const open = this.#open.get(notes);
    this.#open.delete(notes);
    this.#over.add(notes);
    for (const live of open?.values() ?? []) live.end();
  }
}

function ended(upstream: Upstream, transaction: Transaction): LiveTransaction {
  const live = new LiveTransaction(upstream, transaction);
  live.end();
  return live;
}
