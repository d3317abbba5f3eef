import { problem } from '../problem.js';

/**
 * Turns every line end, bare CR and bare LF included, into CRLF. The result does not depend on how the input is
 * chunked.
 */
export class LineEndings {
  #returned = false;

  /** @throws Problem `invalid` for a NUL byte */
  push(chunk: Buffer): Buffer {
    if (chunk.includes(0)) throw problem('invalid', 'A message may not hold a NUL byte.');
    const text = (this.#returned ? '\r' : '') + chunk.toString('latin1');
    this.#returned = text.endsWith('\r');
    const whole = this.#returned ? text.slice(0, -1) : text;
    return Buffer.from(whole.replace(/\r\n|\r|\n/g, '\r\n'), 'latin1');
  }

  end(): Buffer {
    const rest = this.#returned ? '\r\n' : '';
    this.#returned = false;
    return Buffer.from(rest);
  }
}
