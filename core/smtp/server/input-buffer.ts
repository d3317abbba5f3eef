const nothing: Buffer = Buffer.alloc(0);
const CR = 13;
const LF = 10;

/** A command line without its ending. */
export interface InputLine {
  readonly bytes: Buffer;
  /** False when it ended with a bare LF. */
  readonly crlf: boolean;
}

/** Bytes that have arrived and are not used yet. */
export class InputBuffer {
  #bytes: Buffer = nothing;

  get length(): number {
    return this.#bytes.length;
  }

  get first(): number | undefined {
    return this.#bytes[0];
  }

  add(chunk: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
  }

  clear(): void {
    this.#bytes = nothing;
  }

  takeAll(): Buffer {
    const all = this.#bytes;
    this.#bytes = nothing;
    return all;
  }

  takeLine(): InputLine | undefined {
    const end = this.#bytes.indexOf(LF);
    if (end < 0) return undefined;
    const crlf = end > 0 && this.#bytes[end - 1] === CR;
    const bytes = this.#bytes.subarray(0, crlf ? end - 1 : end);
    this.#bytes = end + 1 === this.#bytes.length ? nothing : this.#bytes.subarray(end + 1);
    return { bytes, crlf };
  }
}
