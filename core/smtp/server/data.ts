import { asStorageProblem } from '../../disk/fault.js';
import { mailDate, messageIdOf, returnPathLine } from '../../mime/header.js';
import { type LongLinePolicy, withShortLines } from '../../pipeline/long-lines.js';
import { maxLineOctets } from '../../mime/transfer-encoding.js';
import { DeliveryDeadline } from '../../pipeline/commit.js';
import type { DeliveryResult } from '../../pipeline/transaction-pipeline.js';
import type { Recipient, SmtpSession, Transaction } from '../../pipeline/transaction.js';
import type { SpooledMessage, SpoolWriter } from '../../spool/spool.js';
import { replies, type Reply, replyToProblem, replyToViolation } from '../protocol/replies.js';
import { DataDecoder, type DataDecoderOptions } from './dot-decoder.js';
import type { SmtpLimits } from './limits.js';
import type { ListenerContext } from './listener-context.js';
import type { MeteredResult } from './meter.js';
import type { OpenTransaction, SessionReply } from './session-state.js';

/** Maximum in one log line. */
const maxLoggedRecipients = 10;

/** From DATA to the reply to the final dot, or from the first BDAT to the reply to the last. */
export class DataPhase {
  readonly #context: ListenerContext;
  readonly #transaction: OpenTransaction;
  readonly #startedMs: number;
  #intake: MessageIntake | undefined;
  /** Why there is no intake. */
  #unopened: Reply | undefined;
  #octets = 0;
  #aborted = false;
  #isNoted = false;
  #stalledMs = 0;
  #delivering = false;
  #messageId: string | undefined;
  readonly #deadline = new DeliveryDeadline();

  constructor(context: ListenerContext, transaction: OpenTransaction) {
    this.#context = context;
    this.#transaction = transaction;
    this.#startedMs = context.clock.monotonic();
  }

