import { parseParameters } from './content-type.js';
import type { HeaderBlock } from './header.js';
import { decodeWords } from './words.js';

/** What the header of a MIME part says of it. */
export interface PartDescription {
  /** `type/subtype` in lower case, without parameters. */
  readonly contentType: string;
  readonly charset: string;
  /** Content-Transfer-Encoding in lower case; `7bit` if absent. */
  readonly encoding: string;
  /** `format=flowed`, `delsp=yes` (RFC 3676). */
  readonly flowed: boolean;
  readonly delSp: boolean;
  /** Only of a multipart. */
  readonly boundary: string | undefined;
  readonly disposition: 'inline' | 'attachment' | undefined;
  /** Last component only, without control and direction characters; never to be used as a path. */
  readonly filename: string | undefined;
  /** Content-ID without its angle brackets. */
  readonly cid: string | undefined;
}

const token = /^[a-z0-9!#$&^_.+-]{1,100}\/[a-z0-9!#$&^_.+-]{1,100}$/;
/** RFC 2046 §5.1.1 allows 70; others write more. */
const maxBoundary = 2048;

export function describePart(header: HeaderBlock, fallback: 'text/plain' | 'message/rfc822'): PartDescription {
  const written = header.first('content-type');
  const type = parseParameters(written ?? '');
  const disposition = parseParameters(header.first('content-disposition') ?? '');
  const contentType = token.test(type.value) ? type.value : written === undefined ? fallback : unreadable(type.value);
  const boundary = type.parameters.get('boundary')?.trimEnd();
  const isMultipart = contentType.startsWith('multipart/') && boundary !== undefined && boundary !== '';
  return {
    contentType,
    charset: (type.parameters.get('charset') ?? '').toLowerCase().slice(0, 60),
    encoding: encodingOf(header.first('content-transfer-encoding')),
    flowed: type.parameters.get('format')?.toLowerCase() === 'flowed',
    delSp: type.parameters.get('delsp')?.toLowerCase() === 'yes',
    boundary: isMultipart && boundary.length <= maxBoundary ? boundary : undefined,
    disposition: dispositionOf(disposition.value),
    filename: safeFilename(disposition.parameters.get('filename') ?? type.parameters.get('name')),
    cid: cidOf(header.first('content-id')),
  };
}

/** RFC 2045 §5.2: what cannot be read is plain text; a bare `text` is meant as such, anything else is just bytes. */
function unreadable(value: string): string {
  return value === '' || value.startsWith('text') ? 'text/plain' : 'application/octet-stream';
}

function encodingOf(value: string | undefined): string {
  const encoding = (value ?? '').split(/[;(\s]/, 1)[0] ?? '';
  return encoding === '' ? '7bit' : encoding.toLowerCase().slice(0, 40);
}

function dispositionOf(value: string): PartDescription['disposition'] {
  if (value === '') return undefined;
  // RFC 2183 §2.8: what is not known is an attachment.
  return value === 'inline' ? 'inline' : 'attachment';
}

function cidOf(value: string | undefined): string | undefined {
  const cid = value?.trim().replace(/^<|>$/g, '').trim().slice(0, 500);
  return cid === '' ? undefined : cid;
}

/** Controls, and characters that turn the direction of writing (`exe.jpg` that ends in `.exe`) or cannot be seen. */
const unseen = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

export function safeFilename(written: string | undefined): string | undefined {
  if (written === undefined) return undefined;
  const plain = decodeWords(written.slice(0, 4096)).replace(unseen, '');
  const last = plain.slice(Math.max(plain.lastIndexOf('/'), plain.lastIndexOf('\\')) + 1).trim();
  const name = last.length > 200 ? `${last.slice(0, 150)}…${last.slice(-40)}` : last;
  return name === '' || name === '.' || name === '..' ? undefined : wellFormed(name);
}

/** Half of a surrogate pair, left by the cut above, breaks what encodes URLs. */
function wellFormed(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}
