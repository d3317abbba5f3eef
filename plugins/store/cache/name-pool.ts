/** Free space for further names in a pool that had to grow. */
const spareBytes = 64 * 1024;

/**
 * File names in UTF-8, one after the other. Names are only added and never changed: rows with offsets can share the
 * pool, and new names do not cost a copy of all.
 */
export class NamePool {
  readonly bytes: Buffer;
  #used: number;

  /** @param used number of bytes that contain names */
  constructor(bytes: Buffer, used = bytes.length) {
    this.bytes = bytes;
    this.#used = used;
  }

  get used(): number {
    return this.#used;
  }

  /** The used bytes. */
  get names(): Buffer {
    return this.bytes.subarray(0, this.#used);
  }

  /** The pool with these names after its own: another one when there was no room. */
  with(names: Buffer): NamePool {
    const start = this.#used;
    const end = start + names.length;
    const pool = end > this.bytes.length ? this.#grown(end) : this;
    names.copy(pool.bytes, start);
    pool.#used = end;
    return pool;
  }

  #grown(bytes: number): NamePool {
    const larger = Buffer.allocUnsafeSlow(Math.ceil(bytes * 1.1) + spareBytes);
    this.bytes.copy(larger, 0, 0, this.#used);
    return new NamePool(larger, this.#used);
  }
}
