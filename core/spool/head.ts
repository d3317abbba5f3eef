import { isWorthKeeping } from '../disk/blocks.js';

const emptyLine = Buffer.from('\r\n\r\n');
const none = Buffer.alloc(0);

/** Keeps the header block of a message that passes by: through its empty line, or the first `limit` bytes. */
export class HeadCollector {
  readonly #limit: number;
  #bytes: Buffer = none;
  #used = 0;
  #complete = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get head(): Buffer {
    return this.#bytes.subarray(0, this.#used);
  }

  add(chunk: Buffer): void {
    if (this.#complete || chunk.length === 0) return;
    const known = this.#used;
    const end = known === 0 ? endOfHead(chunk, 0) : -1;
    if (end >= 0 && end <= this.#limit && isWorthKeeping(chunk)) {
      this.#bytes = chunk.subarray(0, end);
      this.#used = end;
      this.#complete = true;
      return;
    }
    this.#append(end < 0 ? chunk : chunk.subarray(0, end));
    this.#cut(end < 0 ? endOfHead(this.head, Math.max(0, known - emptyLine.length + 1)) : this.#used);
  }

  #cut(end: number): void {
    if (end < 0 && this.#used < this.#limit) return;
    this.#used = Math.min(this.#limit, end < 0 ? this.#used : end);
    this.#complete = true;
  }

  #append(chunk: Buffer): void {
    const needed = Math.min(this.#limit, this.#used + chunk.length);
    if (needed > this.#bytes.length) {
      const exact = this.#used === 0 ? needed : Math.min(this.#limit, Math.max(needed, 2 * this.#bytes.length));
      const grown = Buffer.allocUnsafeSlow(exact);
      this.#bytes.copy(grown, 0, 0, this.#used);
      this.#bytes = grown;
    }
    this.#used += chunk.copy(this.#bytes, this.#used, 0, needed - this.#used);
  }
}

/** Offset behind the empty line that ends the header block, or -1. */
function endOfHead(bytes: Buffer, from: number): number {
  if (bytes[0] === 13 && bytes[1] === 10) return 2;
  const at = bytes.indexOf(emptyLine, from);
  return at < 0 ? -1 : at + emptyLine.length;
}
