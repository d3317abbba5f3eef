import { type DisplayAddress, parseAddressList } from '../../../core/mime/address-list.js';
import { isAttachment, ownParts, readStructure, structureLimits } from '../../../core/mime/structure.js';
import type { HeaderBlock } from '../../../core/mime/header.js';
import { snippetOf } from './snippet.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';

/** What a list shows of a message: read from the beginning of its file. */
export interface Summary {
  readonly from: DisplayAddress | null;
  /** The first ones only. */
  readonly to: readonly DisplayAddress[];
  readonly subject: string;
  /** The `Date` field in ISO 8601, or null if it is missing or means nothing. */
  readonly date: string | null;
  /** With its angle brackets. */
  readonly internetMessageId: string | null;
  /** A good guess: parts behind the beginning of the file are not seen. */
  readonly hasAttachments: boolean;
  readonly snippet: string;
}

const maxRecipients = 20;
const maxSubject = 1000;
const maxMessageId = 1000;
const limits = { ...structureLimits, depth: 20, parts: 50 };

/**
 * @param head the first bytes of the message
 * @param size of the whole message, to know whether `head` is all of it
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

export type HeaderSummary = Omit<Summary, 'hasAttachments' | 'snippet'>;

export function headerSummary(header: HeaderBlock): HeaderSummary {
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

/** RFC 5322 §3.3, in the many ways it is written. */
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
