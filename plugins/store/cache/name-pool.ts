/** What is left free for names to come, in a pool that had to grow. */
const spareBytes = 64 * 1024;

/**
 * File names in UTF-8, one behind the other. They are only ever added, and what is there is not changed: whoever knows where a
 * name stands can share the pool with others, and a few more names do not cost a copy of all.
 */
export class NamePool {
  readonly bytes: Buffer;
  #used: number;

  /** @param used so many of the bytes are names */
  constructor(bytes: Buffer, used = bytes.length) {
    this.bytes = bytes;
    this.#used = used;
  }

  get used(): number {
    return this.#used;
  }

  /** The names alone. */
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
