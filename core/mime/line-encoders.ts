/** Makes the body of a part something else, chunk by chunk. */
export interface LineEncoder {
  write(bytes: Buffer): Buffer;
  /** @param isLast whether the message ends here; else a boundary follows, and the line end in front of it is no content */
  end(isLast: boolean): Buffer;
}

const [TAB, LF, CR, SPACE, EQUALS] = [9, 10, 13, 32, 61];
/** One less than RFC 2045 §6.7 allows, for the `=` of a soft line break. */
const maxColumn = 75;
const base64Row = 57;
const hexDigits = Buffer.from('0123456789ABCDEF');
const nothing: Buffer = Buffer.alloc(0);

export const needsEscape = (byte: number): boolean =>
  byte > 126 || byte === EQUALS || (byte < SPACE && byte !== TAB && byte !== LF && byte !== CR);

/** RFC 2045 §6.7. Line ends stay line ends. */
export class QuotedPrintableEncoder implements LineEncoder {
  readonly #isEncoded: boolean;
  #column = 0;
  /** It is written in another way at the end of a line. */
  #blank: number | undefined;
  /** A CR may be that of a line end. */
  #hasCr = false;
  #output: Buffer = nothing;
  #length = 0;

  /** @param isEncoded the text is quoted-printable already, and has lines or bytes that are not allowed there */
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

  /** What was held back was not the end of a line. */
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

  /** Blanks at the end of a line of quoted-printable are no content. */
  #escapeBlank(): void {
    if (this.#blank !== undefined && !this.#isEncoded) this.#escape(this.#blank);
    this.#blank = undefined;
  }

  /** @param width how much of the line must be free for it: the `=` of an escape is followed by its two digits */
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
export class Base64Encoder implements LineEncoder {
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

/** Base64 whose lines are too long: readers pass over line ends (RFC 2045 §6.8). */
export class Base64Wrapper implements LineEncoder {
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
