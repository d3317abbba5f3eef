import type { Address } from './address.js';
import { decodeCharset } from './charset.js';

/** Bounds of a header block. Excess is counted or cut, never an error. */
export interface HeaderLimits {
  readonly fields: number;
  /** Maximum bytes of one field's value. */
  readonly valueBytes: number;
  /** Maximum bytes of the whole block. */
  readonly blockBytes: number;
}

export const headerLimits: HeaderLimits = { fields: 2000, valueBytes: 256 * 1024, blockBytes: 4 * 1024 * 1024 };

interface HeaderField {
  /** As written. */
  readonly name: string;
  /** The name in lower case. */
  readonly key: string;
  /** Offset of the first byte of the name. */
  readonly offset: number;
  readonly valueOffset: number;
  /** Offset after the line end of the last line. */
  readonly end: number;
}

/** A scanned header block (RFC 5322 §2.2); values are decoded on demand. */
export class HeaderBlock {
  readonly fields: readonly HeaderField[];
  /** Start of the body: after the empty line, or the end of the input. */
  readonly bodyOffset: number;
  /** False without an empty line: the block is truncated, or the message has no body. */
  readonly complete: boolean;
  /** Number of fields above the limit. */
  readonly dropped: number;
  readonly #bytes: Buffer;
  readonly #limits: HeaderLimits;
  readonly #isCut: boolean;

  constructor(bytes: Buffer, limits: HeaderLimits, scanned: Scanned) {
    this.#bytes = bytes;
    this.#limits = limits;
    this.fields = scanned.fields;
    this.bodyOffset = scanned.bodyOffset;
    this.complete = scanned.complete;
    this.dropped = scanned.dropped;
    this.#isCut = scanned.isCut;
  }

  /** Whether it holds every field to its end. @param messageBytes size of the message whose start the input was */
  isWhole(messageBytes: number): boolean {
    return this.dropped === 0 && !this.#isCut && (this.complete || this.#bytes.length >= messageBytes);
  }

  /** Unfolded value of the first field of that name (lower case), or undefined. Encoded words are not decoded. */
  first(key: string): string | undefined {
    const field = this.fields.find((one) => one.key === key);
    return field === undefined ? undefined : this.value(field);
  }

  all(key: string): readonly string[] {
    return this.fields.filter((one) => one.key === key).map((one) => this.value(one));
  }

