/** Reads lines and counted bytes from one stream. */
export class FramedInput {
  readonly #chunks: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#chunks = source[Symbol.asyncIterator]();
  }

  /** The next line without its end. @throws Error when it is longer, or when the stream ends before */
  async line(maxBytes: number): Promise<string> {
    for (;;) {
      const end = this.#left.indexOf(10);
      if (end > maxBytes || (end === -1 && this.#left.length > maxBytes)) throw new Error('a line is too long');
      if (end >= 0) {
        const line = this.#left.toString('utf8', 0, end);
        this.#left = this.#left.subarray(end + 1);
        return line;
      }
      const chunk = await this.#next();
      if (chunk === undefined) throw new Error('the stream ends in a line');
      this.#left = this.#left.length === 0 ? chunk : Buffer.concat([this.#left, chunk]);
    }
  }

  /** That number of bytes. @throws Error when the stream ends before */
  async *bytes(count: number): AsyncGenerator<Buffer> {
    for (let missing = count; missing > 0;) {
      if (this.#left.length === 0) {
        const chunk = await this.#next();
        if (chunk === undefined) throw new Error('the stream ends too early');
        this.#left = chunk;
      }
      const part = this.#left.subarray(0, missing);
      this.#left = this.#left.subarray(part.length);
      missing -= part.length;
      if (part.length > 0) yield part;
    }
  }

  /** All that is left. */
  async *rest(): AsyncGenerator<Buffer> {
    for (let chunk: Buffer | undefined = this.#left; chunk !== undefined; chunk = await this.#next())
      if (chunk.length > 0) yield chunk;
  }

  async #next(): Promise<Buffer | undefined> {
    const next = await this.#chunks.next();
    return next.done === true ? undefined : next.value;
  }
}
