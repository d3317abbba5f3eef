import type { Reply } from '../protocol/replies.js';
import type { Answer, Channel } from './channel.js';
import { chunkCommand, ContentWriter, lastChunk } from './content.js';
import type { ClientDeadlines, RemoteServer } from './remote-server.js';
import { abortFailure, type ClientTls } from './dial.js';
import { type Capabilities, mailLine, rcptLine } from './envelope.js';
import {
  chunkRefused,
  type ClientFailure,
  type ClientStep,
  isClientFailure,
  isUnknownCommand,
  localFailure,
  protocolFailure,
} from './failure.js';
import {
  type ContentOutline,
  failedResult,
  type MessageResult,
  type OutgoingContent,
  type OutgoingMessage,
  type OutgoingRecipient,
  type OutgoingSender,
  type SendOptions,
} from './message.js';
import { ClientTransaction } from './transaction.js';

/**
 * A connection to one server, greeted and, where demanded, encrypted and authenticated (`openSession`).
 *
 * Either `send` runs a whole transaction, or the caller takes the steps one by one, each after the one before. A step
 * resolves with the reply, whatever its code, and rejects with a `ClientFailure` when there is none, or when it is a
 * 421; then the connection is closed.
 */
export interface ClientSession {
  readonly remote: { readonly host: string; readonly address: string; readonly port: number };
  readonly protocol: 'smtp' | 'lmtp';
  readonly greeting: Reply;
  readonly capabilities: Capabilities;
  readonly tls: ClientTls | undefined;
  /** Why opportunistic TLS failed, where this connection stays in clear text instead. */
  readonly tlsFailure: ClientFailure | undefined;
  /** Messages sent to their end, whatever the reply. */
  readonly messages: number;
  /** Monotonic time of the connection, in milliseconds. */
  readonly since: number;
  /** True when another transaction may begin: none is open, nothing failed, and no unexpected reply came. */
  readonly reusable: boolean;
  /** The failure that ended the connection, if any. */
  readonly failure: ClientFailure | undefined;
  /** The server offers BDAT and does not know it, or lost its way after it: the next connection does without. */
  readonly refusedChunk: boolean;
  /** During `send`: the server may have all of the message, so that to break off would perhaps double it. */
  readonly mayBeTaken: boolean;

  /**
   * MAIL, RCPT, DATA and the message in as few writes as the server allows. Never rejects. Afterwards the session is
   * `reusable` or only fit for `quit`.
   */
  send(message: OutgoingMessage, options?: SendOptions): Promise<MessageResult>;

  /** Rejects with a `capability` failure and keeps the connection when this server cannot accept the message. */
  mail(sender: OutgoingSender, outline?: ContentOutline): Promise<Reply>;
  rcpt(recipient: OutgoingRecipient): Promise<Reply>;
  /**
   * MAIL and the first RCPT, in one write where the server supports it (RFC 2920). Rejects as `mail` does. The result
   * of RCPT is a value; undefined when RCPT must still be sent.
   */
  mailWithRcpt(
    sender: OutgoingSender,
    recipient: OutgoingRecipient,
    outline?: ContentOutline,
  ): Promise<{ readonly mail: Reply; readonly rcpt: Reply | ClientFailure | undefined }>;
  /** Resolves with 354 when the message may follow. */
  data(): Promise<Reply>;
  /**
   * The message and its final dot, after 354. Resolves with the one reply of SMTP, or with those of LMTP, one for each
   * accepted RCPT in order. `received` is called with each reply as it comes; those calls are valid even when the
   * promise rejects.
   */
  body(content: OutgoingContent, received?: (reply: Reply, index: number) => void): Promise<readonly Reply[]>;
  /**
   * The message after RCPT: as one chunk where that is possible (`lastChunk`), else by `data` and `body`. Resolves with
   * the reply that refuses DATA, or with undefined when all replies were received.
   */
  message(content: OutgoingContent, received: (reply: Reply, index: number) => void): Promise<Reply | undefined>;
  rset(): Promise<Reply>;
  noop(): Promise<Reply>;
  /** Sends QUIT if possible and closes the connection. Never rejects. */
  quit(): Promise<void>;
  /** Closes the connection at once. */
  close(): void;
}

/** Result of the opening. */
interface OpenedSession {
  readonly channel: Channel;
  readonly server: RemoteServer;
  readonly deadlines: ClientDeadlines;
  readonly greeting: Reply;
  readonly capabilities: Capabilities;
  readonly tls: ClientTls | undefined;
  readonly tlsFailure: ClientFailure | undefined;
  readonly since: number;
  /** Deducted from the timeout of the first message. */
  readonly openingMs: number;
}

