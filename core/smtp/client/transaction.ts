import { isAscii } from '../../mime/character.js';
import type { Reply } from '../protocol/reply.js';
import { type Capabilities, mailLine, rcptLine } from './envelope.js';
import type { Answer, Channel } from './channel.js';
import { ContentWriter, hasEightBit } from './content.js';
import type { ClientDeadlines } from './destination.js';
import { isClientFailure, localFailure, protocolFailure, refusal, type ClientFailure } from './failure.js';
import type {
  MessageResult,
  OutgoingContent,
  OutgoingMessage,
  OutgoingRecipient,
  RecipientResult,
  SendOptions,
} from './message.js';
import type { ContentOutline } from './session.js';

/** What a transaction runs on. */
export interface TransactionGround {
  readonly channel: Channel;
  readonly capabilities: Capabilities;
  readonly deadlines: ClientDeadlines;
  readonly protocol: 'smtp' | 'lmtp';
}

/** One message from MAIL to its last reply, in as few writes as the server allows (RFC 2920). */
export class Transaction {
  readonly #ground: TransactionGround;
  readonly #message: OutgoingMessage;
  readonly #settled: SendOptions['settled'];
  readonly #results: (RecipientResult | undefined)[];
  /** Indexes of those whose RCPT got 2yz. */
  readonly #accepted: number[] = [];
  #failure: ClientFailure | undefined;
  #bytes = 0;
  #clean = false;

  constructor(ground: TransactionGround, message: OutgoingMessage, settled: SendOptions['settled']) {
    this.#ground = ground;
    this.#message = message;
    this.#settled = settled;
    this.#results = message.recipients.map(() => undefined);
  }

  /** True when another may follow: nothing was refused to this one as a whole, and every reply was read. */
  get clean(): boolean {
    return this.#clean;
  }

  async run(): Promise<MessageResult> {
    const rcptLines = this.#rcptLines();
    const line = this.#mailLine();
    if (isClientFailure(line)) this.#failAll(line);
    // Those that cannot be named to this server are settled already.
    this.#clean = isClientFailure(line) || rcptLines.every((one) => one === undefined);
    if (!this.#clean && !isClientFailure(line)) await this.#speak(line, rcptLines);
    return this.#result();
  }

  #rcptLines(): readonly (string | undefined)[] {
    return this.#message.recipients.map((recipient, index) => {
      const line = rcptLine(recipient, this.#ground.capabilities);
      if (!isClientFailure(line)) return line;
      this.#fail(index, line);
      return undefined;
    });
  }

  #mailLine(): string | ClientFailure {
    const { sender, recipients, content } = this.#message;
    const { capabilities } = this.#ground;
    const internationalRecipient = capabilities.smtputf8 && recipients.some(({ address }) => !isAscii(address));
    return mailLine(sender, { ...outlineOf(content, capabilities), internationalRecipient }, capabilities);
  }

  async #speak(mail: string, rcptLines: readonly (string | undefined)[]): Promise<void> {
    const { pipelining } = this.#ground.capabilities;
    const data = pipelining ? await this.#ahead(mail, rcptLines) : await this.#inTurn(mail, rcptLines);
    if (data !== undefined) await this.#content(data);
  }

  /** Everything up to DATA in one write; the reply to DATA comes out if the message may follow. */
  async #ahead(mail: string, rcptLines: readonly (string | undefined)[]): Promise<Reply | undefined> {
    const { channel, deadlines } = this.#ground;
    channel.cork();
    const mailAnswer = channel.ask('mail', mail, deadlines.mailMs);
    const rcptAnswers = rcptLines.map((line) => line && channel.ask('rcpt', line, deadlines.rcptMs));
    const dataAnswer = channel.ask('data', 'DATA', deadlines.dataMs);
    channel.uncork();
    const begun = this.#begun(await mailAnswer);
    for (const [index, answer] of rcptAnswers.entries()) {
      if (answer !== undefined && answer !== '') this.#hear(index, await answer, begun);
    }
    return this.#mayFollow(await dataAnswer);
  }

  async #inTurn(mail: string, rcptLines: readonly (string | undefined)[]): Promise<Reply | undefined> {
    const { channel, deadlines } = this.#ground;
    if (!this.#begun(await channel.ask('mail', mail, deadlines.mailMs))) return undefined;
    for (const [index, line] of rcptLines.entries()) {
      if (line !== undefined) this.#hear(index, await channel.ask('rcpt', line, deadlines.rcptMs), true);
      if (channel.failure !== undefined) return undefined;
    }
    if (this.#accepted.length === 0) return undefined;
    return this.#mayFollow(await channel.ask('data', 'DATA', deadlines.dataMs));
  }

  #begun(answer: Answer): boolean {
    if (!isClientFailure(answer) && answer.code < 300) return true;
    this.#failAll(asFailure('mail', answer));
    return false;
  }

  /** Behind a refused MAIL the answers to RCPT say nothing. */
  #hear(index: number, answer: Answer, begun: boolean): void {
    if (isClientFailure(answer)) this.#failAll(answer);
    else if (!begun) return;
    else if (answer.code < 300) this.#accepted.push(index);
    else this.#fail(index, refusal('rcpt', answer));
  }

  #mayFollow(answer: Answer): Reply | undefined {
    const { channel } = this.#ground;
    if (isClientFailure(answer) || answer.code !== 354) {
      // Where nobody was accepted, each has a reply of his own.
      if (this.#accepted.length > 0 || isClientFailure(answer)) this.#failAll(asFailure('data', answer));
      return undefined;
    }
    if (this.#accepted.length > 0) return answer;
    // The server wants a message that it has no recipient for: a dot might make it deliver an empty one.
    channel.fail(protocolFailure('data', 'The server wants a message without recipients'));
    return undefined;
  }

  async #content(go: Reply): Promise<void> {
    const { channel, capabilities, deadlines, protocol } = this.#ground;
    const writer = new ContentWriter(channel, capabilities, deadlines.blockMs);
    const written = writer.write(this.#message.content);
    const whole = typeof written === 'boolean' ? written : await written;
    this.#bytes = writer.bytes;
    if (!whole) return this.#failAll(channel.failure ?? localFailure('body', `Nothing follows ${go.code}`));
    const shown = `. (${writer.bytes} bytes)`;
    if (protocol === 'lmtp') return this.#each(shown);
    const answer = await channel.expect('final', deadlines.finalMs, shown);
    if (isClientFailure(answer) || answer.code >= 400) return this.#failAll(asFailure('final', answer));
    this.#clean = true;
    for (const index of this.#accepted) this.#deliver(index, answer);
  }

  /** RFC 2033 §4.2: one reply for each accepted RCPT, in their order. */
  async #each(shown: string): Promise<void> {
    const { channel, deadlines } = this.#ground;
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

  /** What happens to the transaction happens to all that are not settled. */
  #failAll(failure: ClientFailure): void {
    this.#failure ??= failure;
    for (let index = 0; index < this.#results.length; index += 1) {
      if (this.#results[index] === undefined) this.#fail(index, failure);
    }
  }

  #settle(index: number, result: RecipientResult): void {
    if (this.#results[index] !== undefined) return;
    this.#results[index] = result;
    this.#settled?.(index, result);
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

/** With what can be known of a buffer without being told. */
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
