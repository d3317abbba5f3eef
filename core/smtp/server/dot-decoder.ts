import { maxLineOctets } from '../../mime/transfer-encoding.js';
import type { DataViolation } from '../protocol/replies.js';

export interface DataDecoderOptions {
  /** `normalise` turns a bare CR or LF into CRLF, `reject` makes it a violation. */
  readonly lineEndings: 'normalise' | 'reject';
  /** Maximum line length without CRLF, in bytes. */
  readonly lineBytes: number;
  /** Maximum size of the decoded message, in bytes. */
  readonly messageBytes: number;
  /** Text of BDAT (RFC 3030): dots are text, and `end` says where it ends. */
  readonly isChunked?: boolean;
}

const CR = 13;
const LF = 10;
const DOT = 46;

/** What precedes the next byte. `cr`, `dot` and `dotCr` are held back until the next byte gives them their meaning. */
type Place = 'lineStart' | 'text' | 'cr' | 'dot' | 'dotCr' | 'end';

const nothing: Buffer = Buffer.alloc(0);
const lineFeed = Buffer.from('\n');
const lineEnd = Buffer.from('\r\n');

/**
 * Decodes the text that follows 354 (RFC 5321 §4.5.2): only CRLF.CRLF ends it, and a dot is removed only after a CRLF.
 * The result does not depend on how the input is chunked.
 *
 * Clean text is passed on without a copy. After a violation there is no more output, but the end is still found.
 */
export class DataDecoder {
  readonly #rejectBare: boolean;
  readonly #lineBytes: number;
  readonly #messageBytes: number;
  readonly #hasDots: boolean;
  #place: Place = 'lineStart';
  #size = 0;
  #violation: DataViolation | undefined;
  #hasLongLine = false;
  #rest: Buffer = nothing;

  readonly #breaks = new LineBreakSearch();
  #chunk: Buffer = nothing;
  /** Start of the bytes of the chunk that are passed on unchanged. */
  #from = 0;
  /** Start of the held bytes; negative when they are in an earlier chunk. */
  #heldFrom = 0;
  /** Start of the current line; negative when it is in an earlier chunk. */
  #lineFrom = 0;
  /** Output of the current chunk; undefined while it equals the chunk so far. */
  #output: Buffer | undefined;
  #outputLength = 0;

  constructor(options: DataDecoderOptions) {
    this.#rejectBare = options.lineEndings === 'reject';
    this.#lineBytes = options.lineBytes;
    this.#messageBytes = options.messageBytes;
    this.#hasDots = options.isChunked !== true;
  }

  get ended(): boolean {
    return this.#place === 'end';
  }

  /** Input after the end in the last chunk: commands. */
  get rest(): Buffer {
    return this.#rest;
  }

  /** Bytes decoded. */
  get size(): number {
    return this.#size;
  }

  /** A line has more octets than RFC 5321 §4.5.3.1.6 allows. */
  get hasLongLine(): boolean {
    return this.#hasLongLine;
  }

  /** The first violation. */
  get violation(): DataViolation | undefined {
    return this.#violation;
  }

