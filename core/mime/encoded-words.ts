import { decodeCharset } from './charset.js';
import { decodeBase64, hexDigit } from './decode.js';

/** Maximum length of a value in which encoded words are decoded, in characters; the rest is kept unchanged. */
const maxLength = 64 * 1024;

const encodedWord = /=\?([^?\s]{1,60})\?([BbQq])\?([^?]*)\?=/g;

interface Run {
  readonly charset: string;
  readonly pieces: Buffer[];
}

/**
 * Decodes encoded words (RFC 2047) in a header value. Blanks between two of them are removed, and neighbours of one
 * charset are joined before decoding, since senders split characters. Never throws; linear.
 */
export function decodeWords(text: string): string {
  if (!text.includes('=?')) return text;
  const subject = text.slice(0, maxLength);
  let out = '';
  let at = 0;
  let run: Run | undefined;
  for (const match of subject.matchAll(encodedWord)) {
    const [whole, label = '', encoding = '', content = ''] = match;
    const between = subject.slice(at, match.index);
    const charset = (label.split('*', 1)[0] ?? '').toLowerCase();
    const joins = run !== undefined && between.trim() === '';
    if (run !== undefined && !(joins && run.charset === charset)) {
      out += flush(run);
      run = undefined;
    }
    if (!joins) out += between;
    run ??= { charset, pieces: [] };
    run.pieces.push(wordBytes(encoding, content));
    at = match.index + whole.length;
  }
  if (run !== undefined) out += flush(run);
  return printable(out + text.slice(at));
}

function flush(run: Run): string {
  return decodeCharset(Buffer.concat(run.pieces), run.charset);
}

/** `B` is base64, `Q` is like quoted-printable with `_` for a blank (RFC 2047 §4). */
function wordBytes(encoding: string, content: string): Buffer {
  if (encoding === 'B' || encoding === 'b') return decodeBase64(Buffer.from(content, 'latin1'));
  return decodeEscapes(Buffer.from(content, 'utf8'), 0x3d, true);
}

/** Bytes with `<escape>XX` undone: `=` in encoded words, `%` in parameters (RFC 2231 §4). */
export function decodeEscapes(bytes: Buffer, escape: number, underscoreIsBlank: boolean): Buffer {
  const out = Buffer.allocUnsafe(bytes.length);
  let length = 0;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] ?? 0;
    const high = byte === escape ? hexDigit(bytes[i + 1]) : -1;
    const low = high < 0 ? -1 : hexDigit(bytes[i + 2]);
    if (low >= 0) {
      out[length++] = high * 16 + low;
      i += 2;
    } else {
      out[length++] = underscoreIsBlank && byte === 0x5f ? 0x20 : byte;
    }
  }
  return out.subarray(0, length);
}

/** An encoded word may decode to line ends and NULs, which no header value contains. */
function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, ' ');
}
