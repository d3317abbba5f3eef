const CR = 13;

/** Shorter chunks are looked at byte by byte: words of them are not worth their making. */
const worthwhile = 64;
/** With these, a word less 14 in each byte has a high bit where a byte was below 14, unless that had one itself. */
const fourteens = 0x0e0e0e0e;
const highBits = 0x80808080;
const noBytes: Buffer = Buffer.alloc(0);
const noWords = new Int32Array(0);

/** Finds the bytes of a text that need a closer look: CR, LF and NUL, and with them other controls up to CR, such as tabs. */
export class LineBreakSearch {
  #chunk = noBytes;
  /** The chunk four bytes at a time, as far as it goes from its first byte whose place in memory allows that. */
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

  /** The first such byte at or behind `start`, or the length of the chunk. */
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
