import { reply, type Reply } from '../protocol/reply.js';

/** What is kept of a line; RFC 5321 §4.5.3.1.5 allows 512 octets, some servers say more. */
const maxLineBytes = 4096;
/** What is kept of a reply: there may be a thousand of them for one message, and they are kept until it is settled. */
const maxLines = 256;
const maxBytes = 16 * 1024;
/** What is read of a reply. The code is in the first three digits, so the text may be cut; an endless reply is none. */
const maxReadBytes = 1024 * 1024;
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
  #readBytes = 0;

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
      this.#readBytes += end + 1 - from;
      const read = this.#readBytes > maxReadBytes ? endless : this.#line(bytes.subarray(from, end));
      if (read !== undefined) found.push(read);
      if (read !== undefined && 'malformed' in read) return found;
      from = end + 1;
    }
    const left = bytes.length - from;
    if (this.#readBytes + left > maxReadBytes) return [...found, endless];
    if (left > maxLineBytes) {
      // The head of the line is enough, however much comes before its end.
      this.#readBytes += left - maxLineBytes;
      this.#rest = Buffer.from(bytes.subarray(from, from + maxLineBytes));
    } else if (left > 0) this.#rest = bytes.subarray(from);
    return found;
  }

  #line(bytes: Buffer): Reply | Malformed | undefined {
    const line = bytes.at(-1) === CR ? bytes.subarray(0, -1) : bytes;
    const text = readable(line.subarray(0, maxLineBytes));
    const match = syntax.exec(text);
    if (match === null) return { malformed: `no reply: ${JSON.stringify(text.slice(0, 80))}` };
    const code = Number(match[1]);
    if (this.#lines.length > 0 && code !== this.#code)
      return { malformed: 'the lines of one reply have different codes' };
    this.#code = code;
    this.#bytes += text.length;
    if (this.#lines.length === 0 || (this.#lines.length < maxLines && this.#bytes <= maxBytes)) {
      this.#lines.push(match[3] ?? '');
    }
    if (match[2] === '-') return undefined;
    const lines = this.#lines;
    this.#lines = [];
    this.#bytes = 0;
    this.#readBytes = 0;
    return assembled(code, lines);
  }
}

const endless: Malformed = { malformed: `a reply of more than ${maxReadBytes} bytes` };

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
