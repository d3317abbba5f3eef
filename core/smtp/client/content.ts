import { isAscii } from 'node:buffer';
import { ifPermitted } from '../../concurrency.js';
import { type Capabilities, noEightBit } from './envelope.js';
import type { Channel } from './channel.js';
import { localFailure, withdrawnFailure } from './failure.js';
import type { OutgoingContent, SendOptions } from './message.js';
import type { ClientDeadlines } from './remote-server.js';

/** Maximum bytes in the socket's buffer; also the size of a block for `blockMs`. */
const blockBytes = 64 * 1024;
/** Bytes of a message with its dot that the system takes at once, even on a new connection. */
const atOnceBytes = 16 * 1024;

/** Writes a message and its final dot as fast as the server accepts them. */
export class ContentWriter {
  readonly #channel: Channel;
  readonly #deadlines: ClientDeadlines;
  readonly #mayEnd: SendOptions['mayEnd'];
  readonly #encoder = new DataEncoder();
  readonly #sevenBit: boolean;
  #ended = false;

  constructor(
    channel: Channel,
    capabilities: Capabilities,
    deadlines: ClientDeadlines,
    mayEnd?: SendOptions['mayEnd'],
  ) {
    this.#channel = channel;
    this.#deadlines = deadlines;
    this.#mayEnd = mayEnd;
    this.#sevenBit = !capabilities.eightBitMime;
  }

  /** Bytes of the message written so far. */
  get bytes(): number {
    return this.#encoder.taken;
  }

