import { isAscii, isUtf8 } from 'node:buffer';
import { isIdentity, PartStream, type Piece, type StreamedPart } from './part-stream.js';

/** Target of a conversion: no bytes beyond ASCII (RFC 6152 §3), or no lines over 998 octets (RFC 5321 §4.5.3.1.6). */
export type EncodingGoal = '7bit' | 'short-lines';

/** RFC 5321 §4.5.3.1.6, without its CRLF. */
export const maxLineOctets = 998;

/** The change of one part. */
interface PartChange {
  readonly encoder?: 'quoted-printable' | 'base64' | 'repair-quoted-printable' | 'wrap-base64';
  /** The new Content-Transfer-Encoding. */
  readonly label?: 'quoted-printable' | 'base64' | '7bit';
  /** For text without a Content-Type. */
  readonly charset?: 'utf-8' | 'unknown-8bit';
  readonly isFolded?: boolean;
}

type EncodingPlan =
  | { readonly outcome: 'as-it-is' }
  /** `reason` completes a sentence. */
  | { readonly outcome: 'impossible'; readonly reason: string }
  | { readonly outcome: 'encode'; readonly changes: ReadonlyMap<number, PartChange>; readonly dropsBetween: boolean };

type Source = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

const signed = 'a signed part would have to be changed';

/** Plans the changes of a message; reads it once, buffering a line or a header at a time. */
export async function planEncoding(message: Source, goal: EncodingGoal): Promise<EncodingPlan> {
  const planner = new Planner(goal);
  const stream = new PartStream();
  for await (const chunk of message) {
    for (const piece of stream.push(asBuffer(chunk))) planner.take(piece);
    if (planner.reason !== undefined || stream.overLimit) break;
  }
  if (stream.overLimit) return { outcome: 'impossible', reason: 'it has too many parts' };
  for (const piece of stream.end()) planner.take(piece);
  return planner.plan();
}

/** The message with the planned changes; takes the same bytes as the plan. */
export async function* encodedMessage(
  message: Source,
  plan: EncodingPlan & { readonly outcome: 'encode' },
): AsyncGenerator<Buffer> {
  const writer = new PartWriter(plan);
  const stream = new PartStream();
  for await (const chunk of message) {
    const output: Buffer[] = [];
    for (const piece of stream.push(asBuffer(chunk))) output.push(...writer.write(piece));
    if (output.length > 0) yield Buffer.concat(output);
  }
  const output: Buffer[] = [];
  for (const piece of stream.end()) output.push(...writer.write(piece));
  yield Buffer.concat([...output, writer.end(true)]);
}

const asBuffer = (chunk: Uint8Array): Buffer => Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);

class Planner {
  readonly #goal: EncodingGoal;
  readonly #changes = new Map<number, PartChange>();
  readonly #containers: StreamedPart[] = [];
  #part: StreamedPart | undefined;
  #body = new TextMeasure();
  #between = new TextMeasure();
  #dropsBetween = false;
  #reason: string | undefined;

  constructor(goal: EncodingGoal) {
    this.#goal = goal;
  }

  get reason(): string | undefined {
    return this.#reason;
  }

