import type { InputBuffer } from './input-buffer.js';
import { replies } from '../protocol/replies.js';
import type { WireReply } from './wire-reply.js';

/** Longest command line without its CRLF; longer ones are read up to `endlessLine` and refused. */
const longestLine = 4096;
const endlessLine = 16 * 1024;

/** A command line; or what to answer to one that is none, and whether to hang up. */
export type NextLine =
  | { readonly form: 'command'; readonly bytes: Buffer }
  | { readonly form: 'refused'; readonly reply: WireReply }
  | { readonly form: 'goodbye'; readonly reply: WireReply };

/** Cuts the input into command lines. Only CRLF ends a command; a line that a bare LF ends is refused, not executed. */
export class LineReader {
  readonly #input: InputBuffer;
  #fresh = true;

  constructor(input: InputBuffer) {
    this.#input = input;
  }

  /** Undefined while no line is whole. */
  next(): NextLine | undefined {
    const { first } = this.#input;
    if (first === undefined) return undefined;
    if (this.#fresh && isBinary(first)) return { form: 'goodbye', reply: replies.notSmtp };
    const line = this.#input.takeLine();
    const length = line?.bytes.length ?? this.#input.length;
    if (length > endlessLine) return { form: 'goodbye', reply: replies.endlessLine };
    if (line === undefined) return undefined;
    this.#fresh = false;
    if (length > longestLine) return { form: 'refused', reply: replies.tooLong };
    if (!line.crlf) return { form: 'refused', reply: replies.bareLineEnding };
    return { form: 'command', bytes: line.bytes };
  }
}

/** A TLS hello or the like: no line end need ever come. */
const isBinary = (byte: number): boolean => byte > 0x7e || (byte < 0x20 && byte !== 13 && byte !== 10);