  /** The final dot was handed to the system. */
  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Resolves with true when the final dot is written, with false when the channel has failed. A failing stream, or an
   * 8-bit byte for a server without 8BITMIME, breaks the connection before the dot, so that the server discards the
   * message; so does a caller that does not let it end.
   */
  write({ source, eightBit }: OutgoingContent): boolean | Promise<boolean> {
    const watch = this.#sevenBit && eightBit !== false;
    this.#channel.perform('body', this.#deadlines.blockMs);
    if (!Buffer.isBuffer(source)) return this.#stream(source(), watch);
    const most = this.#mayEnd === undefined ? blockBytes : atOnceBytes;
    if (source.length > most) return this.#stream([source], watch);
    return this.#ifItMayEnd(() => {
      const encoded = this.#encode(source, watch);
      if (encoded === undefined) return false;
      this.#ended = true;
      // A small copy costs less than a write of two pieces.
      this.#channel.write(Buffer.concat([encoded, this.#encoder.end()]));
      return true;
    });
  }

  #ifItMayEnd(end: () => boolean): boolean | Promise<boolean> {
    const ended = ifPermitted(this.#mayEnd, this.#deadlines.mayEndMs, end);
    if (!(ended instanceof Promise)) return ended ?? this.#withdraw();
    const failed = this.#channel.failed().then(() => false);
    return Promise.race([failed, ended.then((whole) => whole ?? this.#withdraw())]);
  }

  #withdraw(): boolean {
    this.#channel.fail(withdrawnFailure());
    return false;
  }

  async #stream(source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, watch: boolean): Promise<boolean> {
    try {
      for await (const chunk of this.#untilFailure(source)) {
        const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
        for (let at = 0; at < bytes.length; at += blockBytes) {
          this.#channel.perform('body', this.#deadlines.blockMs);
          if (!this.#put(bytes.subarray(at, at + blockBytes), watch)) return false;
          await this.#channel.drain();
        }
      }
    } catch (error) {
      this.#channel.fail(localFailure('body', 'The message could not be read', error));
    }
    if (this.#mayEnd === undefined || this.#channel.failure !== undefined) return this.#end();
    await this.#channel.flushed();
    return this.#ifItMayEnd(() => this.#end());
  }

  /** Yields the chunks of the source until the channel fails, even if the source hangs. */
  async *#untilFailure(source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const iterator = Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
    const failed = this.#channel.failed().then(() => undefined);
    for (;;) {
      const next = await Promise.race([iterator.next(), failed]);
      if (next === undefined || this.#channel.failure !== undefined) break;
      if (next.done === true) return;
      yield next.value;
    }
    // A hanging source cannot be awaited.
    void Promise.resolve(iterator.return?.()).catch(() => undefined);
  }

  #put(bytes: Buffer, watch: boolean): boolean {
    const encoded = this.#encode(bytes, watch);
    if (encoded !== undefined) this.#channel.write(encoded);
    return encoded !== undefined;
  }

  /** Undefined when the channel has failed. */
  #encode(bytes: Buffer, watch: boolean): Buffer | undefined {
    const encoded = this.#encoder.encode(bytes);
    if (watch && this.#encoder.eightBit) this.#channel.fail(noEightBit('body'));
    return this.#channel.failure === undefined ? encoded : undefined;
  }

  #end(): boolean {
    if (this.#channel.failure !== undefined) return false;
    this.#ended = true;
    this.#channel.write(this.#encoder.end());
    return true;
  }
}

/** A command with the text that follows it. */
export type BdatChunk = readonly [command: Buffer, text: Buffer, end: Buffer];

/** The command for display. */
export const chunkCommand = ([command]: BdatChunk): string => command.toString('latin1').trimEnd();

/** A connection on which the server spoke so recently was not closed because it was idle. */
const aliveMs = 1000;

/**
 * A small message as its last chunk (RFC 3030), with the command; undefined where it goes by DATA. It follows the
 * envelope without a reply in between, so the server may have all of it when the connection is lost: that must not be
 * one that was dead already.
 */
export function lastChunk(
  { source }: OutgoingContent,
  channel: Channel,
  { chunking, pipelining, eightBitMime }: Capabilities,
): BdatChunk | undefined {
  if (!chunking || !pipelining || !eightBitMime || !channel.heardWithin(aliveMs)) return undefined;
  if (!Buffer.isBuffer(source) || source.length > atOnceBytes) return undefined;
  const encoder = new DataEncoder({ stuffsDots: false });
  const text = encoder.encode(source);
  const end = encoder.lineEnd();
  return [Buffer.from(`BDAT ${text.length + end.length} LAST\r\n`), text, end];
}

const CR = 13;
const LF = 10;
const DOT = 46;

/**
 * Encodes the text that follows 354 (RFC 5321 §4.5.2): stuffs dots and turns every bare CR or LF into CRLF. Text that
 * needs no change is not copied. The result does not depend on how the input is chunked.
 */
export class DataEncoder {
  readonly #stuffed: number;
  #last = LF;
  #eightBit = false;
  #taken = 0;

  constructor({ stuffsDots = true } = {}) {
    this.#stuffed = stuffsDots ? DOT : noByte;
  }

  /** Bytes read. */
  get taken(): number {
    return this.#taken;
  }

  /** True once a byte beyond ASCII was read. */
  get eightBit(): boolean {
    return this.#eightBit;
  }

  encode(chunk: Buffer): Buffer {
    this.#taken += chunk.length;
    const at = this.#unchangedLength(chunk);
    if (at === chunk.length) return chunk;
    return this.#rewritten(chunk, at);
  }

  /** The end of the message: a CRLF if it lacks one, and the final dot. */
  end(): Buffer {
    if (this.#last === LF) return dotLine;
    return this.#last === CR ? lfDotLine : crlfDotLine;
  }

  /** What the last line lacks of its CRLF. */
  lineEnd(): Buffer {
    return this.end().subarray(0, -dotLine.length);
  }

  /**
   * Number of leading bytes that need no change: all of them when each CR and LF belongs to a CRLF and no line begins
   * with a dot. Scans line by line.
   */
  #unchangedLength(chunk: Buffer): number {
    const end = changeIn(chunk, this.#last, this.#stuffed);
    if (end > 0) this.#last = chunk[end - 1] ?? LF;
    if (!this.#eightBit && !isAscii(end === chunk.length ? chunk : chunk.subarray(0, end))) this.#eightBit = true;
    return end;
  }

  #rewritten(chunk: Buffer, from: number): Buffer {
    // Each byte becomes two at worst, and a CR at the end of the previous chunk may need its LF.
    const output = Buffer.allocUnsafeSlow(from + 2 * (chunk.length - from) + 1);
    let length = chunk.copy(output, 0, 0, from);
    let last = this.#last;
    let high = 0;
    for (let at = from; at < chunk.length; at += 1) {
      const byte = chunk[at] ?? 0;
      if (last === CR && byte !== LF) {
        output[length++] = LF;
        last = LF;
      }
      if (byte === LF && last !== CR) output[length++] = CR;
      else if (byte === this.#stuffed && last === LF) output[length++] = DOT;
      output[length++] = byte;
      high |= byte;
      last = byte;
    }
    this.#last = last;
    if (high > 127) this.#eightBit = true;
    return output.subarray(0, length);
  }
}

const noByte = -1;

/** Position of the first byte that cannot follow the one before it unchanged; the length when there is none. */
function changeIn(chunk: Buffer, before: number, stuffed: number): number {
  const first = chunk[0];
  if (first === undefined) return 0;
  if (before === CR ? first !== LF : first === LF || (first === stuffed && before === LF)) return 0;
  let at = 0;
  if (before === CR) {
    at = 1;
    if (chunk[at] === stuffed) return at;
  }
  for (;;) {
    const cr = chunk.indexOf(CR, at);
    const lf = chunk.indexOf(LF, at);
    if (lf >= 0 && (cr < 0 || lf < cr)) return lf;
    // A CR at the end of the chunk waits for the next chunk.
    if (cr < 0 || cr === chunk.length - 1) return chunk.length;
    if (lf !== cr + 1) return cr + 1;
    at = lf + 1;
    if (chunk[at] === stuffed) return at;
  }
}

const dotLine: Buffer = Buffer.from('.\r\n');
const lfDotLine: Buffer = Buffer.from('\n.\r\n');
const crlfDotLine: Buffer = Buffer.from('\r\n.\r\n');

export const hasEightBit = (bytes: Buffer): boolean => !isAscii(bytes);
