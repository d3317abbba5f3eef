import type { RecipientOutcome } from '../../core/contracts/delivery-target.js';
import type { Address } from '../../core/mime/address.js';
import type { Recipient, RecipientDsn, SmtpSession, Transaction } from '../../core/pipeline/transaction.js';
import type { ClientIdentity } from '../../core/smtp/client/destination.js';
import { type ClientFailure, isClientFailure, timeoutFailure } from '../../core/smtp/client/failure.js';
import type { OutgoingRecipient } from '../../core/smtp/client/message.js';
import type { Lease } from '../../core/smtp/client/pool.js';
import type { ClientSession } from '../../core/smtp/client/session.js';
import type { Reply } from '../../core/smtp/protocol/replies.js';
import type { SpooledMessage } from '../../core/spool/spool.js';
import { type Begun, outcomeOf, outcomesOf, type Upstream } from './upstream.js';
import { contentOf, lackingFor, messageOf, outlineAhead, recipientOf, senderOf } from './mirrored-message.js';
import type { Call } from './upstream-host.js';

/**
 * A client's transaction, said again to an upstream as it comes: MAIL and RCPT at the client's RCPT, the message when it is
 * there. One step at a time; whoever calls may give up waiting, the steps do not.
 */
export class LiveTransaction {
  readonly upstream: Upstream;
  readonly #transaction: Transaction;
  #turn: Promise<unknown> = Promise.resolve();
  #lease: Lease | undefined;
  #host: Begun['host'] | undefined;
  /** Where MAIL was said last: what is to be closed when it takes too long. */
  #session: ClientSession | undefined;
  /** The answer to MAIL where it was no, or what has broken the connection: all that is said from there on. */
  #refusal: Reply | ClientFailure | undefined;
  /** Whom the upstream has accepted, in the order of RCPT. */
  #accepted: Address[] = [];
  #ended = false;

  constructor(upstream: Upstream, transaction: Transaction) {
    this.upstream = upstream;
    this.#transaction = transaction;
  }

  /** What the upstream says to this recipient, or why it cannot be asked. Never rejects with a `ClientFailure`. */
  rcpt(address: Address, dsn?: RecipientDsn): Promise<Reply | ClientFailure> {
    return this.#inTurn(() =>
      this.#within(this.upstream.settings.answerMs, (signal) => this.#ask(address, dsn, signal)),
    );
  }

  /**
   * The message for these recipients; one outcome for each, in their order. Over the open transaction when it has just them;
   * else, because a hook has taken some away or the connection is lost, as a message of its own.
   */
  deliver(recipients: readonly Recipient[], message: SpooledMessage): Promise<readonly RecipientOutcome[]> {
    return this.#inTurn(async () => {
      const lease = this.#lease;
      if (lease === undefined || lease.session.failure !== undefined || !this.#hasJust(recipients)) {
        return this.#anew(recipients, message);
      }
      return (await this.#sendOn(lease, recipients, message)) ?? this.#anew(recipients, message);
    }).finally(() => this.end());
  }

  /** The client's transaction is over: what is open at the upstream is forgotten there, and the connection given back. */
  end(): void {
    this.#ended = true;
    void this.#inTurn(() => this.#giveBack());
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
      const reply = ahead ?? (await lease.session.rcpt(recipient));
      if (reply.code < 300) this.#accepted.push(address);
      return reply;
    } catch (error) {
      if (!isClientFailure(error)) throw error;
      const isLost = this.#lease === undefined || this.#lease.session.failure !== undefined;
      if (isLost) this.#refusal = error;
      return error;
    }
  }

  /**
   * What the server has said to the first RCPT; undefined when it has refused MAIL. A server that goes or hangs between the two
   * is one that does not answer, like one that does at MAIL.
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
        ahead = rcpt ?? (await answerOf(session.rcpt(recipient)));
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

  #hasJust(recipients: readonly Recipient[]): boolean {
    return (
      recipients.length === this.#accepted.length &&
      recipients.every(({ address }, index) => address.address === this.#accepted[index]?.address)
    );
  }

  /** Undefined when the connection was lost before the message was asked for: nobody has anything of it. */
  async #sendOn(
    { session }: Lease,
    recipients: readonly Recipient[],
    message: SpooledMessage,
  ): Promise<readonly RecipientOutcome[] | undefined> {
    const content = await contentOf(message, this.#transaction);
    const lacking = await lackingFor(content, session.capabilities);
    if (lacking !== undefined) return outcomesOf(recipients, lacking);
    const said: (Reply | undefined)[] = [];
    try {
      const go = await session.data();
      if (go.code === 354) await session.body(content, (reply, index) => (said[index] = reply));
      this.#host?.heard(undefined);
      if (go.code !== 354) return outcomesOf(recipients, go);
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

  async #anew(recipients: readonly Recipient[], message: SpooledMessage): Promise<readonly RecipientOutcome[]> {
    await this.#giveBack();
    return sendAnew(this.upstream, this.#transaction, recipients, message);
  }

  async #giveBack(): Promise<void> {
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
 * Sends a message that no transaction is open for: from the queue, or after one was lost. Never rejects with a `ClientFailure`. A
 * server must be found in the time of two answers: else the message would go out when its client has long been told to come again.
 */
export async function sendAnew(
  upstream: Upstream,
  transaction: Transaction,
  recipients: readonly Recipient[],
  message: SpooledMessage,
): Promise<readonly RecipientOutcome[]> {
  const outgoing = await messageOf(transaction, recipients, message);
  const search = new AbortController();
  const timer = setTimeout(() => search.abort(), 2 * upstream.settings.answerMs);
  const sent = upstream.send(outgoing, callOf(upstream, transaction, search.signal));
  const { recipients: results } = await sent.finally(() => clearTimeout(timer));
  return recipients.map((recipient, index) => {
    const result = results[index];
    if (result === undefined) return outcomeOf(recipient, timeoutFailure('final'));
    return outcomeOf(recipient, result.outcome === 'delivered' ? result.reply : result.failure);
  });
}

/** Over a connection of the client's own where the server is told who that is. */
function callOf({ settings }: Upstream, { session }: Transaction, signal: AbortSignal): Call {
  if (!settings.xclient || session.internal === true) return { signal };
  return { signal, client: { session, identity: identityOf(session) } };
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
async function answerOf(reply: Promise<Reply>): Promise<Reply | ClientFailure> {
  try {
    return await reply;
  } catch (error) {
    if (!isClientFailure(error)) throw error;
    return error;
  }
}

/** What is open at upstreams for the transactions of clients. */
export class LiveTransactions {
  /** By destination. */
  readonly #open = new WeakMap<Transaction['notes'], Map<string, LiveTransaction>>();
  /** A hook may be asked still when its client has left: nothing is begun for it. */
  readonly #over = new WeakSet<Transaction['notes']>();

  find({ notes }: Transaction, destination: string): LiveTransaction | undefined {
    return this.#open.get(notes)?.get(destination);
  }

  /** The open one, or a new one there; one that has ended when the client's transaction is over. */
  at(transaction: Transaction, destination: string, upstream: Upstream): LiveTransaction {
    const { notes } = transaction;
    if (this.#over.has(notes)) return ended(upstream, transaction);
    const open = this.#open.get(notes) ?? new Map<string, LiveTransaction>();
    this.#open.set(notes, open);
    const live = open.get(destination) ?? new LiveTransaction(upstream, transaction);
    open.set(destination, live);
    return live;
  }

  /** To be called when the client's transaction is over. */
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
