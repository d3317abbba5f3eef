import { type HeaderBlock, scanHeader } from './header.js';
import { describePart, type PartDescription } from './content-type.js';

/** A part whose header was read. */
export interface StreamedPart {
  /** Counts from 0 in the order of the message, containers included. */
  readonly number: number;
  readonly description: PartDescription;
  readonly header: HeaderBlock;
  /** Contains other parts: a multipart, or a message that is not encoded. */
  readonly isContainer: boolean;
  /** The root, or an attached message. */
  readonly isMessage: boolean;
  /** Inside of a multipart/signed, where any change breaks the signature. */
  readonly isSigned: boolean;
}

/** The concatenated pieces are the message, byte for byte. */
export type Piece =
  /** A header block with its empty line, which is missing where a boundary or the end truncates the block. */
  | { readonly kind: 'header'; readonly bytes: Buffer; readonly part: StreamedPart }
  /** A line, or a piece of a very long one, of a leaf part. */
  | { readonly kind: 'body'; readonly bytes: Buffer }
  /** A line, or a piece of one, of a preamble or epilogue. */
  | { readonly kind: 'between'; readonly bytes: Buffer; readonly isSigned: boolean }
  | { readonly kind: 'boundary'; readonly bytes: Buffer };

/** Longer lines are split. */
const maxLineBytes = 64 * 1024;
const maxHeaderBytes = 4 * 1024 * 1024;
const maxDepth = 100;
const maxParts = 10_000;
/** Maximum length of a boundary line. */
const maxBoundaryLine = 2200;

const empty: Buffer = Buffer.alloc(0);

/** Splits a streamed message into the parts of its MIME tree (RFC 2046). Buffers one line or one header block. */
export class PartStream {
  readonly #open: { readonly boundary: string; readonly isSigned: boolean; readonly isDigest: boolean }[] = [];
  /** The innermost multipart of each boundary, by level. */
  #levels = new Map<string, number>();
  #place: 'header' | 'body' | 'between' = 'header';
  #beginsMessage = true;
  #header: Buffer[] = [];
  #headerBytes = 0;
  #parts = 0;
  #carry = empty;
  #inLine = false;
  #overLimit = false;

  /** A limit on parts or header size was exceeded: later pieces may be assigned to the wrong part. */
  get overLimit(): boolean {
    return this.#overLimit;
  }

  *push(chunk: Buffer): Generator<Piece> {
    const bytes = this.#carry.length === 0 ? chunk : Buffer.concat([this.#carry, chunk]);
    let at = 0;
    for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, at)) {
      yield* this.#line(bytes.subarray(at, end + 1), true);
      at = end + 1;
    }
    this.#carry = bytes.subarray(at);
    if (this.#carry.length <= maxLineBytes) return;
    yield* this.#line(this.#carry, false);
    this.#carry = empty;
  }

  *end(): Generator<Piece> {
    if (this.#carry.length > 0) yield* this.#line(this.#carry, true);
    if (this.#place === 'header') yield this.#endHeader();
  }

  *#line(bytes: Buffer, isWhole: boolean): Generator<Piece> {
    const isStart = !this.#inLine;
    this.#inLine = !isWhole;
    if (isStart && bytes[0] === 0x2d && bytes[1] === 0x2d && this.#boundaryOf(bytes) !== undefined) {
      if (this.#place === 'header') yield this.#endHeader();
      yield this.#crossBoundary(bytes);
    } else if (this.#place === 'header') {
      this.#header.push(bytes);
      this.#headerBytes += bytes.length;
      if (this.#headerBytes > maxHeaderBytes) this.#overLimit = true;
      const isEmpty = isStart && (bytes[0] === 10 || (bytes[0] === 13 && bytes[1] === 10));
      if (isEmpty || this.#overLimit) yield this.#endHeader();
    } else if (this.#place === 'body') yield { kind: 'body', bytes };
    else yield { kind: 'between', bytes, isSigned: this.#isSigned };
  }

  get #isSigned(): boolean {
    return this.#open.some(({ isSigned }) => isSigned);
  }

  #boundaryOf(line: Buffer): { readonly level: number; readonly isClosing: boolean } | undefined {
    if (this.#open.length === 0 || line.length > maxBoundaryLine) return undefined;
    const text = line.toString('latin1', 2).trimEnd();
    const opening = this.#levels.get(text);
    if (opening !== undefined) return { level: opening, isClosing: false };
    const closing = text.endsWith('--') ? this.#levels.get(text.slice(0, -2)) : undefined;
    return closing === undefined ? undefined : { level: closing, isClosing: true };
  }

  #crossBoundary(bytes: Buffer): Piece {
    // The header that ended here may have opened another multipart with that boundary.
    const { level = 0, isClosing = true } = this.#boundaryOf(bytes) ?? {};
    this.#open.length = isClosing ? level : level + 1;
    this.#indexBoundaries();
    this.#place = isClosing ? 'between' : 'header';
    this.#beginsMessage = false;
    return { kind: 'boundary', bytes };
  }

  #indexBoundaries(): void {
    this.#levels = new Map(this.#open.map(({ boundary }, level) => [boundary, level]));
  }

  #endHeader(): Piece {
    const bytes = Buffer.concat(this.#header);
    this.#header = [];
    this.#headerBytes = 0;
    const header = scanHeader(bytes);
    const isInDigest = !this.#beginsMessage && this.#open.at(-1)?.isDigest === true;
    const description = describePart(header, isInDigest ? 'message/rfc822' : 'text/plain');
    const { contentType, boundary } = description;
    const holdsMessage = contentType === 'message/rfc822' && isIdentity(description.encoding);
    const part: StreamedPart = {
      number: this.#parts,
      description,
      header,
      isContainer: holdsMessage || boundary !== undefined,
      isMessage: this.#beginsMessage,
      isSigned: this.#isSigned,
    };
    this.#parts += 1;
    this.#overLimit ||= this.#parts > maxParts || this.#open.length > maxDepth || header.dropped > 0;
    this.#beginsMessage = holdsMessage;
    if (this.#overLimit) this.#place = 'body';
    else if (boundary !== undefined) {
      this.#open.push({
        // Lines are compared as bytes, while headers were decoded as UTF-8.
        boundary: Buffer.from(boundary).toString('latin1'),
        isSigned: contentType === 'multipart/signed',
        isDigest: contentType === 'multipart/digest',
      });
      this.#indexBoundaries();
      this.#place = 'between';
    } else this.#place = holdsMessage ? 'header' : 'body';
    return { kind: 'header', bytes, part };
  }
}

/** RFC 2045 §6.2: an identity encoding. */
export const isIdentity = (encoding: string): boolean =>
  encoding === '7bit' || encoding === '8bit' || encoding === 'binary';
