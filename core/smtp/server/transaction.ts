import { isIPv6 } from 'node:net';
import { type Address, type Domain, makeAddress, parsePath } from '../../mime/address.js';
import { isRelayClient } from '../../net/networks.js';
import type { Decision } from '../../pipeline/transaction-pipeline.js';
import type { Stage } from '../../pipeline/verdict.js';
import type { Recipient } from '../../pipeline/transaction.js';
import { isProblem } from '../../problem.js';
import { parsePathCommand, type PathCommand } from '../protocol/command.js';
import { isMailParameters, isRcptParameters, readMailParameters, readRcptParameters } from '../protocol/parameters.js';
import { replies, reply, type Reply, replyToProblem } from '../protocol/replies.js';
import type { ListenerContext } from './listener-context.js';
import { type SessionReply, OpenTransaction, type SessionState, whenDecided } from './session-state.js';

/** MAIL and RCPT of the current transaction. */
export class EnvelopeCommands {
  readonly #context: ListenerContext;
  readonly #session: SessionState;
  #transaction: OpenTransaction | undefined;
  #count = 0;
  #over = false;

  constructor(context: ListenerContext, session: SessionState) {
    this.#context = context;
    this.#session = session;
  }

  get open(): boolean {
    return this.#transaction !== undefined;
  }

  get transaction(): OpenTransaction | undefined {
    return this.#transaction;
  }

  /** Number of transactions begun. */
  get count(): number {
    return this.#count;
  }

  /** Ends the transaction, if any. */
  reset(): void {
    const transaction = this.#transaction;
    this.#transaction = undefined;
    if (transaction === undefined) return;
    transaction.pipeline.emit('ended', { transaction });
    transaction.pipeline.release();
  }

  /** After the session, a pending decision must not begin a transaction that no one would end. */
  end(): void {
    this.#over = true;
    this.reset();
  }

  /**
   * Unknown senders at an MX get no DSNs, which might go to forged addresses (RFC 3461 §5.2.7 leaves that to local
   * policy). Authenticated clients and relay networks may request them.
   */
  get takesDsn(): boolean {
    const { listener, settings } = this.#context;
    const { user, remote } = this.#session;
    return listener.mode !== 'mx' || user !== undefined || isRelayClient(settings(), remote.address);
  }