  /** The reply to DATA or the first BDAT: `start`, or a refusal when there is no space. Never throws or rejects. */
  open(start: Reply): SessionReply {
    const { spool, hostname, clock } = this.#context;
    const { reversePath } = this.#transaction;
    try {
      const trace = receivedField(this.#transaction, hostname, new Date(clock.now()));
      const writer = spool.create(returnPathLine(reversePath), trace);
      if (!(writer instanceof Promise)) return this.#beginWriting(writer, start);
      return writer.then((opened) => this.#beginWriting(opened, start)).catch((error: unknown) => this.#noRoom(error));
    } catch (error) {
      return this.#noRoom(error);
    }
  }

  #noRoom(error: unknown): Reply {
    const { id, session } = this.#transaction;
    this.#context.log.error({ err: error, session: session.id, transaction: id }, 'no message can be spooled');
    this.#unopened = replyToProblem(asStorageProblem(error));
    return this.#unopened;
  }

  get ended(): boolean {
    return this.#intake?.ended === true;
  }

  get rest(): Buffer {
    return this.#intake?.rest ?? Buffer.alloc(0);
  }

  /** The client exceeds the size so far that the connection is cut; `coming`: octets that it has announced. */
  overrun(coming = 0): boolean {
    return this.#octets + coming > maxBytesOf(this.#context.settings().limits);
  }

  /** A target may have made the message durable: only it knows the reply. */
  get delivering(): boolean {
    return this.#delivering;
  }

  /** Demands the reply of a delivery now. False when there is none, or it was demanded before. */
  demandReply(): boolean {
    if (!this.#delivering || this.#deadline.over) return false;
    this.#deadline.end();
    return true;
  }

  /** True when the message arrives more slowly than the limits allow; time of the disk does not count. */
  tooSlow(nowMs: number): boolean {
    const { dataGraceSeconds, dataBytesPerSecond } = this.#context.settings().limits;
    const seconds = (nowMs - this.#startedMs - this.#stalledMs) / 1000;
    return seconds > dataGraceSeconds && this.#octets < seconds * dataBytesPerSecond;
  }

  /** A promise while the disk is slower than the client. */
  write(chunk: Buffer): Promise<void> | void {
    this.#octets += chunk.length;
    const stalled = this.#intake?.write(chunk);
    if (stalled === undefined) return;
    return this.#timeStall(stalled);
  }

  async #timeStall(stalled: Promise<void>): Promise<void> {
    const since = this.#context.clock.monotonic();
    await stalled;
    this.#stalledMs += this.#context.clock.monotonic() - since;
  }

  /** The client disconnected: nothing is stored, unless the message is being delivered already. */
  abort(): void {
    if (this.#aborted || this.#delivering || this.ended) return;
    this.#aborted = true;
    this.#intake?.abort();
    if (!this.#isNoted) this.#context.meter.message('aborted', this.#seconds());
  }

  /** A chunk was read that is not the last: its refusal, if any. */
  endChunk(): Reply | undefined {
    const refusal = this.#unopened ?? this.#intake?.refusal;
    if (refusal !== undefined) this.#note(refusal);
    return refusal;
  }

  /** The last chunk was read. */
  endText(): void {
    this.#intake?.end();
  }

  /** The final dot or the last chunk was read: one reply, or over LMTP one for each recipient (RFC 2033 §4.2). Never rejects. */
  async finish(): Promise<readonly Reply[]> {
    const received = await this.#received();
    if ('refusal' in received) return this.#refused(received.refusal);
    this.#delivering = true;
    const { message } = received;
    const result = await this.#deliver(message);
    const answers = this.#lmtp ? result.replies : [result.summary];
    this.#record(result);
    return answers;
  }

  /** The message to deliver, or the refusal. */
  async #received(): Promise<{ readonly message: SpooledMessage } | { readonly refusal: Reply }> {
    const received = (await this.#intake?.finish()) ?? { refusal: this.#unopened ?? replies.fault };
    const isEncoded = this.#longLines === 'encode' && this.#intake?.hasLongLine === true;
    if ('refusal' in received || !isEncoded) return received;
    try {
      return await withShortLines(received.message);
    } catch (error) {
      return { refusal: this.#noRoom(error) };
    }
  }

  get #longLines(): LongLinePolicy {
    return this.#context.listener.mode === 'submission' ? this.#context.settings().longLines : 'pass';
  }

  get #lmtp(): boolean {
    return this.#context.listener.mode === 'lmtp';
  }

  #beginWriting(writer: SpoolWriter, start: Reply): Reply {
    const { limits, lineEndings } = this.#context.settings();
    const lineBytes = this.#longLines === 'refuse' ? Math.min(limits.lineBytes, maxLineOctets) : limits.lineBytes;
    const { recipients, isChunked } = this.#transaction;
    this.#intake = new MessageIntake(writer, { limits, lineBytes, lineEndings, isChunked, recipients });
    if (this.#aborted) this.#intake.abort();
    return start;
  }

  async #deliver(message: SpooledMessage): Promise<DeliveryResult> {
    const { pipeline, recipients } = this.#transaction;
    this.#messageId = messageIdOf(message.head);
    try {
      const result = await pipeline.deliver(this.#transaction, message, this.#deadline);
      if (!this.#lmtp || result.replies.length === recipients.length) return result;
      this.#context.log.error({ transaction: this.#transaction.id }, 'a delivery answered for too few recipients');
    } catch (error) {
      this.#context.log.error({ err: error, transaction: this.#transaction.id }, 'a delivery failed');
    }
    return { summary: replies.fault, replies: recipients.map(() => replies.fault), recipients: [] };
  }

  #refused(refusal: Reply): readonly Reply[] {
    this.#note(refusal);
    return this.#lmtp ? this.#transaction.recipients.map(() => refusal) : [refusal];
  }

  #record(result: DeliveryResult): void {
    const taken = this.#lmtp ? result.replies.find(({ code }) => code < 300) : result.summary;
    if (taken === undefined || taken.code >= 300) {
      this.#note(result.summary);
      return;
    }
    const { id, session, pipeline, recipients } = this.#transaction;
    const size = this.#intake?.size ?? 0;
    const ms = this.#context.clock.monotonic() - this.#startedMs;
    this.#context.meter.message('accepted', ms / 1000);
    this.#context.log.info(
      {
        session: session.id,
        transaction: id,
        sender: this.#transaction.reversePath?.address ?? '<>',
        recipients: recipients.length,
        to: result.recipients.slice(0, maxLoggedRecipients).map(({ address, hop }) => ({
          recipient: address.address,
          target: hop?.target,
          destination: hop?.destination,
        })),
        messageId: this.#messageId,
        size,
        ms: Math.round(ms),
      },
      'accepted',
    );
    pipeline.emit('accepted', {
      transaction: this.#transaction,
      recipients: result.recipients,
      size,
      ms,
      messageId: this.#messageId,
    });
  }

  #note(refusal: Reply): void {
    if (this.#isNoted) return;
    this.#isNoted = true;
    const { code, status, lines } = refusal;
    const { id, session, pipeline, reversePath } = this.#transaction;
    const result: MeteredResult = code < 500 ? 'deferred' : 'refused';
    this.#context.meter.message(result, this.#seconds());
    this.#context.log.info(
      {
        session: session.id,
        transaction: id,
        remote: session.remote.address,
        stage: 'message',
        sender: reversePath?.address ?? '<>',
        messageId: this.#messageId,
        code,
        status,
        reason: lines.join(' '),
      },
      'rejected',
    );
    pipeline.emit('rejected', {
      session,
      stage: 'message',
      code,
      status: status ?? `${code < 500 ? 4 : 5}.0.0`,
      text: lines.join(' '),
      reversePath,
    });
  }

