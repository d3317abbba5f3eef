import { randomBytes } from 'node:crypto';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { addressesIn, type DisplayAddress } from '../../../core/mime/address-list.js';
import { makeAddress } from '../../../core/mime/address.js';
import { decodeCharset } from '../../../core/mime/charset.js';
import { decodedSize, decodeTransfer } from '../../../core/mime/decode.js';
import { type HeaderBlock, mailDate, scanHeader } from '../../../core/mime/header.js';
import { attachmentField, ownParts, type Part, readStructure, type Structure } from '../../../core/mime/structure.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { MessageFile } from '../maildir/message-file.js';
import { composeMessage, correspondent, type Correspondent, type RawPart } from '../mime/compose.js';
import { readBody } from '../mime/message-text.js';
import { dateOf, readableParts, subjectOf } from '../mime/summary.js';

/** A draft as its file says it. */
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
  /** As it was written, nothing sanitised: it is for an editor. */
  readonly text: string | null;
  readonly html: string | null;
  readonly attachments: readonly DraftPart[];
  /** Header fields that no field of a draft stands for, as they are in the file. */
  readonly kept: string;
  /** The tree of parts was not read to its end, so it cannot be taken to pieces. */
  readonly truncated: boolean;
}

export interface Attachment {
  readonly attachmentId: string;
  readonly filename: string;
  readonly contentType: string;
  /** Bytes, decoded. */
  readonly size: number;
}

/** An attachment and where it is. */
interface DraftPart extends Attachment {
  /** Number of the part, as in IMAP. */
  readonly part: string;
  /** Its header fields as they shall stand in the next version, its id among them. */
  readonly header: string;
  /** Bytes of the file that hold its id, which is ours alone: sent messages have none. */
  readonly marks: readonly { readonly start: number; readonly end: number }[];
  /** Bytes of the file: its body, still encoded, from `start` up to `end`. */
  readonly start: number;
  readonly end: number;
}

/** Characters of a body that are taken; a JSON body is no longer. */
const maxBody = 4 * 1024 * 1024;
const maxKept = 64 * 1024;

/** Runs in a parse worker: `bytes` is the whole file. */
export async function readDraft(bytes: Buffer): Promise<DraftContent> {
  const structure = readStructure(bytes);
  const { header } = structure;
  const { text, html } = readableParts(structure);
  const bodies = new Set<Part>([...text, ...html]);
  const wholeText = await joined(bytes, text, '\n');
  const wholeHtml = await joined(bytes, html, '\n');
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
    text: wholeText?.slice(0, maxBody) ?? null,
    html: wholeHtml?.slice(0, maxBody) ?? null,
    attachments: attachmentsOf(bytes, structure, bodies),
    kept: keptFields(bytes, header),
    truncated:
      structure.truncated ||
      isBroken(structure) ||
      [wholeText, wholeHtml].some((body) => (body?.length ?? 0) > maxBody),
  };
}

/** A multipart without a boundary: nobody can say what belongs to which part. */
function isBroken({ root }: Structure): boolean {
  return root.contentType.startsWith('multipart/') && root.boundary === undefined;
}

function people(header: HeaderBlock, key: string): readonly DisplayAddress[] {
  return [...addressesIn(header.all(key))];
}

function messageIds(header: HeaderBlock, key: string): readonly string[] {
  return (header.first(key) ?? '').match(/<[^<>\s]{1,990}>/g) ?? [];
}

async function joined(bytes: Buffer, parts: readonly Part[], separator: string): Promise<string | null> {
  if (parts.length === 0) return null;
  const texts: string[] = [];
  for (const part of parts) texts.push(await textOf(bytes, part));
  return texts.join(separator);
}

/** Without the end of its last line, which a writer adds. */
async function textOf(bytes: Buffer, part: Part): Promise<string> {
  if (part.flowed) return (await readBody(bytes, part)).text;
  const body = decodeTransfer(bytes.subarray(part.bodyOffset, part.end), part.encoding);
  return decodeCharset(body, part.charset).replaceAll('\r\n', '\n').replace(/\n$/, '');
}

/** Every leaf but the texts that an editor shows: pictures that the HTML refers to are kept with the rest. */
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

/** What a composer writes itself, and what belonged to a way that the message has not gone yet. */
const kept =
  /^(?!(?:from|to|cc|bcc|subject|date|message-id|in-reply-to|references|mime-version|content-.*|return-path|received|delivered-to|x-postern-.*)$)/;

function keptFields(bytes: Buffer, header: HeaderBlock): string {
  const text = fieldsOf(bytes, header, kept);
  return text.length > maxKept ? '' : text;
}

/** What a person writes: all of it checked. */
export interface DraftFields {
  /** Null: whose mailbox it is. */
  readonly from: Correspondent | null;
  readonly to: readonly Correspondent[];
  readonly cc: readonly Correspondent[];
  readonly bcc: readonly Correspondent[];
  readonly subject: string;
  readonly text: string | null;
  readonly html: string | null;
  readonly inReplyTo: string | null;
  readonly references: readonly string[];
}

