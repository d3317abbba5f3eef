import { decodeCharset } from './charset.js';
import { decodeEscapes, decodeWords } from './encoded-words.js';
import type { HeaderBlock } from './header.js';

/** A header value with parameters: `Content-Type` (RFC 2045 §5.1), `Content-Disposition` (RFC 2183). */
interface ParameterisedValue {
  /** In lower case, without parameters. */
  readonly value: string;
  /** By lower case name, decoded (RFC 2231, and RFC 2047, which senders use although it is not allowed here). */
  readonly parameters: ReadonlyMap<string, string>;
}

const maxParameters = 1000;
const maxLength = 64 * 1024;
const maxSections = 200;

/** Never throws; linear. The first of repeated parameters counts. */
export function parseParameters(text: string): ParameterisedValue {
  const bounded = text.length > maxLength ? text.slice(0, maxLength) : text;
  const parts = split(bounded);
  const raw = new Map<string, string>();
  for (const part of parts.slice(1)) {
    const equals = part.indexOf('=');
    if (equals < 0) continue;
    const name = part.slice(0, equals).trim().toLowerCase();
    if (name !== '' && !raw.has(name)) raw.set(name, part.slice(equals + 1).trim());
  }
  return { value: (parts[0] ?? '').trim().toLowerCase(), parameters: assemble(raw) };
}

/** Splits at semicolons, removes quotes and comments. */
function split(text: string): readonly string[] {
  const pieces: string[] = [];
  let piece = '';
  let quoted = false;
  let depth = 0;
  for (let i = 0; i < text.length && pieces.length <= maxParameters; i++) {
    const character = text[i] ?? '';
    if (character === '\\' && (quoted || depth > 0)) {
      i++;
      if (depth === 0) piece += text[i] ?? '';
    } else if (depth > 0) {
      depth += character === '(' ? 1 : character === ')' ? -1 : 0;
    } else if (character === '"') {
      quoted = !quoted;
    } else if (quoted) {
      piece += character;
    } else if (character === '(' && !piece.includes('=')) {
      depth++;
    } else if (character === ';') {
      pieces.push(piece);
      piece = '';
    } else {
      piece += character;
    }
  }
  pieces.push(piece);
  return pieces;
}

interface Section {
  readonly index: number;
  readonly text: string;
  readonly extended: boolean;
}

/** Joins continuations (`name*0*=`, `name*1=`) and decodes extended values (RFC 2231 §3, §4). */
function assemble(raw: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const plain = new Map<string, string>();
  const sections = new Map<string, Section[]>();
  for (const [name, text] of raw) {
    const star = name.indexOf('*');
    if (star < 0) plain.set(name, decodeWords(text));
    else collect(sections, name.slice(0, star), name.slice(star + 1), text);
  }
  for (const [name, list] of sections) plain.set(name, join(list));
  return plain;
}

function collect(sections: Map<string, Section[]>, name: string, suffix: string, text: string): void {
  const match = /^(\d{1,4})?(\*)?$/.exec(suffix);
  if (match === null || name === '') return;
  const list = sections.get(name) ?? [];
  if (list.length >= maxSections) return;
  list.push({ index: Number(match[1] ?? 0), text, extended: match[1] === undefined || match[2] === '*' });
  sections.set(name, list);
}

function join(list: readonly Section[]): string {
  const ordered = list.toSorted((a, b) => a.index - b.index);
  let charset = '';
  const pieces = ordered.map((section, position) => {
    if (!section.extended) return Buffer.from(section.text, 'utf8');
    const start = position === 0 ? valueStart(section.text) : 0;
    if (start > 0) charset = section.text.slice(0, section.text.indexOf("'"));
    return decodeEscapes(Buffer.from(section.text.slice(start), 'utf8'), 0x25, false);
  });
  return decodeCharset(Buffer.concat(pieces), charset);
}

/** Index after `charset'language'`, or 0 without one. */
function valueStart(text: string): number {
  const first = text.indexOf("'");
  const second = first < 0 ? -1 : text.indexOf("'", first + 1);
  return second < 0 ? 0 : second + 1;
}

/** The header of a MIME part. */
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
  /** Last path component without control and direction characters; must not be used as a path. */
  readonly filename: string | undefined;
  /** Content-ID without its angle brackets. */
  readonly cid: string | undefined;
}

const token = /^[a-z0-9!#$&^_.+-]{1,100}\/[a-z0-9!#$&^_.+-]{1,100}$/;
/** RFC 2046 §5.1.1 allows 70; some senders use more. */
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

/** RFC 2045 §5.2: a malformed type is plain text, and so is a bare `text`; any other unknown type is binary. */
function unreadable(value: string): string {
  return value === '' || value.startsWith('text') ? 'text/plain' : 'application/octet-stream';
}

function encodingOf(value: string | undefined): string {
  const encoding = (value ?? '').split(/[;(\s]/, 1)[0] ?? '';
  return encoding === '' ? '7bit' : encoding.toLowerCase().slice(0, 40);
}

function dispositionOf(value: string): PartDescription['disposition'] {
  if (value === '') return undefined;
  // RFC 2183 §2.8: an unknown disposition is an attachment.
  return value === 'inline' ? 'inline' : 'attachment';
}

function cidOf(value: string | undefined): string | undefined {
  const cid = value?.trim().replace(/^<|>$/g, '').trim().slice(0, 500);
  return cid === '' ? undefined : cid;
}

/** Control characters, and those that are invisible or change the writing direction (`exe.jpg` that ends in `.exe`). */
const unseen = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

export function safeFilename(written: string | undefined): string | undefined {
  if (written === undefined) return undefined;
  const plain = decodeWords(written.slice(0, 4096)).replace(unseen, '');
  const last = plain.slice(Math.max(plain.lastIndexOf('/'), plain.lastIndexOf('\\')) + 1).trim();
  const name = last.length > 200 ? `${last.slice(0, 150)}…${last.slice(-40)}` : last;
  return name === '' || name === '.' || name === '..' ? undefined : wellFormed(name);
}

/** A lone surrogate, left by the cut above, breaks URL encoding. */
function wellFormed(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}
