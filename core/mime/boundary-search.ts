/** A boundary line (RFC 2046 §5.1.1) of a multipart that is open. */
export interface BoundaryLine {
  /** The level that was given to `open`. */
  readonly level: number;
  /** Where the part in front of it ends: the line end before the boundary belongs to the boundary. */
  readonly contentEnd: number;
  /** Behind the line. */
  readonly next: number;
  /** `--boundary--`: the multipart ends here. */
  readonly closing: boolean;
}

/** A boundary, its dashes and some blanks. */
const slack = 80;

/** Finds the boundary lines of all open multiparts in one pass; each line costs one look-up, however many are open. */
export class BoundarySearch {
  readonly #bytes: Buffer;
  /** Levels of the multiparts that use that boundary, the innermost last. */
  readonly #levels = new Map<string, number[]>();
  readonly #stack: { readonly level: number; readonly boundary: string }[] = [];
  #longest = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get any(): boolean {
    return this.#stack.length > 0;
  }

  open(level: number, boundary: string): void {
    // Lines are compared as bytes, and headers were read as UTF-8.
    const key = Buffer.from(boundary, 'utf8').toString('latin1');
    this.#stack.push({ level, boundary: key });
    this.#levels.set(key, [...(this.#levels.get(key) ?? []), level]);
    this.#longest = Math.max(this.#longest, key.length);
  }

  /** The multipart at `level` has seen its end, as have all below. */
  close(level: number): void {
    this.closeBelow(level - 1);
  }

  /** Forgets the multiparts deeper than `level`. */
  closeBelow(level: number): void {
    for (let last = this.#stack.at(-1); last !== undefined && last.level > level; last = this.#stack.at(-1)) {
      this.#stack.pop();
      const levels = this.#levels.get(last.boundary);
      levels?.pop();
      if (levels?.length === 0) this.#levels.delete(last.boundary);
    }
  }

  next(from: number): BoundaryLine | undefined {
    if (!this.any) return undefined;
    let at = this.#lineStart(from);
    while (at >= 0) {
      const line = this.#match(at);
      if (line !== undefined) return line;
      const found = this.#bytes.indexOf('\n--', at, 'latin1');
      at = found < 0 ? -1 : found + 1;
    }
    return undefined;
  }

  isBoundary(lineStart: number): boolean {
    return this.any && this.#match(lineStart) !== undefined;
  }

  /** `from` itself if a line begins there, else the next line that begins with dashes. */
  #lineStart(from: number): number {
    if (from === 0 || this.#bytes[from - 1] === 0x0a) return from;
    const found = this.#bytes.indexOf('\n--', from, 'latin1');
    return found < 0 ? -1 : found + 1;
  }

  #match(at: number): BoundaryLine | undefined {
    if (this.#bytes[at] !== 0x2d || this.#bytes[at + 1] !== 0x2d) return undefined;
    const limit = Math.min(this.#bytes.length, at + 2 + this.#longest + slack);
    let end = at + 2;
    while (end < limit && this.#bytes[end] !== 0x0a) end++;
    if (end === limit && limit < this.#bytes.length) return undefined;
    const text = this.#bytes.toString('latin1', at + 2, end).trimEnd();
    const open = this.#levels.get(text)?.at(-1);
    const level = open ?? (text.endsWith('--') ? this.#levels.get(text.slice(0, -2))?.at(-1) : undefined);
    if (level === undefined) return undefined;
    return {
      level,
      contentEnd: this.#contentEnd(at),
      next: Math.min(end + 1, this.#bytes.length),
      closing: open === undefined,
    };
  }

  #contentEnd(at: number): number {
    const newline = at > 0 && this.#bytes[at - 1] === 0x0a ? at - 1 : at;
    return newline < at && newline > 0 && this.#bytes[newline - 1] === 0x0d ? newline - 1 : newline;
  }
}
