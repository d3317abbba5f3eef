import { randomBytes } from 'node:crypto';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { DisplayAddress } from '../../../core/mime/address-list.js';
import { makeAddress } from '../../../core/mime/address.js';
import { mailDate } from '../../../core/mime/header.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { MessageFile } from '../folders/message-file.js';
import { composeMessage, correspondent, type Correspondent, type RawPart } from '../mime/compose.js';
import type { DraftContent, DraftPart } from '../mime/draft-content.js';

/** The validated input of a user. */
export interface DraftFields {
  /** Null for the mailbox's own address. */
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
  /** The version it replaces; undefined for a new draft. */
  readonly before: DraftContent | undefined;
  /** Undefined: keep those of the replaced version. */
  readonly fields: DraftFields | undefined;
  readonly parts: readonly PartSource[];
  readonly now: Date;
}

/** A draft as a message. @throws Problem `conflict` when the replaced version cannot be parsed completely */
export function composeDraft({ mailbox, before, fields, parts, now }: DraftComposition): AsyncIterable<Buffer> {
  if (before?.truncated === true) {
    throw problem(
      'conflict',
      'This draft is too large or too deep to be edited in parts. Replace it by a raw message.',
    );
  }
  const written = fields ?? fieldsOf(before);
  return composeMessage({
    ...written,
    from: written.from ?? mailboxOwner(mailbox),
    text: written.text ?? (written.html === null ? '' : null),
    date: mailDate(now),
    messageId: before?.messageId ?? newMessageId(mailbox),
    kept: Buffer.from(before?.kept ?? '', 'latin1'),
    parts,
  });
}

/** Keeps the HTML that an editor does not show, as long as the text is unchanged. */
export function withKeptHtml(fields: DraftFields, before: DraftContent | undefined): DraftFields {
  if (fields.html !== null || before === undefined || (before.text ?? '') !== (fields.text ?? '')) return fields;
  return { ...fields, html: before.html };
}

export function newMessageId({ domain }: MailboxName): string {
  return `<${randomBytes(16).toString('hex')}@${domain}>`;
}

export function mailboxOwner({ user, domain }: MailboxName): Correspondent {
  return { name: '', address: makeAddress(user, domain) };
}

/** True when saving these fields would not change the draft. HTML that an editor does not show is ignored. */
export function holdsFields(mailbox: MailboxName, before: DraftContent, fields: DraftFields): boolean {
  if (before.truncated || before.from === null) return false;
  const { from, html, text, ...rest } = fields;
  if ((text ?? '') !== (before.text ?? '') || (html !== null && html !== before.html)) return false;
  const shown = ({ name, address }: Correspondent) => [name, address.address];
  const people = (list: readonly Correspondent[]) => list.map(shown);
  const listed = (list: readonly DisplayAddress[]) => list.map(({ name, address }) => [name, address]);
  const { to, cc, bcc, subject, inReplyTo, references } = rest;
  const wanted = [
    [shown(from ?? mailboxOwner(mailbox))],
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

/** The part as a range of the file, so that it is not held in memory. */
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

function fieldsOf(before: DraftContent | undefined): DraftFields {
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

/** Other programs may have written invalid address fields. @throws Problem `invalid` */
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

/**
 * The bytes of an open file from `start` up to `end`. Not a stream, since each stream would add listeners to the
 * handle.
 */
export async function* readRange(handle: MessageFile['handle'], start: number, end: number): AsyncGenerator<Buffer> {
  for (let at = start; at < end;) {
    const piece = Buffer.allocUnsafeSlow(Math.min(pieceBytes, end - at));
    const { bytesRead } = await handle.read(piece, 0, piece.length, at);
    if (bytesRead === 0) throw new Error('a draft is shorter than it was');
    at += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
}
