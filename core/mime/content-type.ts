import { decodeCharset } from './charset.js';
import { decodeEscapes, decodeWords } from './words.js';

/** A value with parameters: `Content-Type` (RFC 2045 §5.1), `Content-Disposition` (RFC 2183). */
export interface ParameterisedValue {
  /** In lower case, without parameters. */
  readonly value: string;
  /** By lower case name, decoded (RFC 2231, and RFC 2047 as senders use it against the rules). */
  readonly parameters: ReadonlyMap<string, string>;
}

const maxParameters = 1000;
const maxLength = 64 * 1024;
const maxSections = 200;

/** Never throws; linear. Of a repeated parameter the first one counts. */
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

/** Pieces between semicolons; quotes are taken off, comments dropped. */
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

/** Behind `charset'language'`, or 0 if that is not there. */
function valueStart(text: string): number {
  const first = text.indexOf("'");
  const second = first < 0 ? -1 : text.indexOf("'", first + 1);
  return second < 0 ? 0 : second + 1;
}
