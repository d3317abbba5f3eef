import { reply, type Reply } from '../reply.js';

/** Longest line with its end; RFC 5321 §4.5.3.1.5 allows 512, some servers say more. */
const longestLine = 4096;
const mostLines = 256;
/** Of one reply: there may be a thousand of them for one message, and they are kept until it is settled. */
const mostBytes = 16 * 1024;
const LF = 10;
const CR = 13;

/** What came is no reply. */
export interface Malformed {
  readonly malformed: string;
}

const syntax = /^([2-5][0-9]{2})(?:([ -])(.*))?$/s;
const enhanced = /^([245]\.[0-9]{1,3}\.[0-9]{1,3})(?: |$)/;
const unprintable = /[\p{C}\p{Zl}\p{Zp}\ufffd]/gu;
const printableAscii = /^[ -~]*$/;

/** Cuts the server's bytes into replies (RFC 5321 §4.2.1), however they were segmented. Bounded in every direction. */
export class ReplyReader {
  #rest: Buffer | undefined;
  #code = 0;
  #lines: string[] = [];
  #bytes = 0;

  /** True while a reply has begun and not ended. */
  get midway(): boolean {
    return this.#rest !== undefined || this.#lines.length > 0;
  }

  /** True when the reply that has begun is a 421, or can become one. */
  get partsMidway(): boolean {
    const code = this.#lines.length > 0 ? String(this.#code) : (this.#rest?.toString('latin1', 0, 3) ?? '');
    return this.midway && '421'.startsWith(code);
  }

  /** The replies that are whole with this chunk. After something malformed there is nothing more. */
  read(chunk: Buffer): readonly (Reply | Malformed)[] {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = undefined;
    const found: (Reply | Malformed)[] = [];
    let from = 0;
    for (let end = bytes.indexOf(LF); end >= 0; end = bytes.indexOf(LF, from)) {
      const read = end + 1 - from > longestLine ? tooLong : this.#line(bytes.subarray(from, end));
      if (read !== undefined) found.push(read);
      if (read !== undefined && 'malformed' in read) return found;
      from = end + 1;
    }
    if (bytes.length - from > longestLine) return [...found, tooLong];
    if (from < bytes.length) this.#rest = bytes.subarray(from);
    return found;
  }

  #line(bytes: Buffer): Reply | Malformed | undefined {
    const text = readable(bytes.at(-1) === CR ? bytes.subarray(0, -1) : bytes);
    const match = syntax.exec(text);
    if (match === null) return { malformed: `no reply: ${JSON.stringify(text.slice(0, 80))}` };
    const code = Number(match[1]);
    if (this.#lines.length > 0 && code !== this.#code)
      return { malformed: 'the lines of one reply have different codes' };
    if (this.#lines.length >= mostLines) return { malformed: `a reply of more than ${mostLines} lines` };
    this.#bytes += bytes.length;
    if (this.#bytes > mostBytes) return { malformed: `a reply of more than ${mostBytes} bytes` };
    this.#code = code;
    this.#lines.push(match[3] ?? '');
    if (match[2] === '-') return undefined;
    const lines = this.#lines;
    this.#lines = [];
    this.#bytes = 0;
    return assembled(code, lines);
  }
}

const tooLong: Malformed = { malformed: `a reply line of more than ${longestLine} bytes` };

/** Text for people: what could break out of a line becomes `?`. */
function readable(bytes: Buffer): string {
  const text = bytes.toString('latin1');
  return printableAscii.test(text) ? text : bytes.toString('utf8').replace(unprintable, '?');
}

/** Takes the enhanced status code out of the lines; one of another class than the code's is text. */
function assembled(code: number, lines: readonly string[]): Reply {
  const status = enhanced.exec(lines[0] ?? '')?.[1];
  if (status === undefined || status.charCodeAt(0) - 48 !== Math.floor(code / 100)) return reply(code, null, ...lines);
  const bare = lines.map((line) => (enhanced.exec(line)?.[1] === status ? line.slice(status.length + 1) : line));
  return { code, status, lines: bare };
}
