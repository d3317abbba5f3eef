const firstBlockBytes = 8 * 1024;
const blockBytes = 64 * 1024;

/**
 * Bytes gathered into blocks of our own. They are copied on purpose: a peer that sends one byte at a time would
 * otherwise keep a whole socket buffer alive with each of them.
 */
export class Blocks {
  #full: Buffer[] = [];
  #block = Buffer.alloc(0);
  #used = 0;
  #nextBytes = firstBlockBytes;

  add(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#used === this.#block.length) this.#open(chunk.length - at);
      const copied = chunk.copy(this.#block, this.#used, at);
      this.#used += copied;
      at += copied;
    }
  }

  #open(wanted: number): void {
    if (this.#used > 0) this.#full.push(this.#block);
    this.#block = Buffer.allocUnsafeSlow(Math.min(blockBytes, Math.max(this.#nextBytes, wanted)));
    this.#nextBytes = blockBytes;
    this.#used = 0;
  }

  /** What is gathered, which stays. */
  all(): readonly Buffer[] {
    return this.#used === 0 ? this.#full : [...this.#full, this.#block.subarray(0, this.#used)];
  }

  /** The blocks that are full, handed over. */
  takeFull(): readonly Buffer[] {
    const full = this.#full;
    this.#full = [];
    return full;
  }

  /** Everything, handed over. */
  takeAll(): readonly Buffer[] {
    const all = this.all();
    this.#full = [];
    this.#block = Buffer.alloc(0);
    this.#used = 0;
    return all;
  }
}