  begin(argument: string): SessionReply {
    const command = parsePathCommand(argument, 'FROM:', this.#context.listener.lenientPaths);
    if (command === undefined) return replies.badArguments;
    const { limits } = this.#context.settings();
    const parameters = readMailParameters(command.parameters, {
      messageBytes: limits.messageBytes,
      auth: this.#context.listener.mode === 'submission',
      dsn: this.takesDsn,
    });
    if (!isMailParameters(parameters)) return parameters;
    const reversePath = readPath(command, '5.1.7', undefined);
    if (isReply(reversePath)) return reversePath;
    if (!command.ascii && !parameters.smtputf8) return replies.needsSmtputf8;
    const pipeline = this.#context.pipeline.snapshot();
    const transaction = new OpenTransaction(this.#session, pipeline, reversePath, {
      ...parameters,
      stranger: !this.takesDsn,
    });
    this.#count += 1;
    pipeline.acquire();
    return whenDecided(pipeline.decide('mailFrom', { transaction }), (decision) => this.#begun(transaction, decision));
  }

  #begun(transaction: OpenTransaction, decision: Decision): Reply {
    if (decision.outcome === 'pass') {
      this.#transaction = transaction;
      if (this.#over) this.reset();
      return replies.senderOk;
    }
    transaction.pipeline.release();
    const answer = decision.outcome === 'refuse' ? decision.reply : replies.fault;
    this.rejected('mailFrom', answer, { reversePath: transaction.reversePath });
    return answer;
  }

  recipient(argument: string): SessionReply {
    const transaction = this.#transaction;
    if (transaction === undefined) return replies.mailFirst;
    if (transaction.isChunked) return replies.afterChunk;
    const command = parsePathCommand(argument, 'TO:', this.#context.listener.lenientPaths);
    if (command === undefined) return replies.badArguments;
    const dsn = readRcptParameters(command.parameters, { smtputf8: transaction.smtputf8, dsn: this.takesDsn });
    if (!isRcptParameters(dsn)) return dsn;
    if (transaction.recipients.length >= this.#context.settings().limits.recipients) return replies.tooManyRecipients;
    const path = readPath(command, '5.1.3', this.#context.postmasterDomain());
    if (path === null) return replies.badArguments;
    if (isReply(path)) return path;
    const address = this.#withoutOwnLiteral(path);
    if (!command.ascii && !transaction.smtputf8) return replies.needsSmtputf8;
    const asked = command.parameters.size === 0 ? { address } : { address, dsn };
    const decision = transaction.pipeline.decide('rcptTo', { transaction, ...asked });
    return whenDecided(decision, (made) => this.#added(transaction, asked, made));
  }

  /** RFC 1123 §5.2.17: a host accepts mail to its own address; here it goes to the postmaster. */
  #withoutOwnLiteral(address: Address): Address {
    const bareDomain = this.#context.postmasterDomain();
    const isLiteral = address.domain.startsWith('[');
    if (bareDomain === undefined || !isLiteral || address.local.toLowerCase() !== 'postmaster') return address;
    const ip = this.#session.localAddress();
    const isOwn = address.domain === (isIPv6(ip) ? `[IPv6:${ip}]` : `[${ip}]`);
    return isOwn ? makeAddress(address.local, bareDomain) : address;
  }

  #added(transaction: OpenTransaction, asked: Pick<Recipient, 'address' | 'dsn'>, decision: Decision): Reply {
    const { address } = asked;
    if (decision.outcome === 'discard') {
      transaction.recipients.push({ ...asked, hop: undefined, discarded: true });
      return replies.recipientOk;
    }
    if (decision.outcome === 'pass' && decision.hop !== undefined) {
      transaction.recipients.push({ ...asked, hop: decision.hop, discarded: false });
      return decision.reply ?? replies.recipientOk;
    }
    // A recipient that no hook accepted is refused: never an open relay.
    const answer = decision.outcome === 'refuse' ? decision.reply : replies.notRelayed;
    this.rejected('rcptTo', answer, { reversePath: transaction.reversePath, recipient: address });
    return answer;
  }

  /** Logs a refusal and notifies the watchers. */
  rejected(stage: Stage, answer: Reply, about: { reversePath?: Address | null; recipient?: Address } = {}): void {
    const { code, status, lines } = answer;
    const text = lines.join(' ');
    const { id: session, remote } = this.#session;
    this.#context.log.info(
      {
        session,
        remote: remote.address,
        stage,
        code,
        status,
        reason: text,
        ...(about.reversePath !== undefined && { sender: about.reversePath?.address ?? '<>' }),
        ...(about.recipient !== undefined && { recipient: about.recipient.address }),
      },
      'rejected',
    );
    const pipeline = this.#transaction?.pipeline ?? this.#context.pipeline.snapshot();
    const event = { session: this.#session, stage, code, status: status ?? `${code < 500 ? 4 : 5}.0.0`, text };
    pipeline.emit('rejected', { ...event, ...about });
  }
}

/** The address of a path, null for `<>`; an invalid path is refused with the enhanced status code of its position. */
function readPath({ path }: PathCommand, status: string, bareDomain: Domain | undefined): Address | null | Reply {
  try {
    return parsePath(path, bareDomain);
  } catch (error) {
    if (!isProblem(error)) throw error;
    const { code, lines } = replyToProblem(error);
    return reply(code, status, ...lines);
  }
}

const isReply = (value: Address | null | Reply): value is Reply => value !== null && 'code' in value;
