const CR = 13;
const LF = 10;
const DOT = 46;

/**
 * Makes the text that follows 354 (RFC 5321 §4.5.2): a dot in front of each line that begins with one, and every CR or LF that
 * stands alone made a CRLF. Text that needs no change passes through without a copy. The result depends on the bytes alone,
 * never on how they were cut.
 */
export class DataEncoder {
  #last = LF;
  #eightBit = false;
  #taken = 0;

  /** Bytes that went in. */
  get taken(): number {
    return this.#taken;
  }

  /** True once a byte beyond ASCII was seen. */
  get eightBit(): boolean {
    return this.#eightBit;
  }

  encode(chunk: Buffer): Buffer {
    this.#taken += chunk.length;
    const at = this.#unchangedLength(chunk);
    if (at === chunk.length) return chunk;
    return this.#rewritten(chunk, at);
  }

  /** What ends the text: the CRLF that it lacks, and the dot. */
  end(): Buffer {
    if (this.#last === LF) return dotLine;
    return this.#last === CR ? lfDotLine : crlfDotLine;
  }

  /** How far the chunk can stay as it is. */
  #unchangedLength(chunk: Buffer): number {
    let last = this.#last;
    let high = 0;
    let at = 0;
    for (; at < chunk.length; at += 1) {
      const byte = chunk[at] ?? 0;
      if (last === CR ? byte !== LF : byte === LF || (byte === DOT && last === LF)) break;
      high |= byte;
      last = byte;
    }
    this.#last = last;
    if (high > 127) this.#eightBit = true;
    return at;
  }

  #rewritten(chunk: Buffer, from: number): Buffer {
    // The worst that can come of one byte is two, and a CR of before may want its LF.
    const output = Buffer.allocUnsafeSlow(from + 2 * (chunk.length - from) + 1);
    let length = chunk.copy(output, 0, 0, from);
    let last = this.#last;
    let high = 0;
    for (let at = from; at < chunk.length; at += 1) {
      const byte = chunk[at] ?? 0;
      if (last === CR && byte !== LF) {
        output[length++] = LF;
        last = LF;
      }
      if (byte === LF && last !== CR) output[length++] = CR;
      else if (byte === DOT && last === LF) output[length++] = DOT;
      output[length++] = byte;
      high |= byte;
      last = byte;
    }
    this.#last = last;
    if (high > 127) this.#eightBit = true;
    return output.subarray(0, length);
  }
}

const dotLine: Buffer = Buffer.from('.\r\n');
const lfDotLine: Buffer = Buffer.from('\n.\r\n');
const crlfDotLine: Buffer = Buffer.from('\r\n.\r\n');

export function hasEightBit(bytes: Buffer): boolean {
  for (let at = 0; at < bytes.length; at += 1) if ((bytes[at] ?? 0) > 127) return true;
  return false;
}