  /** Decodes a chunk. The result may be a subarray of the chunk. */
  write(chunk: Buffer): Buffer {
    this.#chunk = chunk;
    this.#breaks.begin(chunk);
    this.#from = 0;
    this.#heldFrom = -1;
    this.#output = undefined;
    this.#outputLength = 0;
    let at = 0;
    while (at < chunk.length && this.#place !== 'end') {
      at = this.#place === 'text' || this.#place === 'lineStart' ? this.#passText(at) : this.#resolveHeld(at);
    }
    this.#rest = at < chunk.length ? chunk.subarray(at) : nothing;
    const lineLength = at - this.#lineFrom;
    // Up to two bytes may be held back and not belong to the line.
    if (lineLength > this.#lineBytes + 2) this.#violate('long-line');
    this.#lineFrom = -lineLength;
    const decoded = this.#finishChunk(at);
    this.#chunk = nothing;
    this.#breaks.begin(nothing);
    return this.#admit(decoded);
  }

  /** Ends the text of BDAT: completes the end of its last line. Returns what is left of it. */
  end(): Buffer {
    if (this.#place === 'cr' && this.#rejectBare) this.#violate('line-ending');
    const missing = this.#place === 'cr' ? lineFeed : lineEnd;
    const decoded = this.#place === 'lineStart' ? nothing : this.write(missing);
    this.#place = 'end';
    return decoded;
  }

  #admit(decoded: Buffer): Buffer {
    if (this.#size + decoded.length > this.#messageBytes) this.#violate('too-large');
    if (this.#violation !== undefined) return nothing;
    this.#size += decoded.length;
    return decoded;
  }

  #finishChunk(at: number): Buffer {
    const holds = this.#place !== 'text' && this.#place !== 'lineStart';
    const to = holds ? Math.max(0, this.#heldFrom) : at;
    if (this.#output === undefined && this.#from === 0) return this.#chunk.subarray(0, to);
    this.#passOn(to);
    return this.#output?.subarray(0, this.#outputLength) ?? nothing;
  }

  /** Scans to the end of the line, or to a byte that needs a closer look. */
  #passText(start: number): number {
    const chunk = this.#chunk;
    const { length } = chunk;
    let at = start;
    if (this.#hasDots && this.#place === 'lineStart' && chunk[start] === DOT) {
      const following = chunk[start + 1];
      this.#hold('dot', start, start);
      if (following === undefined || following === CR) return start + 1;
      at = this.#dropDot(start + 1);
    }
    this.#place = 'text';
    at = this.#breaks.next(at);
    if (at === length) return at;
    const byte = chunk[at];
    if (byte === CR) {
      if (chunk[at + 1] !== LF) return this.#hold('cr', at, at);
      this.#endLine(at, at + 2);
      this.#place = 'lineStart';
      return at + 2;
    }
    if (byte === LF) {
      this.#passOn(at);
      this.#putEnding();
      this.#endLine(at, at + 1);
      this.#from = at + 1;
      // Elsewhere a dot after it is text.
      if (!this.#hasDots) this.#place = 'lineStart';
    } else if (byte === 0) {
      this.#violate('nul');
    }
    return at + 1;
  }

  #hold(place: Place, from: number, at: number): number {
    this.#place = place;
    this.#heldFrom = from;
    return at + 1;
  }

  /** The byte at `at` gives the held bytes their meaning. */
  #resolveHeld(at: number): number {
    const byte = this.#chunk[at];
    if (this.#place === 'cr') return byte === LF ? this.#wholeEnding(at) : this.#bareReturn(at);
    if (this.#place === 'dot') {
      if (byte === CR) {
        this.#place = 'dotCr';
        return at + 1;
      }
      return this.#dropDot(at);
    }
    if (byte === LF) {
      this.#place = 'end';
      return at + 1;
    }
    this.#dropDot(at);
    this.#putEnding();
    return at;
  }

  /** A CRLF split across chunks. */
  #wholeEnding(at: number): number {
    if (this.#heldFrom < 0) this.#put(CR);
    this.#endLine(at - 1, at + 1);
    this.#place = 'lineStart';
    return at + 1;
  }

  /** The CR was bare, so a dot after it is text. */
  #bareReturn(at: number): number {
    this.#passOn(this.#heldFrom);
    this.#putEnding();
    this.#endLine(at - 1, at);
    this.#from = at;
    this.#place = 'text';
    return at;
  }

  #dropDot(at: number): number {
    this.#passOn(this.#heldFrom);
    this.#from = at;
    this.#lineFrom = at;
    this.#place = 'text';
    return at;
  }

  #endLine(end: number, next: number): void {
    const length = end - this.#lineFrom;
    if (length > maxLineOctets) this.#hasLongLine = true;
    if (length > this.#lineBytes) this.#violate('long-line');
    this.#lineFrom = next;
  }

  #putEnding(): void {
    if (this.#rejectBare) this.#violate('line-ending');
    this.#put(CR);
    this.#put(LF);
  }

  #violate(violation: DataViolation): void {
    this.#violation ??= violation;
  }

  #put(byte: number): void {
    this.#room()[this.#outputLength] = byte;
    this.#outputLength += 1;
  }

  /** Copies the unchanged bytes up to `to`. */
  #passOn(to: number): void {
    const from = this.#from;
    if (to <= from) return;
    const output = this.#room();
    const chunk = this.#chunk;
    let length = this.#outputLength;
    if (to - from > 24) {
      length += chunk.copy(output, length, from, to);
    } else {
      for (let at = from; at < to; at += 1) {
        output[length] = chunk[at] ?? 0;
        length += 1;
      }
    }
    this.#outputLength = length;
  }

  /** Capacity for the worst case: every byte a bare line end, plus a held one. */
  #room(): Buffer {
    this.#output ??= Buffer.allocUnsafeSlow(2 * this.#chunk.length + 4);
    return this.#output;
  }
}

/** Shorter chunks are scanned byte by byte: creating a view of words costs more. */
const worthwhile = 64;
/** Subtracting 14 from each byte of a word sets the high bit of bytes below 14, unless it was set before. */
const fourteens = 0x0e0e0e0e;
const highBits = 0x80808080;
const noBytes: Buffer = Buffer.alloc(0);
const noWords = new Int32Array(0);

/** Finds bytes that need a closer look: CR, LF, NUL, and with them other control characters up to CR. */
export class LineBreakSearch {
  #chunk = noBytes;
  /** The chunk as 32-bit words, from its first aligned byte. */
  #words: Int32Array = noWords;
  #wordsFrom = 0;

  begin(chunk: Buffer): void {
    this.#chunk = chunk;
    const from = -chunk.byteOffset & 3;
    const isWorthwhile = chunk.length >= worthwhile;
    this.#wordsFrom = from;
    this.#words = isWorthwhile
      ? new Int32Array(chunk.buffer, chunk.byteOffset + from, (chunk.length - from) >> 2)
      : noWords;
  }

  /** The first such byte at or after `start`, or the length of the chunk. */
  next(start: number): number {
    const chunk = this.#chunk;
    const words = this.#words;
    const from = this.#wordsFrom;
    const { length } = chunk;
    let at = start;
    while (at < length && ((at - from) & 3) !== 0) {
      if ((chunk[at] ?? 0) <= CR) return at;
      at += 1;
    }
    let word = (at - from) >> 2;
    while (word < words.length) {
      const bytes = words[word] ?? 0;
      if (((bytes - fourteens) & ~bytes & highBits) !== 0) break;
      word += 1;
    }
    at = Math.max(at, from + 4 * word);
    while (at < length && (chunk[at] ?? 0) > CR) at += 1;
    return at;
  }
}
