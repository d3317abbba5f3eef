import { parseAddressList } from '../../core/mime/address-list.js';
import { type HeaderBlock, scanHeader } from '../../core/mime/header.js';
import { maySignFor } from './report-job.js';

/** Bounds of what is verified: it takes time with the square of the length of a field. */
export const maxHeaderBytes = 64 * 1024;
const maxFieldBytes = 8 * 1024;
const maxSignatures = 5;
const headerBounds = { fields: 500, valueBytes: maxFieldBytes, blockBytes: maxHeaderBytes };

/** What a mail says of its author and its signatures, read cheaply and not verified. */
export interface SignatureClaims {
  /** Domain of the author. */
  readonly author: string;
  /** Names of the keys that may sign for the author. */
  readonly keys: readonly string[];
}

/**
 * Undefined for a mail that is not to be verified: its header is too long or has lines that are no fields, there are
 * several authors or too many signatures.
 *
 * @param head the start of a mail of `size` bytes, longer than `maxHeaderBytes` where the mail is
 */
export function signatureClaims(head: Buffer, size: number): SignatureClaims | undefined {
  const header = scanHeader(head, 0, headerBounds);
  if (!header.isWhole(size) || !isAllFields(header)) return undefined;
  const authors = header.all('from').flatMap((from) => parseAddressList(from));
  const [author] = authors;
  const signatures = header.all('dkim-signature');
  const isBearable = header.all('from').length === 1 && authors.length === 1 && signatures.length <= maxSignatures;
  if (author === undefined || !isBearable) return undefined;
  const domain = author.address.slice(author.address.lastIndexOf('@') + 1).toLowerCase();
  return { author: domain, keys: [...new Set(signatures.flatMap((signature) => keyName(signature, domain)))] };
}

/** Whether each line belongs to a field: of others the bounds say nothing. */
function isAllFields({ fields, bodyOffset }: HeaderBlock): boolean {
  const ends = [0, ...fields.map(({ end }) => end)];
  return fields.every(({ offset }, n) => offset === ends[n]) && bodyOffset - (ends.at(-1) ?? 0) <= 2;
}

/** Of a signature that may sign for the author (RFC 6376 §3.5, §3.6.2.1). */
function keyName(signature: string, author: string): readonly string[] {
  const tags = new Map(signature.split(';').map((tag) => splitTag(tag)));
  const [domain, selector] = [tags.get('d') ?? '', tags.get('s') ?? ''];
  return domain !== '' && selector !== '' && maySignFor(author, domain) ? [`${selector}._domainkey.${domain}`] : [];
}

function splitTag(tag: string): readonly [name: string, value: string] {
  const at = tag.indexOf('=');
  return [
    tag.slice(0, Math.max(at, 0)).trim(),
    tag
      .slice(at + 1)
      .trim()
      .toLowerCase(),
  ];
}