  #seconds(): number {
    return (this.#context.clock.monotonic() - this.#startedMs) / 1000;
  }
}

interface IntakeInput {
  readonly limits: Pick<DataDecoderOptions, 'messageBytes'> & HeaderLimits;
  readonly lineBytes: number;
  readonly lineEndings: DataDecoderOptions['lineEndings'];
  readonly isChunked: boolean;
  readonly recipients: readonly Recipient[];
}

/** Octets of a message that are read before the connection is cut. */
export const maxBytesOf = ({ messageBytes }: Pick<SmtpLimits, 'messageBytes'>): number =>
  messageBytes + Math.ceil(messageBytes / 4) + 5;

/** Reads the text of one message; after an error it discards the rest of it. */
class MessageIntake {
  readonly #writer: SpoolWriter;
  readonly #decoder: DataDecoder;
  readonly #header: HeaderGuard;
  #refusal: Reply | undefined;
  #discarded = false;

  constructor(writer: SpoolWriter, { limits, lineBytes, lineEndings, isChunked, recipients }: IntakeInput) {
    const { messageBytes } = limits;
    this.#writer = writer;
    this.#decoder = new DataDecoder({ lineEndings, lineBytes, messageBytes, isChunked });
    this.#header = new HeaderGuard(limits, recipients);
  }

  get ended(): boolean {
    return this.#decoder.ended;
  }

  /** Input after the final dot. */
  get rest(): Buffer {
    return this.#decoder.rest;
  }

  /** A line has more octets than RFC 5321 §4.5.3.1.6 allows. */
  get hasLongLine(): boolean {
    return this.#decoder.hasLongLine;
  }

  /** Bytes of the decoded message. */
  get size(): number {
    return this.#decoder.size;
  }

  get refusal(): Reply | undefined {
    return this.#refusal;
  }

  /** A promise is back-pressure of the disk; it never rejects. */
  write(chunk: Buffer): Promise<void> | void {
    return this.#take(this.#decoder.write(chunk));
  }

  /** The text ends here, without a dot. */
  end(): void {
    void this.#take(this.#decoder.end());
  }

  #take(decoded: Buffer): Promise<void> | void {
    if (this.#refusal !== undefined) return;
    this.#header.add(decoded);
    if (this.#decoder.violation !== undefined) return this.#refuse(replyToViolation(this.#decoder.violation));
    if (this.#header.violation !== undefined) {
      return this.#refuse(this.#header.violation === 'loop' ? replies.hopLoop : replies.headerTooLarge);
    }
    if (decoded.length === 0) return;
    try {
      return this.#writer.write(decoded)?.catch((error: unknown) => this.#fail(error));
    } catch (error) {
      this.#fail(error);
    }
  }

  /** The message, or the refusal. Never rejects. */
  async finish(): Promise<{ readonly message: SpooledMessage } | { readonly refusal: Reply }> {
    try {
      if (this.#refusal === undefined) return { message: await this.#writer.finish() };
    } catch (error) {
      this.#fail(error);
    }
    return { refusal: this.#refusal ?? replies.fault };
  }

  /** Discards it. */
  abort(): void {
    this.#discard();
  }

  #fail(error: unknown): void {
    this.#refuse(replyToProblem(asStorageProblem(error)));
  }

  #refuse(refusal: Reply): void {
    this.#refusal ??= refusal;
    this.#discard();
  }

  #discard(): void {
    if (this.#discarded) return;
    this.#discarded = true;
    // Files that the spool cannot remove now are removed at its next start.
    this.#writer.discard().catch(() => undefined);
  }
}

interface HeaderLimits {
  readonly headerFields: number;
  readonly headerBytes: number;
  /** Number of Received header fields. */
  readonly hops: number;
}

type HeaderViolation = 'header-too-large' | 'loop';

/** Inspects the header of a message as it streams: its size, and mail loops. */
export class HeaderGuard {
  readonly #limits: HeaderLimits;
  readonly #recipients: readonly Recipient[];
  /** Lower case. A message that was already delivered to one of them is in a loop. */
  #addresses: ReadonlySet<string> | undefined;
  #done = false;
  #line = '';
  #bytes = 0;
  #fields = 0;
  #hops = 0;
  #violation: HeaderViolation | undefined;

