// Large, and slow to load: only parse workers import this file.
import { simpleParser } from 'mailparser';
import { effectiveCharset } from '../../../core/mime/charset.js';
import { decodeTransfer } from '../../../core/mime/decode.js';
import type { Part } from '../../../core/mime/structure.js';

/**
 * Text of one text part: mailparser decodes transfer encoding, charset and `format=flowed` of that part alone. So it
 * never sees attachments, structure and headers, which may be hostile.
 */
export async function readTextBody(bytes: Buffer, part: Part): Promise<TextBody> {
  const end = Math.min(part.end, part.bodyOffset + maxBodyBytes);
  const body = bytes.subarray(part.bodyOffset, end);
  const message = Buffer.concat([headerOf(part, body), body]);
  const parsed = await simpleParser(message, {
    skipHtmlToText: true,
    skipTextToHtml: true,
    skipTextLinks: true,
    skipImageLinks: true,
    maxHtmlLengthToParse: maxBodyBytes,
  });
  const html = part.contentType === 'text/html' ? parsed.html : undefined;
  const text = typeof html === 'string' ? html : (parsed.text ?? '');
  return { text: text.replaceAll('\0', '\ufffd'), cut: end < part.end };
}

/** Maximum bytes of an encoded body. */
const maxBodyBytes = 1024 * 1024;

/** Rebuilt from the parsed values. */
function headerOf(part: Part, body: Buffer): Buffer {
  const type = part.contentType === 'text/html' ? 'text/html' : 'text/plain';
  const charset = charsetOf(part, body);
  const flowed = part.flowed ? `; format=flowed${part.delSp ? '; delsp=yes' : ''}` : '';
  const encoding = ['base64', 'quoted-printable'].includes(part.encoding) ? part.encoding : '8bit';
  return Buffer.from(
    `MIME-Version: 1.0\r\nContent-Type: ${type}; charset=${charset}${flowed}\r\nContent-Transfer-Encoding: ${encoding}\r\n\r\n`,
  );
}

/** mailparser supports charsets that the platform does not; an unknown one is detected from the bytes. */
function charsetOf(part: Part, body: Buffer): string {
  if (/^(?:utf-7|x-mac-[a-z]{1,20}|hz-gb-2312)$/.test(part.charset)) return part.charset;
  return effectiveCharset(decodeTransfer(body, part.encoding), part.charset);
}

export interface TextBody {
  readonly text: string;
  /** It was truncated. */
  readonly cut: boolean;
}