/** `ready` for MAIL; `open` after MAIL; `go` after 354; `spent` after a refusal, until RSET. */
type State = 'ready' | 'busy' | 'open' | 'go' | 'spent';

export class LiveSession implements ClientSession {
  readonly remote: ClientSession['remote'];
  readonly protocol: 'smtp' | 'lmtp';
  readonly greeting: Reply;
  readonly capabilities: Capabilities;
  readonly tls: ClientTls | undefined;
  readonly tlsFailure: ClientFailure | undefined;
  readonly since: number;
  readonly #channel: Channel;
  readonly #deadlines: ClientDeadlines;
  #openingMs: number;
  #state: State = 'ready';
  #accepted = 0;
  #messages = 0;
  #refusedChunk = false;
  #transaction: ClientTransaction | undefined;

  constructor(opened: OpenedSession) {
    const { address, port, host = address, protocol } = opened.server;
    this.remote = { host, address, port };
    this.protocol = protocol;
    this.greeting = opened.greeting;
    this.capabilities = opened.capabilities;
    this.tls = opened.tls;
    this.tlsFailure = opened.tlsFailure;
    this.since = opened.since;
    this.#channel = opened.channel;
    this.#deadlines = opened.deadlines;
    this.#openingMs = opened.openingMs;
  }

  get messages(): number {
    return this.#messages;
  }

  get reusable(): boolean {
    return this.#state === 'ready' && this.#channel.failure === undefined;
  }

  get failure(): ClientFailure | undefined {
    return this.#channel.failure;
  }

  get refusedChunk(): boolean {
    return this.#refusedChunk;
  }

  get mayBeTaken(): boolean {
    return this.#transaction?.mayBeTaken === true;
  }