export type PartSource = RawPart;

interface DraftComposition {
  readonly mailbox: MailboxName;
  /** The version before; undefined for a new draft. */
  readonly before: DraftContent | undefined;
  /** Undefined: those of the version before stay. */
  readonly fields: DraftFields | undefined;
  readonly parts: readonly PartSource[];
  readonly now: Date;
}

/** A draft as a message. @throws Problem `conflict` when the version before cannot be taken to pieces */
export function composeDraft({ mailbox, before, fields, parts, now }: DraftComposition): AsyncIterable<Buffer> {
  if (before?.truncated === true) {
    throw problem(
      'conflict',
      'This draft is too large or too deep to be edited in parts. Replace it by a raw message.',
    );
  }
  const written = fields ?? fieldsOfStructure(before);
  return composeMessage({
    ...written,
    from: written.from ?? ownerOf(mailbox),
    text: written.text ?? (written.html === null ? '' : null),
    date: mailDate(now),
    messageId: before?.messageId ?? newMessageId(mailbox),
    kept: Buffer.from(before?.kept ?? '', 'latin1'),
    parts,
  });
}

/** What an editor shows no HTML of keeps it, as long as the text beside it is the same. */
export function withKeptHtml(fields: DraftFields, before: DraftContent | undefined): DraftFields {
  if (fields.html !== null || before === undefined || (before.text ?? '') !== (fields.text ?? '')) return fields;
  return { ...fields, html: before.html };
}

export function newMessageId({ domain }: MailboxName): string {
  return `<${randomBytes(16).toString('hex')}@${domain}>`;
}

export function ownerOf({ user, domain }: MailboxName): Correspondent {
  return { name: '', address: makeAddress(user, domain) };
}

/** Whether saving these fields would leave the draft as it is. HTML that an editor does not show is not asked for. */
export function holdsFields(mailbox: MailboxName, before: DraftContent, fields: DraftFields): boolean {
  if (before.truncated || before.from === null) return false;
  const { from, html, text, ...rest } = fields;
  if ((text ?? '') !== (before.text ?? '') || (html !== null && html !== before.html)) return false;
  const shown = ({ name, address }: Correspondent) => [name, address.address];
  const people = (list: readonly Correspondent[]) => list.map(shown);
  const listed = (list: readonly DisplayAddress[]) => list.map(({ name, address }) => [name, address]);
  const { to, cc, bcc, subject, inReplyTo, references } = rest;
  const wanted = [
    [shown(from ?? ownerOf(mailbox))],
    people(to),
    people(cc),
    people(bcc),
    subject,
    inReplyTo,
    references,
  ];
  const found = [
    ...[[before.from], before.to, before.cc, before.bcc].map(listed),
    before.subject,
    before.inReplyTo,
    before.references,
  ];
  return JSON.stringify(wanted) === JSON.stringify(found);
}

/** The part as it is in the file, so that nothing of it is held in memory. */
function partOf({ handle }: MessageFile, { header, start, end }: DraftPart): PartSource {
  return {
    async *open() {
      yield Buffer.from(`${header}\r\n`, 'latin1');
      yield* readRange(handle, start, end);
    },
  };
}

const pieceBytes = 64 * 1024;

export function partsOfMessage(file: MessageFile, parts: readonly DraftPart[]): readonly PartSource[] {
  return parts.map((part) => partOf(file, part));
}

/** The bytes of an open file from `start` up to `end`. A stream for each part would leave its listeners on the handle. */
export async function* readRange(handle: MessageFile['handle'], start: number, end: number): AsyncGenerator<Buffer> {
  for (let at = start; at < end;) {
    const piece = Buffer.allocUnsafeSlow(Math.min(pieceBytes, end - at));
    const { bytesRead } = await handle.read(piece, 0, piece.length, at);
    if (bytesRead === 0) throw new Error('a draft is shorter than it was');
    at += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
}

function fieldsOfStructure(before: DraftContent | undefined): DraftFields {
  if (before === undefined) throw new Error('a new draft has fields');
  const { from, to, cc, bcc, subject, text, html, inReplyTo, references } = before;
  const people = (list: readonly DisplayAddress[]) => list.map(sendable);
  return {
    from: from === null ? null : sendable(from),
    to: people(to),
    cc: people(cc),
    bcc: people(bcc),
    subject,
    text,
    html,
    inReplyTo,
    references,
  };
}

/** Another program may have written anything into the address fields. @throws Problem `invalid` */
export function sendable({ name, address }: DisplayAddress): Correspondent {
  try {
    return correspondent(name, address);
  } catch (error) {
    if (!isProblem(error)) throw error;
    const shown = (address === '' ? name : address).slice(0, 200);
    const errors = [{ pointer: shown, message: error.message }];
    throw problem('invalid', {
      detail: `The draft is written to "${shown}", which is no address. Correct it first.`,
      errors,
    });
  }
}
