import { asStorageProblem } from '../../disk/fault.js';
import type { SpooledMessage, SpoolWriter } from '../../spool/spool.js';
import { messageIdOf } from '../../mime/header.js';
import { maxLineOctets } from '../../mime/transfer-encoding.js';
import type { Answer } from './answer.js';
import type { DeliveryResult } from '../../pipeline/chain.js';
import type { EngineSettings, ListenerGround } from './listener-ground.js';
import { withShortLines } from './long-lines.js';
import { MessageIntake } from './message-intake.js';
import { Patience } from '../../pipeline/patience.js';
import { replies, replyToProblem } from '../protocol/replies.js';
import type { Reply } from '../protocol/reply.js';
import type { OpenTransaction } from './session-state.js';
import { receivedField, returnPathLine } from './trace.js';
import type { MessageResult } from './listener-meter.js';

/** In one line of the log. */
const maxLoggedRecipients = 10;

/** From DATA to the answer to the final dot. */
export class DataPhase {
  readonly #ground: ListenerGround;
  readonly #transaction: OpenTransaction;
  readonly #startedMs: number;
  #intake: MessageIntake | undefined;
  #create: (() => SpoolWriter | Promise<SpoolWriter>) | undefined;
  #aborted = false;
  #stalledMs = 0;
  #delivering = false;
  #messageId: string | undefined;
  readonly #patience = new Patience();

  constructor(ground: ListenerGround, transaction: OpenTransaction) {
    this.#ground = ground;
    this.#transaction = transaction;
    this.#startedMs = ground.clock.monotonic();
  }

  /** The answer to DATA: `start`, or a refusal when there is no room for a message. Never throws or rejects. */
  open(start: Reply): Answer {
    const { spool, hostname, clock } = this.#ground;
    const { reversePath } = this.#transaction;
    try {
      const trace = receivedField(this.#transaction, hostname, new Date(clock.now()));
      this.#create = () => spool.create(returnPathLine(reversePath), trace);
      const writer = this.#create();
      if (!(writer instanceof Promise)) return this.#take(writer, start);
      return writer.then((opened) => this.#take(opened, start)).catch((error: unknown) => this.#noRoom(error));
    } catch (error) {
      return this.#noRoom(error);
    }
  }

  #noRoom(error: unknown): Reply {
    const { id, session } = this.#transaction;
    this.#ground.log.error({ err: error, session: session.id, transaction: id }, 'no message can be spooled');
    return replyToProblem(asStorageProblem(error));
  }

  get ended(): boolean {
    return this.#intake?.ended === true;
  }

  get rest(): Buffer {
    return this.#intake?.rest ?? Buffer.alloc(0);
  }

  /** The client has sent so much more than is allowed that it is not listened to any longer. */
  get overrun(): boolean {
    return this.#intake?.overrun === true;
  }

  /** A target may have made the message durable: the answer is not known before it says so. */
  get delivering(): boolean {
    return this.#delivering;
  }

  /** Asks a delivery for its answer now. False when there is none to ask, or it was asked before. */
  giveUp(): boolean {
    if (!this.#delivering || this.#patience.over) return false;
    this.#patience.end();
    return true;
  }

  /** True when the message comes more slowly than the limits allow; our own disk's time does not count. */
  tooSlow(nowMs: number): boolean {
    const { dataGraceSeconds, dataBytesPerSecond } = this.#ground.settings().limits;
    const seconds = (nowMs - this.#startedMs - this.#stalledMs) / 1000;
    return seconds > dataGraceSeconds && (this.#intake?.received ?? 0) < seconds * dataBytesPerSecond;
  }

  /** A promise while the disk is behind. */
  write(chunk: Buffer): Promise<void> | void {
    const stalled = this.#intake?.write(chunk);
    if (stalled === undefined) return;
    return this.#timeStall(stalled);
  }

  async #timeStall(stalled: Promise<void>): Promise<void> {
    const since = this.#ground.clock.monotonic();
    await stalled;
    this.#stalledMs += this.#ground.clock.monotonic() - since;
  }

  /** The client went away: nothing is kept, unless it is being delivered already. */
  abort(): void {
    if (this.#aborted || this.#delivering || this.ended) return;
    this.#aborted = true;
    this.#intake?.abort();
    this.#ground.meter.message('aborted', this.#seconds());
  }

  /** The final dot was read: one reply, or over LMTP one for each recipient (RFC 2033 §4.2). Never rejects. */
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

  /** The message as it is delivered, or why it is refused. */
  async #received(): Promise<{ readonly message: SpooledMessage } | { readonly refusal: Reply }> {
    const received = (await this.#intake?.finish()) ?? { refusal: replies.fault };
    const isEncoded = this.#longLines === 'encode' && this.#intake?.hasLongLine === true;
    if ('refusal' in received || !isEncoded || this.#create === undefined) return received;
    try {
      return await withShortLines(received.message, this.#create);
    } catch (error) {
      return { refusal: this.#noRoom(error) };
    }
  }

  get #longLines(): EngineSettings['longLines'] {
    return this.#ground.listener.mode === 'submission' ? this.#ground.settings().longLines : 'pass';
  }

  get #lmtp(): boolean {
    return this.#ground.listener.mode === 'lmtp';
  }

  #take(writer: SpoolWriter, start: Reply): Reply {
    const { limits, lineEndings } = this.#ground.settings();
    const lineBytes = this.#longLines === 'refuse' ? Math.min(limits.lineBytes, maxLineOctets) : limits.lineBytes;
    const { recipients } = this.#transaction;
    this.#intake = new MessageIntake(writer, { limits: { ...limits, lineBytes }, lineEndings, recipients });
    if (this.#aborted) this.#intake.abort();
    return start;
  }

  async #deliver(message: SpooledMessage): Promise<DeliveryResult> {
    const { chain, recipients } = this.#transaction;
    this.#messageId = messageIdOf(message.head);
    try {
      const result = await chain.deliver(this.#transaction, message, this.#patience);
      if (!this.#lmtp || result.replies.length === recipients.length) return result;
      this.#ground.log.error({ transaction: this.#transaction.id }, 'a delivery answered for too few recipients');
    } catch (error) {
      this.#ground.log.error({ err: error, transaction: this.#transaction.id }, 'a delivery failed');
    }
    return { summary: replies.fault, replies: recipients.map(() => replies.fault) };
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
    const { id, session, chain, recipients } = this.#transaction;
    const size = this.#intake?.size ?? 0;
    const ms = this.#ground.clock.monotonic() - this.#startedMs;
    this.#ground.meter.message('accepted', ms / 1000);
    this.#ground.log.info(
      {
        session: session.id,
        transaction: id,
        sender: this.#transaction.reversePath?.address ?? '<>',
        recipients: recipients.length,
        to: recipients.slice(0, maxLoggedRecipients).map(({ address, hop }) => ({
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
    chain.emit('accepted', { transaction: this.#transaction, size, ms });
  }

  #note(refusal: Reply): void {
    const { code, status, lines } = refusal;
    const { id, session, chain, reversePath } = this.#transaction;
    const result: MessageResult = code < 500 ? 'deferred' : 'refused';
    this.#ground.meter.message(result, this.#seconds());
    this.#ground.log.info(
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
    chain.emit('rejected', {
      session,
      stage: 'message',
      code,
      status: status ?? `${code < 500 ? 4 : 5}.0.0`,
      text: lines.join(' '),
      reversePath,
    });
  }

  #seconds(): number {
    return (this.#ground.clock.monotonic() - this.#startedMs) / 1000;
  }
}
