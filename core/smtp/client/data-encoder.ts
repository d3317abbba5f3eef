import { isAscii } from 'node:buffer';

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

  /** How far the chunk can stay as it is: to its end when every CR and LF is of a CRLF, and no line begins with a dot. Line by line, not byte by byte. */
  #unchangedLength(chunk: Buffer): number {
    const end = changeIn(chunk, this.#last);
    if (end > 0) this.#last = chunk[end - 1] ?? LF;
    if (!this.#eightBit && !isAscii(end === chunk.length ? chunk : chunk.subarray(0, end))) this.#eightBit = true;
    return end;
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

/** Where the first byte is that cannot follow the one before it as it is; the length when there is none. */
function changeIn(chunk: Buffer, before: number): number {
  const first = chunk[0];
  if (first === undefined) return 0;
  if (before === CR ? first !== LF : first === LF || (first === DOT && before === LF)) return 0;
  let at = 0;
  if (before === CR) {
    at = 1;
    if (chunk[at] === DOT) return at;
  }
  for (;;) {
    const cr = chunk.indexOf(CR, at);
    const lf = chunk.indexOf(LF, at);
    if (lf >= 0 && (cr < 0 || lf < cr)) return lf;
    // A CR at the very end waits for what follows.
    if (cr < 0 || cr === chunk.length - 1) return chunk.length;
    if (lf !== cr + 1) return cr + 1;
    at = lf + 1;
    if (chunk[at] === DOT) return at;
  }
}

const dotLine: Buffer = Buffer.from('.\r\n');
const lfDotLine: Buffer = Buffer.from('\n.\r\n');
const crlfDotLine: Buffer = Buffer.from('\r\n.\r\n');

export const hasEightBit = (bytes: Buffer): boolean => !isAscii(bytes);
