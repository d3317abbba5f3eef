import { decodeCharset } from '../../../core/mime/charset.js';
import { decodeTransfer } from '../../../core/mime/decode.js';
import { readableParts } from './readable-part.js';
import type { Part, Structure } from '../../../core/mime/structure.js';

const maxLength = 160;
/** The first words are nearly always within so many characters. */
const usualLength = 500;
const maxTextBytes = 4 * 1024;
/** HTML begins with styles, as a rule long ones. */
const maxHtmlBytes = 32 * 1024;

/** The first words of a message, on one line, for lists. `bytes` may be only its beginning. */
export function snippetOf(bytes: Buffer, structure: Structure): string {
  const { text, html } = readableParts(structure);
  for (const part of text) {
    const words = line(decoded(bytes, part, maxTextBytes));
    if (words !== '') return words;
  }
  const rich = html[0];
  return rich === undefined ? '' : line(plainText(decoded(bytes, rich, maxHtmlBytes)));
}

function decoded(bytes: Buffer, part: Part, limit: number): string {
  const body = bytes.subarray(part.bodyOffset, Math.min(part.end, part.bodyOffset + limit));
  return decodeCharset(decodeTransfer(body, part.encoding), part.charset);
}

/** Controls, and characters that have no width: newsletters fill their preview with them. Emoji are joined by U+200D. */
const unseen = /(?:(?!\u200d)[\p{Cc}\p{Cf}\u034f\u2028\u2029])+/gu;

function line(text: string): string {
  const start = oneLine(text.slice(0, usualLength));
  const words = start.length > maxLength || text.length <= usualLength ? start : oneLine(text);
  if (words.length <= maxLength) return words;
  return `${Array.from(words.slice(0, maxLength)).slice(0, -1).join('')}…`;
}

function oneLine(text: string): string {
  return text.replace(unseen, ' ').replace(/\s+/g, ' ').trim();
}

const unread = ['style', 'script', 'head', 'title'];
const entities: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: ' ',
  zwnj: '',
  shy: '',
};

/** Roughly what an HTML text says: good enough for a preview, which is escaped as any other text. Linear. */
export function plainText(html: string): string {
  let out = '';
  let at = 0;
  while (at < html.length) {
    const open = html.indexOf('<', at);
    out += html.slice(at, open < 0 ? html.length : open);
    if (open < 0) break;
    at = behindTag(html, open);
    out += ' ';
  }
  return out.replace(/&(#\d{1,7}|#x[\da-f]{1,6}|[a-z]{2,6});/gi, (whole, name: string) => entity(whole, name));
}

function behindTag(html: string, open: number): number {
  const comment = html.startsWith('<!--', open);
  const close = comment ? html.indexOf('-->', open) : html.indexOf('>', open);
  if (close < 0) return html.length;
  const name = /^<([a-z]{1,10})[\s>]/i.exec(html.slice(open, open + 12))?.[1]?.toLowerCase();
  if (name === undefined || !unread.includes(name)) return close + (comment ? 3 : 1);
  const end = html.slice(close).search(new RegExp(`</${name}`, 'i'));
  return end < 0 ? html.length : behindEnd(html, close + end);
}

function behindEnd(html: string, at: number): number {
  const close = html.indexOf('>', at);
  return close < 0 ? html.length : close + 1;
}

function entity(whole: string, name: string): string {
  const lower = name.toLowerCase();
  if (!lower.startsWith('#')) return entities[lower] ?? whole;
  const code = lower.startsWith('#x') ? Number.parseInt(lower.slice(2), 16) : Number.parseInt(lower.slice(1), 10);
  return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : '';
}
