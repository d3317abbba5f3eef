/** Field names are far shorter; a line that shows no colon in its first bytes is no field that anybody asked to remove. */
const nameBytes = 256;
const lineFeed = 10;

/** Takes header fields out of a message that passes by in pieces of any size, with a few bytes of memory. */
export class HeaderFilter {
  readonly #remove: ReadonlySet<string>;
  /** The start of a line whose fate is not known yet. */
  #start = Buffer.alloc(0);
  #inHeader = true;
  #undecided = true;
  /** Holds for continuation lines too. */
  #dropping = false;

  constructor(remove: readonly string[]) {
    this.#remove = new Set(remove.map((name) => name.toLowerCase()));
  }

  /** What stays of the next piece. */
  push(piece: Buffer): readonly Buffer[] {
    const kept: Buffer[] = [];
    let rest = this.#start.length === 0 ? piece : Buffer.concat([this.#start, piece]);
    this.#start = Buffer.alloc(0);
    while (rest.length > 0 && this.#inHeader) {
      if (this.#undecided && !this.#decide(rest)) {
        this.#start = Buffer.from(rest);
        return kept;
      }
      const feed = rest.indexOf(lineFeed);
      const end = feed < 0 ? rest.length : feed + 1;
      if (!this.#dropping) kept.push(rest.subarray(0, end));
      this.#undecided = feed >= 0;
      rest = rest.subarray(end);
    }
    if (rest.length > 0) kept.push(rest);
    return kept;
  }

  /** What was held back when the message ends within a field name. */
  end(): Buffer {
    return this.#start;
  }

  /** Settles what happens to the line that `rest` begins with; false when more of it must be seen. */
  #decide(rest: Buffer): boolean {
    const first = rest[0];
    if (first === 0x20 || first === 0x09) return true;
    const start = rest.subarray(0, nameBytes).toString('latin1');
    const stop = start.search(/[:\n]/);
    if (stop < 0 && start.length < nameBytes) return false;
    const isField = stop >= 0 && start[stop] === ':';
    this.#dropping = isField && this.#remove.has(start.slice(0, stop).trimEnd().toLowerCase());
    if (!isField && stop >= 0 && start.slice(0, stop).trim() === '') this.#inHeader = false;
    return true;
  }
}
