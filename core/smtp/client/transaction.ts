import { isAscii } from '../../mime/character.js';
import type { Reply } from '../protocol/replies.js';
import { type Capabilities, mailLine, rcptLine } from './envelope.js';
import type { Answer, Channel } from './channel.js';
import { type BdatChunk, chunkCommand, ContentWriter, hasEightBit, lastChunk } from './content.js';
import type { ClientDeadlines } from './remote-server.js';
import {
  afterMessage,
  chunkRefused,
  isClientFailure,
  isUnknownCommand,
  localFailure,
  protocolFailure,
  refusal,
  type ClientFailure,
} from './failure.js';
import type {
  ContentOutline,
  MessageResult,
  OutgoingContent,
  OutgoingMessage,
  OutgoingRecipient,
  RecipientResult,
  SendOptions,
} from './message.js';

export interface TransactionContext {
  readonly channel: Channel;
  readonly capabilities: Capabilities;
  readonly deadlines: ClientDeadlines;
  readonly protocol: 'smtp' | 'lmtp';
}

/** One message from MAIL to its last reply, in as few writes as the server allows (RFC 2920). */
export class ClientTransaction {
  readonly #context: TransactionContext;
  readonly #message: OutgoingMessage;
  readonly #options: SendOptions;
  readonly #results: (RecipientResult | undefined)[];
  /** Indexes of the recipients whose RCPT got 2yz. */
  readonly #accepted: number[] = [];
  #failure: ClientFailure | undefined;
  #bytes = 0;
  #writer: ContentWriter | undefined;
  #clean = false;
  #refusedChunk = false;

  constructor(context: TransactionContext, message: OutgoingMessage, options: SendOptions) {
    this.#context = context;
    this.#message = message;
    this.#options = options;
    this.#results = message.recipients.map(() => undefined);
  }

  /** True when another transaction may follow: this one was not refused as a whole, and every reply was read. */
  get clean(): boolean {
    return this.#clean;
  }

  /** The server offers BDAT and does not know it, or lost its way after it. */
  get refusedChunk(): boolean {
    return this.#refusedChunk;
  }

  /** The server may have all of the message. */
  get mayBeTaken(): boolean {
    return this.#bytes > 0 || this.#writer?.ended === true;
  }