  take(piece: Piece): void {
    if (piece.kind === 'body') this.#body.add(piece.bytes);
    else if (piece.kind === 'between') {
      this.#between.add(piece.bytes);
      if (!this.#isBad(this.#between)) return;
      if (piece.isSigned) this.#reason ??= signed;
      this.#dropsBetween = true;
    } else {
      this.#endPart();
      this.#between = new TextMeasure();
      if (piece.kind === 'header') this.#beginPart(piece.part, piece.bytes);
    }
  }

  plan(): EncodingPlan {
    this.#endPart();
    if (this.#reason !== undefined) return { outcome: 'impossible', reason: this.#reason };
    if (this.#changes.size === 0 && !this.#dropsBetween) return { outcome: 'as-it-is' };
    if (this.#goal === '7bit') {
      for (const { number, description, isSigned } of this.#containers) {
        if (description.encoding !== '7bit' && isIdentity(description.encoding) && !isSigned) {
          this.#changes.set(number, { label: '7bit' });
        }
      }
    }
    return { outcome: 'encode', changes: this.#changes, dropsBetween: this.#dropsBetween };
  }

  #isBad({ isEightBit, longest }: TextMeasure): boolean {
    return this.#goal === '7bit' ? isEightBit : longest > maxLineOctets;
  }

  #beginPart(part: StreamedPart, header: Buffer): void {
    const measure = new TextMeasure();
    measure.add(header);
    if (this.#isBad(measure)) this.#changeHeader(part, header);
    if (part.isContainer) this.#containers.push(part);
    else this.#part = part;
    this.#body = new TextMeasure();
  }

  #changeHeader(part: StreamedPart, header: Buffer): void {
    if (this.#goal === '7bit') this.#reason ??= 'its header has 8-bit text';
    else if (part.isSigned) this.#reason ??= signed;
    else if (foldedHeader(header) === undefined) this.#reason ??= 'its header has a line without a blank to fold it at';
    else this.#changes.set(part.number, { isFolded: true });
  }

  #endPart(): void {
    const part = this.#part;
    this.#part = undefined;
    if (part === undefined || !this.#isBad(this.#body)) return;
    const change = part.isSigned ? undefined : changeOf(part, this.#body);
    if (change !== undefined) this.#changes.set(part.number, { ...this.#changes.get(part.number), ...change });
    else this.#reason ??= part.isSigned ? signed : `a part of type ${part.description.contentType} cannot be encoded`;
  }
}

/** Undefined where the part must not or cannot be encoded. */
function changeOf({ description, header }: StreamedPart, body: TextMeasure): PartChange | undefined {
  const { contentType, encoding } = description;
  if (encoding === 'quoted-printable') return { encoder: 'repair-quoted-printable' };
  if (encoding === 'base64') return body.isEightBit ? undefined : { encoder: 'wrap-base64' };
  // RFC 2045 §6.4, and RFC 6532 §3.5 for the exception.
  const isComposite = /^(?:multipart|message)\//.test(contentType) && !contentType.startsWith('message/global');
  if (isComposite || !isIdentity(encoding)) return undefined;
  const label = body.isShorterInBase64 ? 'base64' : 'quoted-printable';
  const isTyped = !body.isEightBit || header.first('content-type') !== undefined;
  return { encoder: label, label, ...(!isTyped && { charset: body.isUtf8 ? 'utf-8' : 'unknown-8bit' }) };
}

class TextMeasure {
  isEightBit = false;
  isUtf8 = true;
  /** Octets of the longest line. */
  longest = 0;
  #column = 0;
  #size = 0;
  #escaped = 0;

  get isShorterInBase64(): boolean {
    const softBreaks = 3 * Math.floor(this.#size / 75);
    return Math.ceil((this.#size * 78) / 57) < this.#size + 2 * this.#escaped + softBreaks;
  }

  add(bytes: Buffer): void {
    this.#size += bytes.length;
    if (!isAscii(bytes)) {
      this.isEightBit = true;
      this.isUtf8 &&= isUtf8(bytes);
    }
    for (const byte of bytes) {
      if (byte === 10) {
        this.#column = 0;
        continue;
      }
      if (needsEscape(byte)) this.#escaped += 1;
      if (byte === 13) continue;
      this.#column += 1;
      if (this.#column > this.longest) this.longest = this.#column;
    }
  }
}

class PartWriter {
  readonly #plan: EncodingPlan & { readonly outcome: 'encode' };
  #encoder: LineEncoder | undefined;

  constructor(plan: EncodingPlan & { readonly outcome: 'encode' }) {
    this.#plan = plan;
  }

  write(piece: Piece): readonly Buffer[] {
    const { bytes } = piece;
    if (piece.kind === 'body') return [this.#encoder?.write(bytes) ?? bytes];
    if (piece.kind === 'between') return this.#plan.dropsBetween ? [] : [bytes];
    const ended = this.end(false);
    if (piece.kind === 'boundary') return [ended, bytes];
    const change = this.#plan.changes.get(piece.part.number);
    if (change === undefined) return [ended, bytes];
    this.#encoder = encoderOf(change);
    return [ended, changedHeader(piece.part, bytes, change)];
  }

  end(isLast: boolean): Buffer {
    const ended = this.#encoder?.end(isLast) ?? Buffer.alloc(0);
    this.#encoder = undefined;
    return ended;
  }
}

function encoderOf({ encoder }: PartChange): LineEncoder | undefined {
  if (encoder === undefined) return undefined;
  if (encoder === 'base64') return new Base64Encoder();
  if (encoder === 'wrap-base64') return new Base64Wrapper();
  return new QuotedPrintableEncoder(encoder === 'repair-quoted-printable');
}

function changedHeader({ header, isMessage }: StreamedPart, bytes: Buffer, change: PartChange): Buffer {
  const { label, charset, isFolded } = change;
  const folded = (block: Buffer): Buffer => (isFolded === true ? (foldedHeader(block) ?? block) : block);
  if (label === undefined) return folded(bytes);
  const kept: Buffer[] = [];
  let at = 0;
  for (const { key, offset, end } of header.fields) {
    if (key !== 'content-transfer-encoding') continue;
    kept.push(bytes.subarray(at, offset));
    at = end;
  }
  const textEnd = header.complete ? bytes.lastIndexOf(10, -2) + 1 : bytes.length;
  kept.push(bytes.subarray(at, Math.max(at, textEnd)));
  const added = [
    ...(isMessage && header.first('mime-version') === undefined ? ['MIME-Version: 1.0'] : []),
    ...(charset === undefined ? [] : [`Content-Type: text/plain; charset=${charset}`]),
    `Content-Transfer-Encoding: ${label}`,
  ];
  const fields = Buffer.concat([...kept, Buffer.from(added.map((field) => `${field}\r\n`).join(''))]);
  return Buffer.concat([folded(fields), Buffer.from('\r\n')]);
}

/** Folds overlong lines (RFC 5322 §2.2.3); undefined where one has no blank to fold at. */
function foldedHeader(bytes: Buffer): Buffer | undefined {
  const lines: string[] = [];
  for (const line of bytes.toString('latin1').split('\r\n')) {
    let rest = line;
    while (rest.length > maxLineOctets) {
      // A line of blanks alone would end the header for some readers.
      const at = Math.max(rest.lastIndexOf(' ', maxLineOctets), rest.lastIndexOf('\t', maxLineOctets));
      if (rest.slice(0, Math.max(0, at)).trim() === '' || rest.slice(at).trim() === '') return undefined;
      lines.push(rest.slice(0, at));
      rest = rest.slice(at);
    }
    lines.push(rest);
  }
  return Buffer.from(lines.join('\r\n'), 'latin1');
}

/** Re-encodes the body of a part, chunk by chunk. */
interface LineEncoder {
  write(bytes: Buffer): Buffer;
  /**
   * @param isLast whether the message ends here; otherwise a boundary follows, and the line end before it is no content
   */
  end(isLast: boolean): Buffer;
}

const [TAB, LF, CR, SPACE, EQUALS] = [9, 10, 13, 32, 61];
/** One less than RFC 2045 §6.7 allows, for the `=` of a soft line break. */
const maxColumn = 75;
const base64Row = 57;
const hexDigits = Buffer.from('0123456789ABCDEF');
const nothing: Buffer = Buffer.alloc(0);

const needsEscape = (byte: number): boolean =>
  byte > 126 || byte === EQUALS || (byte < SPACE && byte !== TAB && byte !== LF && byte !== CR);

/** RFC 2045 §6.7. Line ends are kept. */
class QuotedPrintableEncoder implements LineEncoder {
  readonly #isEncoded: boolean;
  #column = 0;
  /** A blank that is encoded differently at the end of a line. */
  #blank: number | undefined;
  /** A CR that may belong to a line end. */
  #hasCr = false;
  #output: Buffer = nothing;
  #length = 0;

  /** @param isEncoded the input is quoted-printable already, with lines or bytes that are not allowed */
  constructor(isEncoded = false) {
    this.#isEncoded = isEncoded;
  }

  write(bytes: Buffer): Buffer {
    this.#output = Buffer.allocUnsafe(4 * bytes.length + 16);
    this.#length = 0;
    for (const byte of bytes) {
      if (byte === LF) this.#endLine();
      else if (byte === CR && !this.#hasCr) this.#hasCr = true;
      else {
        this.#release();
        if (byte === CR) this.#hasCr = true;
        else if (byte === SPACE || byte === TAB) this.#blank = byte;
        else if (byte === EQUALS && this.#isEncoded) this.#put(byte, 3);
        else if (needsEscape(byte)) this.#escape(byte);
        else this.#put(byte);
      }
    }
    return this.#output.subarray(0, this.#length);
  }

  end(): Buffer {
    this.#output = Buffer.allocUnsafe(16);
    this.#length = 0;
    if (this.#hasCr) this.#release();
    else this.#escapeBlank();
    return this.#output.subarray(0, this.#length);
  }

  /** The pending bytes were not the end of a line. */
  #release(): void {
    if (this.#blank !== undefined) this.#put(this.#blank);
    this.#blank = undefined;
    if (this.#hasCr) this.#escape(CR);
    this.#hasCr = false;
  }

  #endLine(): void {
    this.#escapeBlank();
    this.#append(CR, LF);
    this.#column = 0;
    this.#hasCr = false;
  }

  /** Blanks at the end of a quoted-printable line are no content. */
  #escapeBlank(): void {
    if (this.#blank !== undefined && !this.#isEncoded) this.#escape(this.#blank);
    this.#blank = undefined;
  }

  /** @param width room needed on the line: the `=` of an escape is followed by its two digits */
  #put(byte: number, width = 1): void {
    this.#makeRoom(width);
    this.#append(byte);
    this.#column += 1;
  }

  #escape(byte: number): void {
    this.#makeRoom(3);
    this.#append(EQUALS, hexDigits[byte >> 4] ?? 0, hexDigits[byte & 15] ?? 0);
    this.#column += 3;
  }

  #makeRoom(width: number): void {
    if (this.#column + width <= maxColumn) return;
    this.#append(EQUALS, CR, LF);
    this.#column = 0;
  }

  #append(...bytes: readonly number[]): void {
    for (const byte of bytes) this.#output[this.#length++] = byte;
  }
}

/** RFC 2045 §6.8, in lines of 76 characters. */
class Base64Encoder implements LineEncoder {
  #rest: Buffer = nothing;

  write(bytes: Buffer): Buffer {
    const content = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    // A line end may belong to the boundary that follows.
    const rows = Math.max(0, Math.floor((content.length - 2) / base64Row));
    this.#rest = content.subarray(rows * base64Row);
    return rowsOf(content.subarray(0, rows * base64Row));
  }

  end(isLast: boolean): Buffer {
    const lineEnd = isLast ? 0 : this.#rest.at(-1) !== LF ? 0 : this.#rest.at(-2) === CR ? 2 : 1;
    return rowsOf(this.#rest.subarray(0, this.#rest.length - lineEnd));
  }
}

function rowsOf(bytes: Buffer): Buffer {
  const rows: string[] = [];
  for (let at = 0; at < bytes.length; at += base64Row) rows.push(`${bytes.toString('base64', at, at + base64Row)}\r\n`);
  return Buffer.from(rows.join(''), 'latin1');
}

/** Base64 with overlong lines: readers ignore line ends (RFC 2045 §6.8). */
class Base64Wrapper implements LineEncoder {
  #column = 0;

  write(bytes: Buffer): Buffer {
    const output = Buffer.allocUnsafe(2 * bytes.length + 2);
    let length = 0;
    for (const byte of bytes) {
      if (byte === CR || byte === LF) this.#column = 0;
      else if (this.#column === 76) {
        output[length++] = CR;
        output[length++] = LF;
        this.#column = 1;
      } else this.#column += 1;
      output[length++] = byte;
    }
    return output.subarray(0, length);
  }

  end(): Buffer {
    return nothing;
  }
}