  async send(message: OutgoingMessage, options: SendOptions = {}): Promise<MessageResult> {
    const { signal, settled } = options;
    if (signal?.aborted === true) return failedResult(message, abortFailure('mail'), settled);
    if (!this.reusable) return failedResult(message, this.#channel.failure ?? inUse(), settled);
    const channel = this.#channel;
    const aborted = (): void => channel.fail(abortFailure(channel.step));
    signal?.addEventListener('abort', aborted, { once: true });
    this.#begin();
    const context = { channel, capabilities: this.capabilities, deadlines: this.#deadlines, protocol: this.protocol };
    const transaction = new ClientTransaction(context, message, options);
    this.#transaction = transaction;
    const result = await transaction.run();
    this.#transaction = undefined;
    signal?.removeEventListener('abort', aborted);
    if (result.bytes > 0) this.#messages += 1;
    this.#state = transaction.clean ? 'ready' : 'spent';
    this.#refusedChunk = transaction.refusedChunk;
    channel.rest();
    return result;
  }

  async mail(sender: OutgoingSender, outline: ContentOutline = {}): Promise<Reply> {
    this.#expectState('mail', 'ready');
    const line = mailLine(sender, outline, this.capabilities);
    if (isClientFailure(line)) throw line;
    this.#begin();
    this.#accepted = 0;
    return this.#expectReply(await this.#channel.ask('mail', line, this.#deadlines.mailMs), 'open', 'spent');
  }

  async rcpt(recipient: OutgoingRecipient): Promise<Reply> {
    this.#expectState('rcpt', 'open');
    const line = rcptLine(recipient, this.capabilities);
    if (isClientFailure(line)) throw line;
    this.#state = 'busy';
    const reply = this.#expectReply(await this.#channel.ask('rcpt', line, this.#deadlines.rcptMs), 'open', 'open');
    if (reply.code < 300) this.#accepted += 1;
    return reply;
  }

  async mailWithRcpt(
    sender: OutgoingSender,
    recipient: OutgoingRecipient,
    outline: ContentOutline = {},
  ): Promise<{ readonly mail: Reply; readonly rcpt: Answer | undefined }> {
    this.#expectState('mail', 'ready');
    const second = rcptLine(recipient, this.capabilities);
    if (!this.capabilities.pipelining || isClientFailure(second)) {
      return { mail: await this.mail(sender, outline), rcpt: undefined };
    }
    const first = mailLine(sender, outline, this.capabilities);
    if (isClientFailure(first)) throw first;
    this.#begin();
    this.#accepted = 0;
    const { mailMs, rcptMs } = this.#deadlines;
    this.#channel.write(Buffer.from(`${first}\r\n${second}\r\n`));
    const answers = [
      this.#channel.expect('mail', mailMs, first),
      this.#channel.expect('rcpt', rcptMs, second),
    ] as const;
    const mail = this.#expectReply(await answers[0], 'busy', 'busy');
    const rcpt = await answers[1];
    this.#state = mail.code < 300 ? 'open' : 'spent';
    if (mail.code < 300 && !isClientFailure(rcpt) && rcpt.code < 300) this.#accepted = 1;
    return { mail, rcpt };
  }

  async data(): Promise<Reply> {
    this.#expectState('data', 'open');
    this.#state = 'busy';
    const reply = this.#expectReply(await this.#channel.ask('data', 'DATA', this.#deadlines.dataMs), 'go', 'spent');
    if (reply.code !== 354 || this.#accepted > 0) return reply;
    const failure = protocolFailure('data', 'The server wants a message without recipients');
    this.#channel.fail(failure);
    throw failure;
  }

  async body(content: OutgoingContent, received?: (reply: Reply, index: number) => void): Promise<readonly Reply[]> {
    this.#expectState('body', 'go');
    this.#state = 'busy';
    const channel = this.#channel;
    const { finalMs, finalsMs } = this.#deadlines;
    const writer = new ContentWriter(channel, this.capabilities, this.#deadlines);
    if (!(await writer.write(content))) throw channel.failure ?? localFailure('body', 'The message was not written');
    this.#messages += 1;
    const shown = `. (${writer.bytes} bytes)`;
    if (this.protocol === 'lmtp' && finalsMs < Infinity) channel.attempt(finalsMs);
    const awaited = Array.from({ length: this.protocol === 'lmtp' ? this.#accepted : 1 }, () =>
      channel.expect('final', finalMs, shown),
    );
    const replies: Reply[] = [];
    let failure: ClientFailure | undefined;
    for (const [index, one] of awaited.entries()) {
      const answer = await one;
      if (isClientFailure(answer)) failure ??= answer;
      else {
        replies.push(answer);
        received?.(answer, index);
      }
    }
    if (failure !== undefined) throw failure;
    this.#state = this.protocol === 'lmtp' || replies.every(({ code }) => code < 300) ? 'ready' : 'spent';
    channel.rest();
    return replies;
  }

  async message(content: OutgoingContent, received: (reply: Reply, index: number) => void): Promise<Reply | undefined> {
    const channel = this.#channel;
    const isAccepted =
      this.protocol === 'smtp' && this.#accepted > 0 && this.#state === 'open' && channel.failure === undefined;
    const chunk = isAccepted ? lastChunk(content, channel, this.capabilities) : undefined;
    if (chunk === undefined) {
      const go = await this.data();
      if (go.code !== 354) return go;
      await this.body(content, received);
      return undefined;
    }
    this.#state = 'busy';
    this.#messages += 1;
    channel.write(Buffer.concat(chunk));
    const answer = await channel.expect('final', this.#deadlines.finalMs, chunkCommand(chunk));
    if (isClientFailure(answer) || isUnknownCommand(answer)) this.#refusedChunk = true;
    if (!isClientFailure(answer) && this.#refusedChunk) channel.fail(chunkRefused(answer));
    received(this.#expectReply(channel.failure ?? answer, 'ready', 'spent'), 0);
    channel.rest();
    return undefined;
  }

  async rset(): Promise<Reply> {
    if (this.#state === 'go' || this.#state === 'busy') throw localFailure('rset', 'RSET cannot be said now');
    const state = this.#state === 'ready' ? 'ready' : 'spent';
    const reply = this.#expectReply(await this.#channel.ask('rset', 'RSET', this.#deadlines.helloMs), 'ready', state);
    this.#channel.rest();
    return reply;
  }

  async noop(): Promise<Reply> {
    if (this.#state === 'go' || this.#state === 'busy') throw localFailure('noop', 'NOOP cannot be said now');
    const state = this.#state;
    return this.#expectReply(await this.#channel.ask('noop', 'NOOP', this.#deadlines.helloMs), state, state);
  }

  async quit(): Promise<void> {
    if (this.#state !== 'go' && this.#state !== 'busy') await this.#channel.ask('quit', 'QUIT', this.#deadlines.quitMs);
    this.close();
  }

  close(): void {
    this.#channel.close();
  }

  #begin(): void {
    this.#state = 'busy';
    this.#channel.attempt(Math.max(0, this.#deadlines.attemptMs - this.#openingMs));
    this.#openingMs = 0;
  }

  /** The caller must await each step before the next one. */
  #expectState(step: ClientStep, state: State): void {
    if (this.#channel.failure !== undefined) throw this.#channel.failure;
    if (this.#state !== state) throw localFailure(step, `This step cannot be made now (${this.#state})`);
  }

  #expectReply(answer: Answer, well: State, refused: State): Reply {
    if (isClientFailure(answer)) throw answer;
    this.#state = answer.code < 400 ? well : refused;
    return answer;
  }
}

const inUse = (): ClientFailure => localFailure('mail', 'The connection cannot be used for another message');
