import type { Capabilities } from './capabilities.js';
import type { Channel } from './channel.js';
import { DataEncoder } from './data-encoder.js';
import { noEightBit } from './envelope-line.js';
import { localFailure } from './failure.js';
import type { OutgoingContent } from './message.js';

/** What may wait to be sent at a time, and what one block deadline is for. */
const blockBytes = 64 * 1024;

/** Writes the text of a message and its dot as fast as the server takes it. */
export class ContentWriter {
  readonly #channel: Channel;
  readonly #blockMs: number;
  readonly #encoder = new DataEncoder();
  readonly #sevenBit: boolean;

  constructor(channel: Channel, capabilities: Capabilities, blockMs: number) {
    this.#channel = channel;
    this.#blockMs = blockMs;
    this.#sevenBit = !capabilities.eightBitMime;
  }

  /** Bytes of the message that were written. */
  get bytes(): number {
    return this.#encoder.taken;
  }

  /**
   * Resolves with true when the dot is written: then a reply is to be expected at once. With false when the channel has failed.
   * A stream that fails, or an 8-bit byte for a 7-bit server, breaks the connection without a dot: the server forgets the message.
   */
  write({ source, eightBit }: OutgoingContent): boolean | Promise<boolean> {
    const watch = this.#sevenBit && eightBit !== false;
    this.#channel.perform('body', this.#blockMs);
    if (!Buffer.isBuffer(source)) return this.#stream(source(), watch);
    if (source.length > blockBytes) return this.#stream([source], watch);
    this.#channel.cork();
    const whole = this.#put(source, watch) && this.#end();
    this.#channel.uncork();
    return whole;
  }

  async #stream(source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, watch: boolean): Promise<boolean> {
    try {
      for await (const chunk of this.#untilFailure(source)) {
        const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
        for (let at = 0; at < bytes.length; at += blockBytes) {
          this.#channel.perform('body', this.#blockMs);
          if (!this.#put(bytes.subarray(at, at + blockBytes), watch)) return false;
          await this.#channel.drain();
        }
      }
    } catch (error) {
      this.#channel.fail(localFailure('body', 'The message could not be read', error));
    }
    return this.#end();
  }

  /** The chunks, but none any more once the channel has failed, even if the source never gives another. */
  async *#untilFailure(source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const iterator = Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
    const failed = this.#channel.failed().then(() => undefined);
    for (;;) {
      const next = await Promise.race([iterator.next(), failed]);
      if (next === undefined || this.#channel.failure !== undefined) break;
      if (next.done === true) return;
      yield next.value;
    }
    // What is stuck in its source cannot be waited for.
    void Promise.resolve(iterator.return?.()).catch(() => undefined);
  }

  #put(bytes: Buffer, watch: boolean): boolean {
    const encoded = this.#encoder.encode(bytes);
    if (watch && this.#encoder.eightBit) this.#channel.fail(noEightBit('body'));
    if (this.#channel.failure !== undefined) return false;
    this.#channel.write(encoded);
    return true;
  }

  #end(): boolean {
    if (this.#channel.failure !== undefined) return false;
    this.#channel.write(this.#encoder.end());
    return true;
  }
}
