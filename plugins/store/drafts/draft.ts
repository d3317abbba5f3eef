import { createHash } from 'node:crypto';
import { uniqueIdPattern } from '../../../core/disk/id.js';
import { parseParameters, safeFilename } from '../../../core/mime/content-type.js';
import { problem } from '../../../core/problem.js';
import type { MailboxFolder } from '../folders/folder-name.js';
import type { MessageEntry } from '../maildir/message-entry.js';
import type { MessageFile } from '../folders/message-file.js';
import type { DraftFields, PartSource } from './draft-composition.js';
import type { DraftContent } from '../mime/draft-content.js';

/** The current state of a draft. */
export interface Draft {
  readonly draftId: string;
  /** Unique name of its file; changes with each version. */
  readonly id: string;
  /** Changes with each version. */
  readonly tag: string;
  /** ISO 8601. */
  readonly savedAt: string;
  /** Bytes of the whole message. */
  readonly size: number;
  readonly content: DraftContent;
}

/** Either fields or a whole message. */
export type DraftChange =
  | {
      readonly kind: 'fields';
      readonly fields: DraftFields;
      /** HTML that the editor did not show is kept as long as the text is unchanged. */
      readonly keepHtml?: boolean;
      /** A draft that already has these fields keeps its version. */
      readonly keepVersion?: boolean;
      /** Attachments of a new draft. */
      readonly parts?: readonly PartSource[];
    }
  | { readonly kind: 'raw'; readonly content: AsyncIterable<Buffer> };

/** True when the draft is still the version that the caller read. */
export type Expectation = (tag: string) => boolean;

export interface AttachmentUpload {
  readonly filename: string;
  readonly contentType: string;
  open(): AsyncIterable<Buffer>;
}

/** Unsaved text of the editor, saved together with a change of attachments. */
export interface AlongWith {
  readonly fields?: DraftFields | undefined;
  readonly expected?: Expectation | undefined;
}

/** A draft with its file open, under the lock. */
export interface OpenDraft {
  readonly stored: StoredDraft;
  readonly file: MessageFile;
  readonly content: DraftContent;
}

/** @throws Problem `precondition-failed` */
export function expect({ entry }: StoredDraft, expected: Expectation | undefined): void {
  if (expected === undefined || expected(tagOf(entry.id))) return;
  throw problem('precondition-failed', 'Somebody else has changed this draft since you read it.');
}

export function describe({ stored, file, content }: OpenDraft): Draft {
  return {
    draftId: stored.draftId,
    id: stored.entry.id,
    tag: tagOf(stored.entry.id),
    savedAt: new Date(stored.entry.receivedAt).toISOString(),
    size: file.size,
    content,
  };
}

/** Identity of a draft in the unique name of its file. */
export interface DraftMark {
  readonly draftId: string;
  /** Increases with each version; 0 for a file of another program. */
  readonly revision: number;
}

const marked = /^\d+\.M\d+P\d+Q\d+R[0-9a-f]{32}D([0-9a-hjkmnp-tv-z]{20})V(\d{1,9})\./;
const chance = /R[0-9a-f]{32}(?=\.)/;
/** Leaves room for flags below NAME_MAX, as for every unique name. */
const maxName = 200;
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** Writes the draft's identity into a unique name: `…R<random>D<draftId>V<revision>.<host>,S=…`. */
export function markName(name: string, { draftId, revision }: DraftMark): string {
  const whole = name.replace(chance, (found) => `${found}D${draftId}V${revision}`);
  const surplus = Math.max(0, whole.length - maxName);
  const sizes = whole.indexOf(',');
  return surplus === 0 ? whole : whole.slice(0, sizes - surplus) + whole.slice(sizes);
}

/**
 * The draft that a file is a version of, by its unique name. A draft of a mail client has an id derived from its name;
 * it stays the same when the draft is saved here, since it is written into the name then.
 */
export function draftMarkOf(id: string): DraftMark {
  const match = marked.exec(id);
  if (match !== null) return { draftId: match[1] ?? '', revision: Number(match[2]) };
  const digest = createHash('sha256').update(baseOf(id)).digest();
  const draftId = Array.from(digest.subarray(0, 20), (byte) => alphabet.charAt(byte & 31)).join('');
  return { draftId, revision: 0 };
}

/** The entity tag: changes with each version only. */
export function tagOf(id: string): string {
  return createHash('sha256').update(baseOf(id)).digest('hex').slice(0, 24);
}

/** @throws Problem `not-found` for an invalid id */
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
 * Name and type of an attachment as given by the client. Only the last path component of a name is used. A name that
 * would break a header field or mislead a reader is refused.
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

/** Only leaves may use base64: a message or multipart is stored as bytes (RFC 2046 §5.1, §5.2.1). */
function typeOf(written: string | undefined): string {
  const { value, parameters } = parseParameters(written ?? '');
  if (!token.test(value) || /^(?:multipart|message)\//.test(value)) return octets;
  const named = parameters.get('charset');
  return value.startsWith('text/') && named !== undefined && charset.test(named) ? `${value}; charset=${named}` : value;
}

/** The newest version of a draft, and older versions left by a crash. */
export interface StoredDraft extends DraftMark {
  readonly folder: MailboxFolder;
  readonly entry: MessageEntry;
  readonly older: readonly MessageEntry[];
}
