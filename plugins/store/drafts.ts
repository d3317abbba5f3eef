import type { MailboxName } from '../../core/contracts/mailboxes.js';
import { uniqueId } from '../../core/disk/id.js';
import { type AttachmentLabel, encodeAttachment } from '../../core/mime/compose.js';
import { problem } from '../../core/problem.js';
import { type DraftFields, composeDraft, partOf, type PartSource } from './draft-composition.js';
import type { Attachment, DraftContent, DraftPart } from './draft-content.js';
import type { DraftFiles, PreparedFile } from './draft-files.js';
import { tagOf } from './draft-name.js';
import type { DraftShelf, ShelvedDraft } from './draft-shelf.js';
import type { DraftTurns } from './draft-turns.js';
import { folderOfLocal } from './mailbox-name.js';
import type { MessageFile } from './message-file.js';
import type { StoreReader } from './store-reader.js';

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

export interface DraftsInput {
  readonly reader: StoreReader;
  readonly shelf: DraftShelf;
  readonly files: DraftFiles;
  readonly turns: DraftTurns;
  readonly now: () => Date;
}

/** A draft whose file is open, held by whoever changes it. */
export interface OpenDraft {
  readonly shelved: ShelvedDraft;
  readonly file: MessageFile;
  readonly content: DraftContent;
}

const most = 100;

/** Messages that are being written. Every change makes a new file, and one change of a draft follows the other. */
export class Drafts {
  readonly #input: DraftsInput;

  constructor(input: DraftsInput) {
    this.#input = input;
  }

  /** @throws Problem `not-found` */
  async read(mailbox: MailboxName, draftId: string): Promise<Draft> {
    const { shelf } = this.#input;
    const found = await shelf.find(mailbox, draftId);
    if (found.older.length > 0) {
      await this.#alone(mailbox, draftId, async () => shelf.tidy(mailbox, await shelf.find(mailbox, draftId)));
    }
    return this.#opened(mailbox, draftId, (open) => Promise.resolve(describe(open)));
  }

  /** @throws Problem `not-found`, `invalid`, `too-large`, `mailbox-full` */
  async create(mailbox: MailboxName, change: DraftChange): Promise<Draft> {
    const { shelf, files } = this.#input;
    const draftId = uniqueId();
    const prepared = await this.#prepare(mailbox, change, undefined);
    try {
      await shelf.save(mailbox, prepared, draftId, undefined);
    } finally {
      await files.discard(prepared);
    }
    return this.read(mailbox, draftId);
  }

  /** Attachments stay, unless a raw message takes the place of everything. @throws Problem also `precondition-failed` */
  async update(mailbox: MailboxName, draftId: string, change: DraftChange, expected?: Expectation): Promise<Draft> {
    if (change.kind === 'fields') {
      return this.#change(mailbox, draftId, expected, (open) => this.#prepare(mailbox, change, open));
    }
    await this.#input.shelf.find(mailbox, draftId);
    // What comes slowly is not waited for while others wait for the draft.
    const raw = await this.#prepareRaw(change.content);
    try {
      return await this.#alone(mailbox, draftId, () => this.#replace(mailbox, draftId, expected, raw));
    } finally {
      await this.#input.files.discard(raw);
    }
  }

