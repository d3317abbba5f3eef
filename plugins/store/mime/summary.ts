import { type DisplayAddress, parseAddressList } from '../../../core/mime/address-list.js';
import { decodeCharset } from '../../../core/mime/charset.js';
import { decodeTransfer } from '../../../core/mime/decode.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';
import type { HeaderBlock } from '../../../core/mime/header.js';
import {
  isAttachment,
  ownParts,
  type Part,
  readStructure,
  type Structure,
  structureLimits,
} from '../../../core/mime/structure.js';

/** A message in a list: read from the beginning of its file. */
export interface Summary {
  readonly from: DisplayAddress | null;
  /** The first ones only. */
  readonly to: readonly DisplayAddress[];
  readonly subject: string;
  /** The `Date` field in ISO 8601, or null if it is missing or invalid. */
  readonly date: string | null;
  /** With its angle brackets. */
  readonly internetMessageId: string | null;
  /** An estimate: parts after the beginning of the file are not seen. */
  readonly hasAttachments: boolean;
  readonly snippet: string;
}

const maxRecipients = 20;
const maxSubject = 1000;
const maxMessageId = 1000;
const limits = { ...structureLimits, depth: 20, parts: 50 };

/**
 * @param head the first bytes of the message
 * @param size of the whole message, to know whether `head` is complete
 */
export function summarise(head: Buffer, size: number): Summary {
  const structure = readStructure(head, limits);
  const parts = ownParts(structure);
  const cut = size > head.length;
  return {
    ...headerSummary(structure.header),
    hasAttachments: parts.some(isAttachment) || (cut && structure.root.contentType === 'multipart/mixed'),
    snippet: snippetOf(head, structure),
  };
}

type HeaderSummary = Omit<Summary, 'hasAttachments' | 'snippet'>;

function headerSummary(header: HeaderBlock): HeaderSummary {
  return {
    from: parseAddressList(header.first('from') ?? '')[0] ?? null,
    to: parseAddressList((header.first('to') ?? '').slice(0, 8192)).slice(0, maxRecipients),
    subject: subjectOf(header),
    date: dateOf(header.first('date')),
    internetMessageId: header.first('message-id')?.slice(0, maxMessageId) ?? null,
  };
}

export function subjectOf(header: HeaderBlock): string {
  return decodeWords(header.first('subject') ?? '')
    .slice(0, maxSubject)
    .trim();
}

/** RFC 5322 §3.3, in its many variants. */
export function dateOf(value: string | undefined): string | null {
  if (value === undefined) return null;
  const plain = value.slice(0, 500).replace(/\([^()]*\)/g, ' ');
  const time = Date.parse(
    plain
      .replace(/\s*:\s*/g, ':')
      .replace(/\s+/g, ' ')
      .slice(0, 100),
  );
  return Number.isNaN(time) ? null : new Date(time).toISOString();
}

const maxLength = 160;
/** Characters that nearly always contain the first words. */
const defaultLength = 500;
const maxTextBytes = 4 * 1024;
/** HTML usually begins with long styles. */
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

/** Controls and zero-width characters, which newsletters use as padding. Emoji are joined by U+200D. */
const unseen = /(?:(?!\u200d)[\p{Cc}\p{Cf}\u034f\u2028\u2029])+/gu;

function line(text: string): string {
  const start = oneLine(text.slice(0, defaultLength));
  const words = start.length > maxLength || text.length <= defaultLength ? start : oneLine(text);
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

/** Approximate text of HTML, for a preview that is escaped like any other text. Linear. */
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

/** The parts with the readable text. */
interface ReadableParts {
  readonly text: readonly Part[];
  readonly html: readonly Part[];
}

/** Maximum parts of one kind that are shown one after the other. */
const maxShown = 20;

/**
 * Selects the text and the HTML of a message (RFC 2046 §5.1.4): alternatives contribute the best (last) of each kind;
 * otherwise all inline texts in order.
 */
export function readableParts(structure: Structure): ReadableParts {
  const text: Part[] = [];
  const html: Part[] = [];
  const visit = [structure.root];
  for (let part = visit.pop(); part !== undefined; part = visit.pop()) {
    if (part.boundary !== undefined) visit.push(...chosen(part).toReversed());
    else if (isAttachment(part)) continue;
    else if (part.contentType === 'text/html') html.push(part);
    else if (part.contentType.startsWith('text/')) text.push(part);
  }
  return { text: text.slice(0, maxShown), html: html.slice(0, maxShown) };
}

/** Of alternatives, the last plain text and the last of everything else. */
function chosen(part: Part): readonly Part[] {
  if (part.contentType !== 'multipart/alternative') return part.children;
  const plain = part.children.findLast((child) => child.contentType === 'text/plain');
  const rich = part.children.findLast((child) => child.contentType !== 'text/plain' && !isAttachment(child));
  return [plain, rich].filter((child) => child !== undefined);
}