  async run(): Promise<MessageResult> {
    const rcptLines = this.#rcptLines();
    const line = this.#mailLine();
    if (isClientFailure(line)) this.#failAll(line);
    // Recipients that this server cannot accept have their result already.
    this.#clean = isClientFailure(line) || rcptLines.every((one) => one === undefined);
    if (!this.#clean && !isClientFailure(line)) await this.#runCommands(line, rcptLines);
    return this.#result();
  }

  #rcptLines(): readonly (string | undefined)[] {
    return this.#message.recipients.map((recipient, index) => {
      const line = rcptLine(recipient, this.#context.capabilities);
      if (!isClientFailure(line)) return line;
      this.#fail(index, line);
      return undefined;
    });
  }

  #mailLine(): string | ClientFailure {
    const { sender, recipients, content } = this.#message;
    const { capabilities } = this.#context;
    const internationalRecipient = capabilities.smtputf8 && recipients.some(({ address }) => !isAscii(address));
    return mailLine(sender, { ...outlineOf(content, capabilities), internationalRecipient }, capabilities);
  }

  async #runCommands(mail: string, rcptLines: readonly (string | undefined)[]): Promise<void> {
    const { channel, capabilities, protocol } = this.#context;
    const { pipelining } = capabilities;
    // Whether it may end is asked after the last byte of a message, which cannot be held back here.
    const isWhole = protocol === 'smtp' && this.#options.mayEnd === undefined;
    const chunk = isWhole ? lastChunk(this.#message.content, channel, capabilities) : undefined;
    if (chunk !== undefined) return this.#sendChunk(mail, rcptLines, chunk);
    const data = pipelining ? await this.#pipelined(mail, rcptLines) : await this.#oneByOne(mail, rcptLines);
    if (data !== undefined) await this.#sendContent(data);
  }

  /** Everything in one write (RFC 3030). */
  async #sendChunk(mail: string, rcptLines: readonly (string | undefined)[], chunk: BdatChunk): Promise<void> {
    const { channel, deadlines } = this.#context;
    const lines = [mail, ...rcptLines.filter((line) => line !== undefined), ''];
    channel.write(Buffer.concat([Buffer.from(lines.join('\r\n')), ...chunk]));
    this.#bytes = chunk[1].length + chunk[2].length;
    const mailAnswer = channel.expect('mail', deadlines.mailMs, mail);
    const rcptAnswers = rcptLines.map((line) => line && channel.expect('rcpt', deadlines.rcptMs, line));
    const final = await channel.expect('final', deadlines.finalMs, chunkCommand(chunk));
    const lost = isClientFailure(final) && final.kind !== 'reply' ? afterMessage(final) : undefined;
    const known = (answer: Answer): Answer => (isClientFailure(answer) ? (lost ?? answer) : answer);
    // A middlebox may offer what the server behind it does not take.
    if (lost !== undefined) this.#refusedChunk = true;
    const begun = this.#acceptedMail(known(await mailAnswer));
    for (const [index, answer] of rcptAnswers.entries()) {
      if (answer !== undefined && answer !== '') this.#recordRcpt(index, known(await answer), begun);
    }
    this.#concludeChunk(known(final));
  }

  #concludeChunk(answer: Answer): void {
    const { channel } = this.#context;
    if (this.#accepted.length === 0) {
      if (isClientFailure(answer) || answer.code >= 400) return;
      channel.fail(protocolFailure('final', 'The server took a message without recipients'));
    } else if (!isClientFailure(answer) && isUnknownCommand(answer)) {
      this.#refusedChunk = true;
      const failure = chunkRefused(answer);
      channel.fail(failure);
      this.#failAll(failure);
    } else this.#concludeMessage(answer);
  }

  /** Everything up to DATA in one write. Resolves with the reply to DATA if the message may follow. */
  async #pipelined(mail: string, rcptLines: readonly (string | undefined)[]): Promise<Reply | undefined> {
    const { channel, deadlines } = this.#context;
    const lines = [mail, ...rcptLines.filter((line) => line !== undefined), 'DATA', ''];
    channel.write(lines.join('\r\n'));
    const mailAnswer = channel.expect('mail', deadlines.mailMs, mail);
    const rcptAnswers = rcptLines.map((line) => line && channel.expect('rcpt', deadlines.rcptMs, line));
    const dataAnswer = channel.expect('data', deadlines.dataMs, 'DATA');
    this.#askEarly();
    const begun = this.#acceptedMail(await mailAnswer);
    for (const [index, answer] of rcptAnswers.entries()) {
      if (answer !== undefined && answer !== '') this.#recordRcpt(index, await answer, begun);
    }
    return this.#contentExpected(await dataAnswer);
  }

  async #oneByOne(mail: string, rcptLines: readonly (string | undefined)[]): Promise<Reply | undefined> {
    const { channel, deadlines } = this.#context;
    if (!this.#acceptedMail(await channel.ask('mail', mail, deadlines.mailMs))) return undefined;
    for (const [index, line] of rcptLines.entries()) {
      if (line !== undefined) this.#recordRcpt(index, await channel.ask('rcpt', line, deadlines.rcptMs), true);
      if (channel.failure !== undefined) return undefined;
    }
    if (this.#accepted.length === 0) return undefined;
    const answer = channel.ask('data', 'DATA', deadlines.dataMs);
    this.#askEarly();
    return this.#contentExpected(await answer);
  }

  /** Asked beside the round trip of DATA, so that the answer is there when it counts. */
  #askEarly(): void {
    const { mayEnd } = this.#options;
    if (mayEnd !== undefined) void new Promise((resolve) => resolve(mayEnd())).catch(() => undefined);
  }

  #acceptedMail(answer: Answer): boolean {
    if (!isClientFailure(answer) && answer.code < 300) return true;
    this.#failAll(asFailure('mail', answer));
    return false;
  }

  /** After a refused MAIL the replies to RCPT mean nothing. */
  #recordRcpt(index: number, answer: Answer, begun: boolean): void {
    if (isClientFailure(answer)) this.#failAll(answer);
    else if (!begun) return;
    else if (answer.code < 300) this.#accepted.push(index);
    else this.#fail(index, refusal('rcpt', answer));
  }

  #contentExpected(answer: Answer): Reply | undefined {
    const { channel } = this.#context;
    if (isClientFailure(answer) || answer.code !== 354) {
      // Where no recipient was accepted, each has its own reply.
      if (this.#accepted.length > 0 || isClientFailure(answer)) this.#failAll(asFailure('data', answer));
      return undefined;
    }
    if (this.#accepted.length > 0) return answer;
    // The server expects a message without a recipient: a final dot might make it deliver an empty one.
    channel.fail(protocolFailure('data', 'The server wants a message without recipients'));
    return undefined;
  }

  async #sendContent(go: Reply): Promise<void> {
    const { channel, capabilities, deadlines, protocol } = this.#context;
    const writer = new ContentWriter(channel, capabilities, deadlines, this.#options.mayEnd);
    this.#writer = writer;
    const written = writer.write(this.#message.content);
    const whole = typeof written === 'boolean' ? written : await written;
    this.#bytes = writer.bytes;
    if (!whole) return this.#failAll(channel.failure ?? localFailure('body', `Nothing follows ${go.code}`));
    const shown = `. (${writer.bytes} bytes)`;
    if (protocol === 'lmtp') return this.#lmtpReplies(shown);
    this.#concludeMessage(await channel.expect('final', deadlines.finalMs, shown));
  }

  #concludeMessage(answer: Answer): void {
    if (isClientFailure(answer) || answer.code >= 400) return this.#failAll(asFailure('final', answer));
    this.#clean = true;
    for (const index of this.#accepted) this.#deliver(index, answer);
  }

  /** RFC 2033 §4.2: one reply for each accepted RCPT, in order. */
  async #lmtpReplies(shown: string): Promise<void> {
    const { channel, deadlines } = this.#context;
    if (deadlines.finalsMs < Infinity) channel.attempt(deadlines.finalsMs);
    const answers = this.#accepted.map(() => channel.expect('final', deadlines.finalMs, shown));
    for (const [at, index] of this.#accepted.entries()) {
      const answer = (await answers[at]) ?? localFailure('final', shown);
      if (isClientFailure(answer)) {
        this.#failure ??= answer;
        this.#fail(index, answer);
      } else if (answer.code < 300) this.#deliver(index, answer);
      else this.#fail(index, refusal('final', answer));
    }
    this.#clean = this.#failure === undefined;
  }

  #deliver(index: number, reply: Reply): void {
    const recipient = this.#message.recipients[index];
    if (recipient !== undefined) this.#settle(index, { recipient, outcome: 'delivered', reply });
  }

  #fail(index: number, failure: ClientFailure): void {
    const recipient = this.#message.recipients[index];
    if (recipient !== undefined) this.#settle(index, { recipient, outcome: 'failed', failure });
  }

  /** A failure of the transaction is one of every recipient without a result. */
  #failAll(failure: ClientFailure): void {
    this.#failure ??= failure;
    for (let index = 0; index < this.#results.length; index += 1) {
      if (this.#results[index] === undefined) this.#fail(index, failure);
    }
  }

  #settle(index: number, result: RecipientResult): void {
    if (this.#results[index] !== undefined) return;
    this.#results[index] = result;
    this.#options.settled?.(index, result);
  }

  #result(): MessageResult {
    const { recipients } = this.#message;
    return {
      recipients: this.#results.map((result, index) => result ?? unsettled(recipients[index])),
      failure: this.#failure,
      bytes: this.#bytes,
    };
  }
}

/** The outline of the content, completed from a buffer. */
export function outlineOf(content: OutgoingContent, { eightBitMime }: Capabilities): ContentOutline {
  const { source, ...outline } = content;
  if (!Buffer.isBuffer(source)) return outline;
  const eightBit = outline.eightBit ?? (eightBitMime ? undefined : hasEightBit(source));
  return { size: source.length, ...outline, ...(eightBit !== undefined && { eightBit }) };
}

function asFailure(step: 'mail' | 'data' | 'final', answer: Answer): ClientFailure {
  return isClientFailure(answer) ? answer : refusal(step, answer);
}

function unsettled(recipient: OutgoingRecipient | undefined): RecipientResult {
  const failure = localFailure('rcpt', 'The recipient was passed over');
  return { recipient: recipient ?? { address: '' }, outcome: 'failed', failure };
}