  /** Unfolded, trimmed, control characters as blanks; at most `valueBytes` long. */
  value(field: HeaderField): string {
    const end = Math.min(field.end, field.valueOffset + this.#limits.valueBytes);
    return unfold(decodeCharset(this.#bytes.subarray(field.valueOffset, end)));
  }
}

interface Scanned {
  readonly fields: readonly HeaderField[];
  readonly bodyOffset: number;
  readonly complete: boolean;
  readonly dropped: number;
  /** A value or the block exceeds its limit. */
  readonly isCut: boolean;
}

/** Given the start of a line, decides whether the block ends before it although no empty line was seen. */
type Interruption = (lineStart: number) => boolean;

const never: Interruption = () => false;

/**
 * Scans the header block that begins at `start`. Lines end in CRLF or LF. A line that is no field (no colon, blanks in
 * the name, an mbox `From ` line) is skipped with its continuation lines. Linear, never throws.
 */
export function scanHeader(
  bytes: Buffer,
  start = 0,
  limits: HeaderLimits = headerLimits,
  interrupted: Interruption = never,
): HeaderBlock {
  const fields: HeaderField[] = [];
  const stop = Math.min(bytes.length, start + limits.blockBytes);
  let dropped = 0;
  let isCut = false;
  let at = start;
  while (at < stop) {
    const empty = emptyLineLength(bytes, at);
    if (empty > 0) return block({ fields, bodyOffset: at + empty, complete: true, dropped, isCut });
    if (interrupted(at)) return block({ fields, bodyOffset: at, complete: true, dropped, isCut });
    const end = fieldEnd(bytes, at, stop);
    const field = fieldAt(bytes, at, end);
    if (field !== undefined && fields.length < limits.fields) fields.push(field);
    else if (field !== undefined) dropped++;
    isCut ||= field !== undefined && end - field.valueOffset > limits.valueBytes;
    at = end;
  }
  return block({
    fields,
    bodyOffset: stop === bytes.length ? stop : bodyBehind(bytes, stop),
    complete: false,
    dropped,
    isCut: isCut || stop < bytes.length,
  });

  function block(scanned: Scanned): HeaderBlock {
    return new HeaderBlock(bytes, limits, scanned);
  }
}

/** Length of the empty line at `at` that ends a header block; 0 when that line is another. */
export function emptyLineLength(bytes: Buffer, at: number): number {
  if (bytes[at] === 0x0a) return 1;
  return bytes[at] === 0x0d && bytes[at + 1] === 0x0a ? 2 : 0;
}

/** Offset after the last line of the field at `at`, continuation lines included. */
function fieldEnd(bytes: Buffer, at: number, stop: number): number {
  let end = at;
  do {
    const newline = bytes.indexOf(0x0a, end);
    if (newline < 0 || newline >= stop) return stop;
    end = newline + 1;
  } while (isFolding(bytes[end]));
  return end;
}

/** Whether a line that begins with this byte continues the one before. */
export function isFolding(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09;
}

export const maxNameBytes = 256;

/** Offset after the field name at `offset`. */
export function endOfName(bytes: Buffer, offset = 0, end = bytes.length): number {
  let at = offset;
  const last = Math.min(end, offset + maxNameBytes);
  while (at < last && isNameByte(bytes[at])) at++;
  return at;
}

function fieldAt(bytes: Buffer, offset: number, end: number): HeaderField | undefined {
  const nameEnd = endOfName(bytes, offset, end);
  let colon = nameEnd;
  // "Subject : x" is obsolete syntax (RFC 5322 §4.5) that is still in use; some readers trim all that is blank to them.
  while (colon < end && isBlank(bytes[colon])) colon++;
  if (nameEnd === offset || bytes[colon] !== 0x3a) return undefined;
  const name = bytes.toString('latin1', offset, nameEnd);
  return { name, key: name.toLowerCase(), offset, valueOffset: colon + 1, end };
}

function isBlank(byte: number | undefined): boolean {
  return byte !== undefined && byte <= 0x20;
}

function isNameByte(byte: number | undefined): boolean {
  return byte !== undefined && byte > 0x20 && byte < 0x7f && byte !== 0x3a;
}

/** Finds the body of a message whose header block exceeds the limit. */
function bodyBehind(bytes: Buffer, from: number): number {
  const crlf = bytes.indexOf('\r\n\r\n', from - 3, 'latin1');
  const lf = bytes.indexOf('\n\n', from - 1, 'latin1');
  if (crlf < 0 && lf < 0) return bytes.length;
  if (crlf < 0) return lf + 2;
  return lf < 0 || crlf < lf ? crlf + 4 : lf + 2;
}

/** Removes folding (RFC 5322 §2.2.3); other control characters become blanks. */
function unfold(text: string): string {
  return text
    .replace(/\r?\n/g, '')
    .replace(/\p{Cc}/gu, ' ')
    .trim();
}

/** RFC 5322 §3.3, in UTC: `Sat, 21 Nov 2026 00:43:14 +0000`. */
export function mailDate(date: Date): string {
  return date.toUTCString().replace('GMT', '+0000');
}

/** Bytes of the header that are searched; nearly all are shorter. */
const LOOKED_THROUGH = 65_536;
/** RFC 5322 §3.6.4 as commonly written: in brackets, on the line of the name or the next. */
const pattern = /(?:^|\n)message-id[ \t]*:[ \t]*(?:\r?\n[ \t]+)?(<[^\s<>]{1,250}>)/i;

/**
 * The Message-ID of a header block, with brackets; undefined when there is none that can be searched for. Cheaper than
 * scanning all fields.
 *
 * @param head starts at the first header field; a body after it is ignored
 */
export function messageIdOf(head: Buffer): string | undefined {
  const text = head.toString('latin1', 0, LOOKED_THROUGH);
  const found = pattern.exec(text);
  if (found?.[1] === undefined) return undefined;
  const end = text.search(/\r?\n\r?\n/);
  if (end !== -1 && found.index > end) return undefined;
  return Buffer.from(found[1], 'latin1').toString('utf8');
}

/** `Return-Path:` line with its CRLF (RFC 5321 §4.4); `<>` for the null reverse-path. */
export function returnPathLine(reversePath: Address | null): Buffer {
  return Buffer.from(`Return-Path: <${reversePath?.address ?? ''}>\r\n`);
}
