import { asStorageProblem } from '../../disk/fault.js';
import type { SpooledMessage, SpoolWriter } from '../../spool/spool.js';
import { DataDecoder, type DataDecoderOptions } from './dot-decoder.js';
import { HeaderGuard, type HeaderLimits } from './header-guard.js';
import { replies, replyToProblem, replyToViolation } from '../protocol/replies.js';
import type { Reply } from '../protocol/reply.js';
import type { Recipient } from '../../pipeline/transaction.js';

export interface IntakeInput {
  readonly limits: Omit<DataDecoderOptions, 'lineEndings'> & HeaderLimits;
  readonly lineEndings: DataDecoderOptions['lineEndings'];
  readonly recipients: readonly Recipient[];
}

/** One message on its way from 354 to the final dot. Whatever goes wrong, the rest is read up to the dot. */
export class MessageIntake {
  readonly #writer: SpoolWriter;
  readonly #decoder: DataDecoder;
  readonly #header: HeaderGuard;
  readonly #mostBytes: number;
  #refusal: Reply | undefined;
  #discarded = false;

  constructor(writer: SpoolWriter, { limits, lineEndings, recipients }: IntakeInput) {
    const { lineBytes, messageBytes } = limits;
    this.#writer = writer;
    this.#decoder = new DataDecoder({ lineEndings, lineBytes, messageBytes });
    this.#header = new HeaderGuard(limits, recipients);
    this.#mostBytes = messageBytes + Math.ceil(messageBytes / 4) + 5;
  }

  get ended(): boolean {
    return this.#decoder.ended;
  }

  /** What followed the final dot. */
  get rest(): Buffer {
    return this.#decoder.rest;
  }

  /** A line has more octets than RFC 5321 §4.5.3.1.6 allows. */
  get hasLongLine(): boolean {
    return this.#decoder.hasLongLine;
  }

  /** Bytes over the wire. */
  get received(): number {
    return this.#decoder.received;
  }

  /** Bytes of the message. */
  get size(): number {
    return this.#decoder.size;
  }

  /** So much more came than is allowed that waiting for the dot is over. */
  get overrun(): boolean {
    return this.#decoder.received > this.#mostBytes;
  }

  /** A promise is the back-pressure of the disk; it never rejects. */
  write(chunk: Buffer): Promise<void> | void {
    const decoded = this.#decoder.write(chunk);
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

  /** The message, or why it is refused. Never rejects. */
  async finish(): Promise<{ readonly message: SpooledMessage } | { readonly refusal: Reply }> {
    try {
      if (this.#refusal === undefined) return { message: await this.#writer.finish() };
    } catch (error) {
      this.#fail(error);
    }
    return { refusal: this.#refusal ?? replies.fault };
  }

  /** Nothing of it is kept. */
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
    // What the spool cannot remove now it removes at its next start.
    this.#writer.discard().catch(() => undefined);
  }
}
