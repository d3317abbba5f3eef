const NUL = 0;
const LF = 10;
const CR = 13;

/** So many bytes are looked at one by one: for a short line that is faster than two calls out of JavaScript. */
const near = 16;
const none: Buffer = Buffer.alloc(0);

/** Finds the bytes of a text that need a closer look: CR, LF and NUL, and with them now and then another control. */
export class LineBreakSearch {
  #chunk = none;
  /** The next of each at or behind where it was last asked for; the length of the chunk when there is none. */
  #cr = -1;
  #lf = -1;
  #nul = -1;

  begin(chunk: Buffer): void {
    this.#chunk = chunk;
    this.#cr = -1;
    this.#lf = -1;
    this.#nul = -1;
  }

  /** The first such byte at or behind `start`, or the length of the chunk. */
  next(start: number): number {
    const chunk = this.#chunk;
    const stop = Math.min(chunk.length, start + near);
    let at = start;
    while (at < stop && (chunk[at] ?? 0) > CR) at += 1;
    if (at < stop || at === chunk.length) return at;
    if (this.#cr < at) this.#cr = this.#find(CR, at);
    if (this.#lf < at) this.#lf = this.#find(LF, at);
    if (this.#nul < at) this.#nul = this.#find(NUL, at);
    return Math.min(this.#cr, this.#lf, this.#nul);
  }

  #find(byte: number, from: number): number {
    const at = this.#chunk.indexOf(byte, from);
    return at < 0 ? this.#chunk.length : at;
  }
}
