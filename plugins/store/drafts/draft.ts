import { problem } from '../../../core/problem.js';
import type { DraftFields, PartSource } from './draft-composition.js';
import type { DraftContent } from './draft-content.js';
import { tagOf } from './draft-name.js';
import type { ShelvedDraft } from './draft-shelf.js';
import type { MessageFile } from '../maildir/message-file.js';

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
  readonly shelved: ShelvedDraft;
  readonly file: MessageFile;
  readonly content: DraftContent;
}

/** @throws Problem `precondition-failed` */
export function expect({ entry }: ShelvedDraft, expected: Expectation | undefined): void {
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