  constructor(limits: HeaderLimits, recipients: readonly Recipient[]) {
    this.#limits = limits;
    this.#recipients = recipients;
  }

  get violation(): HeaderViolation | undefined {
    return this.#violation;
  }

  /** Takes decoded text with CRLF line ends; the body after the header costs nothing. */
  add(chunk: Buffer): void {
    let at = 0;
    while (!this.#done && at < chunk.length) {
      const end = chunk.indexOf(10, at);
      const to = end < 0 ? chunk.length : end + 1;
      this.#line += chunk.toString('latin1', at, to);
      this.#bytes += to - at;
      at = to;
      if (this.#bytes > this.#limits.headerBytes) this.#refuse('header-too-large');
      else if (end >= 0) this.#endLine();
    }
  }

  #endLine(): void {
    const line = this.#line;
    this.#line = '';
    if (line.startsWith(' ') || line.startsWith('\t')) return;
    const colon = line.indexOf(':');
    // An empty line, or one that is no field: the body begins.
    if (colon < 0) {
      this.#done = true;
      return;
    }
    this.#fields += 1;
    if (this.#fields > this.#limits.headerFields) this.#refuse('header-too-large');
    const name = line.slice(0, colon).trimEnd().toLowerCase();
    if (name === 'received') {
      this.#hops += 1;
      if (this.#hops > this.#limits.hops) this.#refuse('loop');
    } else if (name === 'delivered-to' && this.#isRecipient(line.slice(colon + 1))) {
      this.#refuse('loop');
    }
  }

  #isRecipient(text: string): boolean {
    this.#addresses ??= new Set(this.#recipients.map(({ address }) => address.address.toLowerCase()));
    return this.#addresses.has(text.trim().toLowerCase());
  }

  #refuse(violation: HeaderViolation): void {
    this.#violation ??= violation;
    this.#done = true;
    this.#line = '';
  }
}

/** The part of a transaction that the trace fields name. */
export type TracedTransaction = Pick<Transaction, 'id' | 'recipients' | 'smtputf8'> & {
  readonly session: Pick<SmtpSession, 'listener' | 'remote' | 'hello' | 'tls' | 'user'>;
};

/**
 * The `Received:` field of this hop, folded, with its CRLFs (RFC 5321 §4.4). Names the recipient only when there is
 * just one, to keep Bcc private, and never the authenticated user.
 */
export function receivedField(transaction: TracedTransaction, hostname: string, date: Date): Buffer {
  const { session, recipients, id } = transaction;
  const [first, ...others] = recipients;
  const lines = [
    `Received: from ${domainOf(session.hello?.name)} (${addressLiteral(session.remote.address)})`,
    `by ${hostname} with ${protocolOf(transaction)} id ${id}`,
    ...(first !== undefined && others.length === 0 ? [`for <${first.address.address}>`] : []),
  ];
  return Buffer.from(`${lines.join('\r\n\t')};\r\n\t${mailDate(date)}\r\n`);
}

/** Protocol types of RFC 3848 and RFC 6531 §4.3. */
function protocolOf({ session, smtputf8 }: TracedTransaction): string {
  if (session.hello?.verb === 'HELO') return 'SMTP';
  const security = `${session.tls === undefined ? '' : 'S'}${session.user === undefined ? '' : 'A'}`;
  const isLmtp = session.listener.mode === 'lmtp';
  if (smtputf8) return `UTF8${isLmtp ? 'LMTP' : 'SMTP'}${security}`;
  return `${isLmtp ? 'LMTP' : 'ESMTP'}${security}`;
}

/** The client's EHLO name, if valid in a header field: a name, an address or an address literal. */
function domainOf(hello: string | undefined): string {
  if (hello === undefined) return 'unknown';
  return /^\[?[\w.:-]{1,255}\]?$/.test(hello) ? hello : 'invalid';
}

function addressLiteral(ip: string): string {
  return ip.includes(':') ? `[IPv6:${ip}]` : `[${ip}]`;
}