  /** By a whole message; the one before may be one that nobody can parse. */
  async #replace(
    mailbox: MailboxName,
    draftId: string,
    expected: Expectation | undefined,
    raw: PreparedFile,
  ): Promise<Draft> {
    const { shelf } = this.#input;
    const found = await shelf.find(mailbox, draftId);
    expect(found, expected);
    await shelf.save(mailbox, raw, draftId, found);
    return this.#opened(mailbox, draftId, (open) => Promise.resolve(describe(open)));
  }

  /** @throws Problem `not-found`, `precondition-failed` */
  remove(mailbox: MailboxName, draftId: string, expected?: Expectation): Promise<void> {
    const { shelf } = this.#input;
    return this.#alone(mailbox, draftId, async () => {
      const found = await shelf.find(mailbox, draftId);
      expect(found, expected);
      await shelf.remove(mailbox, found);
    });
  }

  /** @throws Problem `not-found`, `too-large`, `mailbox-full`, `precondition-failed` */
  async attach(
    mailbox: MailboxName,
    draftId: string,
    uploads: readonly AttachmentUpload[],
    { fields, expected }: AlongWith = {},
  ): Promise<{ readonly draft: Draft; readonly added: readonly Attachment[] }> {
    await this.#input.shelf.find(mailbox, draftId);
    const encoded: PreparedFile[] = [];
    const labels: AttachmentLabel[] = [];
    try {
      for (const upload of uploads) {
        const label = { attachmentId: uniqueId(), filename: upload.filename, contentType: upload.contentType };
        labels.push(label);
        encoded.push(await this.#input.files.prepare(encodeAttachment(label, upload.open())));
      }
      const added = encoded.map((file) => ({ open: () => this.#input.files.open(file) }));
      const draft = await this.#change(mailbox, draftId, expected, (open) => {
        if (open.content.attachments.length + added.length > most) {
          throw problem('conflict', `A draft may have ${most} attachments at most.`);
        }
        return this.#compose(mailbox, open, fields, [...partsOf(open), ...added]);
      });
      const ids = new Set(labels.map(({ attachmentId }) => attachmentId));
      return { draft, added: draft.content.attachments.filter(({ attachmentId }) => ids.has(attachmentId)) };
    } finally {
      await this.#input.files.discard(...encoded);
    }
  }

  /** @throws Problem `not-found`, `precondition-failed` */
  detach(
    mailbox: MailboxName,
    draftId: string,
    attachmentId: string,
    { fields, expected }: AlongWith = {},
  ): Promise<Draft> {
    return this.#change(mailbox, draftId, expected, (open) => {
      const left = open.content.attachments.filter((part) => part.attachmentId !== attachmentId);
      if (left.length === open.content.attachments.length) throw noAttachment();
      return this.#compose(mailbox, open, fields, partsOf(open, left));
    });
  }

  /** The decoded bytes of an attachment. @throws Problem `not-found` */
  async attachment(mailbox: MailboxName, draftId: string, attachmentId: string) {
    return this.#opened(mailbox, draftId, async ({ file, content, shelved }) => {
      const found = content.attachments.find((part) => part.attachmentId === attachmentId);
      if (found === undefined) throw noAttachment();
      return { ...(await this.#input.reader.partOf(file, found.part)), filename: found.filename, id: shelved.entry.id };
    });
  }

  /** Runs while nobody else changes the draft, with its file open. */
  held<T>(mailbox: MailboxName, draftId: string, task: (open: OpenDraft) => Promise<T>): Promise<T> {
    return this.#alone(mailbox, draftId, () => this.#opened(mailbox, draftId, task));
  }

  #change(
    mailbox: MailboxName,
    draftId: string,
    expected: Expectation | undefined,
    prepare: (open: OpenDraft) => Promise<PreparedFile>,
  ): Promise<Draft> {
    const { shelf, files } = this.#input;
    return this.#alone(mailbox, draftId, async () => {
      await this.#opened(mailbox, draftId, async (open) => {
        expect(open.shelved, expected);
        const prepared = await prepare(open);
        try {
          await shelf.save(mailbox, prepared, draftId, open.shelved);
        } finally {
          await files.discard(prepared);
        }
      });
      return this.#opened(mailbox, draftId, (open) => Promise.resolve(describe(open)));
    });
  }

  #alone<T>(mailbox: MailboxName, draftId: string, task: () => Promise<T>): Promise<T> {
    return this.#input.turns.take(`${mailbox.domain}/${folderOfLocal(mailbox.user)}/${draftId}`, task);
  }

  async #opened<T>(mailbox: MailboxName, draftId: string, task: (open: OpenDraft) => Promise<T>): Promise<T> {
    const { shelf, reader } = this.#input;
    const shelved = await shelf.find(mailbox, draftId);
    const file = await reader.open({ mailbox, folder: shelved.folder.name, id: shelved.entry.id });
    try {
      return await task({ shelved, file, content: await reader.draft(file) });
    } finally {
      await file.handle.close();
    }
  }

  #prepare(mailbox: MailboxName, change: DraftChange, open: OpenDraft | undefined): Promise<PreparedFile> {
    if (change.kind === 'raw') return this.#prepareRaw(change.content);
    const html = change.keepHtml === true ? keptHtml(change.fields, open) : change.fields.html;
    const fields = { ...change.fields, html };
    return this.#compose(mailbox, open, fields, open === undefined ? (change.parts ?? []) : partsOf(open));
  }

  async #prepareRaw(content: AsyncIterable<Buffer>): Promise<PreparedFile> {
    const prepared = await this.#input.files.prepare(content);
    if (prepared.size > 0) return prepared;
    await this.#input.files.discard(prepared);
    throw problem('bad-request', 'The message is empty.');
  }

  #compose(
    mailbox: MailboxName,
    open: OpenDraft | undefined,
    fields: DraftFields | undefined,
    parts: readonly PartSource[],
  ): Promise<PreparedFile> {
    const { files, now } = this.#input;
    return files.prepare(composeDraft({ mailbox, before: open?.content, fields, parts, now: now() }));
  }
}

function keptHtml(fields: DraftFields, open: OpenDraft | undefined): string | null {
  const before = open?.content;
  return before !== undefined && (before.text ?? '') === (fields.text ?? '') ? before.html : null;
}

/** @throws Problem `precondition-failed` */
export function expect({ entry }: ShelvedDraft, expected: Expectation | undefined): void {
  if (expected === undefined || expected(tagOf(entry.id))) return;
  throw problem('precondition-failed', 'Somebody else has changed this draft since you read it.');
}

export function partsOf({ file, content }: OpenDraft, parts = content.attachments): readonly PartSource[] {
  return partsOfMessage(file, parts);
}

export function partsOfMessage(file: MessageFile, parts: readonly DraftPart[]): readonly PartSource[] {
  return parts.map((part) => partOf(file, part));
}

function describe({ shelved, file, content }: OpenDraft): Draft {
  return {
    draftId: shelved.draftId,
    id: shelved.entry.id,
    tag: tagOf(shelved.entry.id),
    savedAt: new Date(shelved.entry.receivedAt).toISOString(),
    size: file.size,
    content,
  };
}

function noAttachment() {
  return problem('not-found', 'There is no such attachment of this draft.');
}
