import { addressesIn, type DisplayAddress } from '../../../core/mime/address-list.js';
import { decodeCharset } from '../../../core/mime/charset.js';
import { decodedSize, decodeTransfer } from '../../../core/mime/decode.js';
import { type HeaderBlock, scanHeader } from '../../../core/mime/header.js';
import { attachmentField, ownParts, type Part, readStructure, type Structure } from '../../../core/mime/structure.js';
import { readTextBody, type TextBody } from './message-text.js';
import { dateOf, readableParts, subjectOf } from './summary.js';

/** A parsed draft. */
export interface DraftContent {
  readonly from: DisplayAddress | null;
  readonly to: readonly DisplayAddress[];
  readonly cc: readonly DisplayAddress[];
  readonly bcc: readonly DisplayAddress[];
  readonly subject: string;
  readonly date: string | null;
  readonly messageId: string | null;
  readonly inReplyTo: string | null;
  readonly references: readonly string[];
  /** As written, not sanitised: for an editor. */
  readonly text: string | null;
  readonly html: string | null;
  readonly attachments: readonly DraftPart[];
  /** Header fields without a field in the draft, as they are in the file. */
  readonly kept: string;
  /** The part tree, or a text, was not read completely: the message cannot be written again from this. */
  readonly truncated: boolean;
}

export interface Attachment {
  readonly attachmentId: string;
  readonly filename: string;
  readonly contentType: string;
  /** Bytes, decoded. */
  readonly size: number;
}

/** An attachment with its position. */
export interface DraftPart extends Attachment {
  /** Number of the part, as in IMAP. */
  readonly part: string;
  /** Its header fields for the next version, with its id. */
  readonly header: string;
  /** Ranges of the file that contain its id, which is internal: sent messages have none. */
  readonly marks: readonly { readonly start: number; readonly end: number }[];
  /** Range of its encoded body in the file: from `start` up to `end`. */
  readonly start: number;
  readonly end: number;
}

/** Maximum characters of a body, the same as of a JSON body. */
const maxBody = 4 * 1024 * 1024;
const maxKept = 64 * 1024;

/** Runs in a parse worker: `bytes` is the whole file. */
export async function readDraft(bytes: Buffer): Promise<DraftContent> {
  const structure = readStructure(bytes);
  const { header } = structure;
  const { text, html } = readableParts(structure);
  const bodies = new Set<Part>([...text, ...html]);
  const wholeText = await joined(bytes, text);
  const wholeHtml = await joined(bytes, html);
  return {
    from: people(header, 'from')[0] ?? null,
    to: people(header, 'to'),
    cc: people(header, 'cc'),
    bcc: people(header, 'bcc'),
    subject: subjectOf(header),
    date: dateOf(header.first('date')),
    messageId: messageIds(header, 'message-id')[0] ?? null,
    inReplyTo: messageIds(header, 'in-reply-to')[0] ?? null,
    references: messageIds(header, 'references'),
    text: wholeText?.text ?? null,
    html: wholeHtml?.text ?? null,
    attachments: attachmentsOf(bytes, structure, bodies),
    kept: keptFields(bytes, header),
    truncated: structure.truncated || isBroken(structure) || wholeText?.cut === true || wholeHtml?.cut === true,
  };
}

/** A multipart without a boundary, whose parts cannot be separated. */
function isBroken({ root }: Structure): boolean {
  return root.contentType.startsWith('multipart/') && root.boundary === undefined;
}

export function people(header: HeaderBlock, key: string): readonly DisplayAddress[] {
  return [...addressesIn(header.all(key))];
}

function messageIds(header: HeaderBlock, key: string): readonly string[] {
  return (header.first(key) ?? '').match(/<[^<>\s]{1,990}>/g) ?? [];
}

async function joined(bytes: Buffer, parts: readonly Part[]): Promise<TextBody | null> {
  if (parts.length === 0) return null;
  const bodies: TextBody[] = [];
  for (const part of parts) bodies.push(await textOf(bytes, part));
  const text = bodies.map((body) => body.text).join('\n');
  return { text: text.slice(0, maxBody), cut: text.length > maxBody || bodies.some(({ cut }) => cut) };
}

/** Without the last line end, which the composer adds. */
async function textOf(bytes: Buffer, part: Part): Promise<TextBody> {
  if (part.flowed) return readTextBody(bytes, part);
  const body = decodeTransfer(bytes.subarray(part.bodyOffset, part.end), part.encoding);
  return { text: decodeCharset(body, part.charset).replaceAll('\r\n', '\n').replace(/\n$/, ''), cut: false };
}

/** Every leaf except the texts in the editor: inline images of the HTML are kept as attachments. */
function attachmentsOf(bytes: Buffer, structure: Structure, bodies: ReadonlySet<Part>): readonly DraftPart[] {
  const taken = new Set<string>();
  return ownParts(structure)
    .filter((part) => !bodies.has(part))
    .map((part) => describe(bytes, part, taken));
}

const writtenId = /^[0-9A-Za-z._-]{1,64}$/;

function describe(bytes: Buffer, part: Part, taken: Set<string>): DraftPart {
  const header = scanHeader(bytes.subarray(0, part.bodyOffset), part.headerOffset);
  const found = header.first(attachmentField.toLowerCase());
  const isNamed = found !== undefined && writtenId.test(found) && !taken.has(found);
  const attachmentId = isNamed ? found : `part-${part.part}`;
  taken.add(attachmentId);
  return {
    attachmentId,
    filename: part.filename ?? part.cid?.replace(/[^\w.-]/g, '_').slice(0, 100) ?? `part-${part.part}`,
    contentType: part.contentType,
    size: decodedSize(bytes.subarray(part.bodyOffset, part.end), part.encoding),
    part: part.part,
    header: `${attachmentField}: ${attachmentId}\r\n${fieldsOf(bytes, header, /^content-/)}`,
    marks: marksIn(header),
    start: part.bodyOffset,
    end: part.end,
  };
}

function marksIn(header: HeaderBlock): readonly { readonly start: number; readonly end: number }[] {
  const marks = header.fields.filter(({ key }) => key === attachmentField.toLowerCase());
  return marks.map(({ offset, end }) => ({ start: offset, end }));
}

/** The fields of those names as they are in the file. */
function fieldsOf(bytes: Buffer, header: HeaderBlock, names: RegExp): string {
  return header.fields
    .filter(({ key }) => names.test(key))
    .map(({ offset, end }) => bytes.toString('latin1', offset, end))
    .join('');
}

/** Fields that a composer writes itself, and fields of a transport that has not happened yet. */
export const kept =
  /^(?!(?:from|to|cc|bcc|subject|date|message-id|in-reply-to|references|mime-version|content-.*|return-path|received|delivered-to|x-postern-.*)$)/;

function keptFields(bytes: Buffer, header: HeaderBlock): string {
  const text = fieldsOf(bytes, header, kept);
  return text.length > maxKept ? '' : text;
}
