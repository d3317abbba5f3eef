const firstBlockBytes = 1024;
const blockBytes = 64 * 1024;
/** A piece of so many bytes that fills so much of the memory behind it is kept as it is. */
const keptBytes = 1024;
const wellFilled = 0.5;

/** True for a piece that keeps little more memory than its own alive: nobody need copy it. */
export function isWorthKeeping(piece: Buffer): boolean {
  return piece.length >= keptBytes && piece.length >= wellFilled * piece.buffer.byteLength;
}

/**
 * Bytes gathered into blocks. Small pieces are copied on purpose: a peer that sends one byte at a time would otherwise keep
 * a whole socket buffer alive with each of them.
 */
export class Blocks {
  #full: Buffer[] = [];
  #fullBytes = 0;
  #block = Buffer.alloc(0);
  #used = 0;
  #nextBytes = firstBlockBytes;

  /** Takes the piece, which must not be changed from now on. */
  add(chunk: Buffer): void {
    if (isWorthKeeping(chunk)) {
      this.#closeBlock();
      this.#addFull(chunk);
      return;
    }
    let at = 0;
    while (at < chunk.length) {
      if (this.#used === this.#block.length) this.#open(chunk.length - at);
      const copied = chunk.copy(this.#block, this.#used, at);
      this.#used += copied;
      at += copied;
    }
  }

  #open(wanted: number): void {
    this.#closeBlock();
    this.#block = Buffer.allocUnsafeSlow(Math.min(blockBytes, Math.max(this.#nextBytes, wanted)));
    this.#nextBytes = blockBytes;
  }

  #closeBlock(): void {
    if (this.#used > 0) this.#addFull(this.#block.subarray(0, this.#used));
    this.#block = this.#block.subarray(this.#used);
    this.#used = 0;
  }

  #addFull(block: Buffer): void {
    this.#full.push(block);
    this.#fullBytes += block.length;
  }

  /** Bytes in the blocks that are full. */
  get fullBytes(): number {
    return this.#fullBytes;
  }

  /** What is gathered, which stays. */
  all(): readonly Buffer[] {
    return this.#used === 0 ? this.#full : [...this.#full, this.#block.subarray(0, this.#used)];
  }

  /** The blocks that are full, handed over. */
  takeFull(): readonly Buffer[] {
    const full = this.#full;
    this.#full = [];
    this.#fullBytes = 0;
    return full;
  }

  /** Everything, handed over. */
  takeAll(): readonly Buffer[] {
    const all = this.all();
    this.#full = [];
    this.#fullBytes = 0;
    this.#block = Buffer.alloc(0);
    this.#used = 0;
    return all;
  }
}
