import { createHash } from 'node:crypto';
import { uniqueIdPattern } from '../../../core/disk/id.js';
import { parseParameters, safeFilename } from '../../../core/mime/content-type.js';
import { problem } from '../../../core/problem.js';
import type { MailboxFolder } from '../maildir/mailbox-folder.js';
import type { MessageEntry } from '../maildir/message-entry.js';
import type { MessageFile } from '../maildir/message-file.js';
import type { DraftFields, PartSource } from './draft-composition.js';
import type { DraftContent } from './draft-content.js';

/** A draft as it is now. */
export interface Draft {
  readonly draftId: string;
  /** Unique name of its present file; another one after each change. */
  readonly id: string;
  /** Changes with each version. */
  readonly tag: string;
  /** ISO 8601. */
  readonly savedAt: string;
  /** Bytes of the whole message. */
  readonly size: number;
  readonly content: DraftContent;
}

/** Fields, or a whole message. */
export type DraftChange =
  | {
      readonly kind: 'fields';
      readonly fields: DraftFields;
      /** HTML that the editor did not show stays, as long as the text beside it is the same. */
      readonly keepHtml?: boolean;
      /** A draft that holds these fields already stays the version that it is. */
      readonly keepVersion?: boolean;
      /** Of a draft that is begun: what is attached from the first. */
      readonly parts?: readonly PartSource[];
    }
  | { readonly kind: 'raw'; readonly content: AsyncIterable<Buffer> };

/** Says whether the version that somebody has read is the present one. */
export type Expectation = (tag: string) => boolean;

export interface AttachmentUpload {
  readonly filename: string;
  readonly contentType: string;
  open(): AsyncIterable<Buffer>;
}

/** What is done to a draft together with a change of its attachments, for an editor whose text is not saved yet. */
export interface AlongWith {
  readonly fields?: DraftFields | undefined;
  readonly expected?: Expectation | undefined;
}

/** A draft whose file is open, held by whoever changes it. */
export interface OpenDraft {
  readonly shelved: StoredDraft;
  readonly file: MessageFile;
  readonly content: DraftContent;
}

/** @throws Problem `precondition-failed` */
export function expect({ entry }: StoredDraft, expected: Expectation | undefined): void {
  if (expected === undefined || expected(tagOf(entry.id))) return;
  throw problem('precondition-failed', 'Somebody else has changed this draft since you read it.');
}

export function describe({ shelved, file, content }: OpenDraft): Draft {
  return {
    draftId: shelved.draftId,
    id: shelved.entry.id,
    tag: tagOf(shelved.entry.id),
    savedAt: new Date(shelved.entry.receivedAt).toISOString(),
    size: file.size,
    content,
  };
}

/** What the unique name of a draft's file says of the draft. */
export interface DraftMark {
  readonly draftId: string;
  /** Rises with each version; 0 for a file that another program wrote. */
  readonly revision: number;
}

const marked = /^\d+\.M\d+P\d+Q\d+R[0-9a-f]{32}D([0-9a-hjkmnp-tv-z]{20})V(\d{1,9})\./;
const chance = /R[0-9a-f]{32}(?=\.)/;
/** As for every unique name: what leaves room for flags below NAME_MAX. */
const maxName = 200;
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** Puts the mark of a draft into a unique name: `…R<random>D<draftId>V<revision>.<host>,S=…`. */
export function markName(name: string, { draftId, revision }: DraftMark): string {
  const whole = name.replace(chance, (found) => `${found}D${draftId}V${revision}`);
  const surplus = Math.max(0, whole.length - maxName);
  const sizes = whole.indexOf(',');
  return surplus === 0 ? whole : whole.slice(0, sizes - surplus) + whole.slice(sizes);
}

/**
 * The draft that a file is a version of, by its unique name. One that a mail client wrote has an id too, worked out from its
 * name: it stays the same when the draft is saved here, for then it stands in the name.
 */
export function markOf(id: string): DraftMark {
  const match = marked.exec(id);
  if (match !== null) return { draftId: match[1] ?? '', revision: Number(match[2]) };
  const digest = createHash('sha256').update(baseOf(id)).digest();
  const draftId = Array.from(digest.subarray(0, 20), (byte) => alphabet.charAt(byte & 31)).join('');
  return { draftId, revision: 0 };
}

/** Changes with each version, and with nothing else. */
export function tagOf(id: string): string {
  return createHash('sha256').update(baseOf(id)).digest('hex').slice(0, 24);
}

/** @throws Problem `not-found`: what can be no id is no draft */
export function parseDraftId(text: string): string {
  if (!uniqueIdPattern.test(text)) throw problem('not-found', 'There is no draft with that id.');
  return text;
}

/** Without the sizes, which another program may add. */
function baseOf(id: string): string {
  return id.replace(/,.*$/s, '');
}

const token = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,99}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,99}$/;
const charset = /^[\w.:-]{1,40}$/;
const octets = 'application/octet-stream';
const maxFilenameLength = 200;

/**
 * What an attachment is called and is, by the words of whoever sends it. A name is text to show: of a path the last component. One
 * that would break a header field, or that misleads who reads it, is refused.
 * @throws Problem `invalid`
 */
export function parseAttachmentLabel(
  filename: string,
  contentType: string | undefined,
): Pick<AttachmentUpload, 'filename' | 'contentType'> {
  const name = safeFilename(filename);
  const isWhole = !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(filename) && filename.length <= maxFilenameLength;
  if (name === undefined || !isWhole) {
    const message = `must be a name of 1 to ${maxFilenameLength} characters, without controls and without invisible characters`;
    throw problem('invalid', { detail: `The file name ${message}.`, errors: [{ pointer: 'filename', message }] });
  }
  return { filename: name, contentType: typeOf(contentType) };
}

/** Only leaves can be in base64: a message or multipart goes as bytes (RFC 2046 §5.1, §5.2.1). */
function typeOf(written: string | undefined): string {
  const { value, parameters } = parseParameters(written ?? '');
  if (!token.test(value) || /^(?:multipart|message)\//.test(value)) return octets;
  const named = parameters.get('charset');
  return value.startsWith('text/') && named !== undefined && charset.test(named) ? `${value}; charset=${named}` : value;
}

/** The newest version of a draft, and what a crash may have left of it. */
export interface StoredDraft extends DraftMark {
  readonly folder: MailboxFolder;
  readonly entry: MessageEntry;
  readonly older: readonly MessageEntry[];
}
