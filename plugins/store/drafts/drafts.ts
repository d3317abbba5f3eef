import type { KeyedMutex } from '../../../core/concurrency.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { uniqueId } from '../../../core/disk/id.js';
import { isProblem, problem } from '../../../core/problem.js';
import { folderOfLocal } from '../maildir/mailbox-name.js';
import { compareNewestFirst, type OrderKey } from '../maildir/message-entry.js';
import type { MessageSummary } from '../folders/message-summary.js';
import type { StoreReader } from '../messages/store-reader.js';
import { type AttachmentLabel, encodeAttachment } from '../mime/compose.js';
import { type Page, pageOf, type PageRequest } from '../maildir/page.js';
import {
  composeDraft,
  type DraftFields,
  holdsFields,
  partsOfMessage,
  type PartSource,
  withKeptHtml,
} from './draft-composition.js';
import type { Attachment } from '../mime/draft-content.js';
import type { DraftFiles, DraftStore } from './draft-store.js';
import { type PreparedFile } from './draft-store.js';
import {
  type AlongWith,
  type AttachmentUpload,
  describe,
  type Draft,
  type DraftChange,
  expect,
  type Expectation,
  type OpenDraft,
} from './draft.js';

interface DraftsInput {
  readonly reader: StoreReader;
  readonly store: DraftStore;
  readonly files: DraftFiles;
  readonly turns: KeyedMutex;
  readonly now: () => Date;
}

const maxAttachments = 100;

/** Messages that are being written. Every change creates a new file; changes of one draft run one after the other. */
export class Drafts {
  readonly #input: DraftsInput;

  constructor(input: DraftsInput) {
    this.#input = input;
  }

  /** @throws Problem `not-found` */
  async read(mailbox: MailboxName, draftId: string): Promise<Draft> {
    const { store } = this.#input;
    const found = await this.#found(mailbox, draftId, () => store.find(mailbox, draftId));
    if (found.older.length > 0) {
      await this.#alone(mailbox, draftId, async () => store.tidy(mailbox, await store.find(mailbox, draftId)));
    }
    return this.#shown(mailbox, draftId, (open) => Promise.resolve(describe(open)));
  }

  isThere(mailbox: MailboxName, draftId: string): Promise<boolean> {
    return this.#alone(mailbox, draftId, async () => {
      const all = await this.#input.store.all(mailbox);
      return all.some((draft) => draft.draftId === draftId);
    });
  }

  /** @throws Problem `not-found`, `invalid`, `too-large`, `mailbox-full` */
  async create(mailbox: MailboxName, change: DraftChange): Promise<Draft> {
    const { store, files } = this.#input;
    const draftId = uniqueId();
    const prepared = await this.#prepare(mailbox, change, undefined);
    try {
      await store.save(mailbox, prepared, draftId, undefined);
    } finally {
      await files.discard(prepared);
    }
    return this.read(mailbox, draftId);
  }

  /** Keeps the attachments unless a raw message replaces everything. @throws Problem also `precondition-failed` */
  async update(mailbox: MailboxName, draftId: string, change: DraftChange, expected?: Expectation): Promise<Draft> {
    if (change.kind === 'fields') {
      const { fields, keepVersion = false } = change;
      return this.#change(mailbox, draftId, expected, (open) => {
        if (keepVersion && holdsFields(mailbox, open.content, fields)) return undefined;
        return this.#prepare(mailbox, change, open);
      });
    }
    await this.#found(mailbox, draftId, () => this.#input.store.find(mailbox, draftId));
    // Reads a slow request body before it takes the lock.
    const raw = await this.#prepareRaw(change.content);
    try {
      return await this.#alone(mailbox, draftId, () => this.#replace(mailbox, draftId, expected, raw));
    } finally {
      await this.#input.files.discard(raw);
    }
  }

  /** Replaces it by a whole message; the current one may be unparsable. */
  async #replace(
    mailbox: MailboxName,
    draftId: string,
    expected: Expectation | undefined,
    raw: PreparedFile,
  ): Promise<Draft> {
    const { store } = this.#input;
    const found = await store.find(mailbox, draftId);
    expect(found, expected);
    await store.save(mailbox, raw, draftId, found);
    return this.#opened(mailbox, draftId, (open) => Promise.resolve(describe(open)));
  }

  /** @throws Problem `not-found`, `precondition-failed` */
  remove(mailbox: MailboxName, draftId: string, expected?: Expectation): Promise<void> {
    const { store } = this.#input;
    return this.#alone(mailbox, draftId, async () => {
      const found = await store.find(mailbox, draftId);
      expect(found, expected);
      await store.remove(mailbox, found);
    });
  }

  /** @throws Problem `not-found`, `too-large`, `mailbox-full`, `precondition-failed` */
  async attach(
    mailbox: MailboxName,
    draftId: string,
    uploads: readonly AttachmentUpload[],
    { fields, expected }: AlongWith = {},
  ): Promise<{ readonly draft: Draft; readonly added: readonly Attachment[] }> {
    await this.#found(mailbox, draftId, () => this.#input.store.find(mailbox, draftId));
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
        if (open.content.attachments.length + added.length > maxAttachments) {
          throw problem('conflict', `A draft may have ${maxAttachments} attachments at most.`);
        }
        return this.#composeAlong(mailbox, open, fields, [...partsOf(open), ...added]);
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
      return this.#composeAlong(mailbox, open, fields, partsOf(open, left));
    });
  }

  /** The decoded bytes of an attachment. @throws Problem `not-found` */
  async attachment(mailbox: MailboxName, draftId: string, attachmentId: string) {
    return this.#shown(mailbox, draftId, async ({ file, content, stored }) => {
      const found = content.attachments.find((part) => part.attachmentId === attachmentId);
      if (found === undefined) throw noAttachment();
      return { ...(await this.#input.reader.partOf(file, found.part)), filename: found.filename, id: stored.entry.id };
    });
  }

  /** Runs under the lock of the draft with its file open. */
  held<T>(mailbox: MailboxName, draftId: string, task: (open: OpenDraft) => Promise<T>): Promise<T> {
    return this.#alone(mailbox, draftId, () => this.#opened(mailbox, draftId, task));
  }

  #change(
    mailbox: MailboxName,
    draftId: string,
    expected: Expectation | undefined,
    /** Undefined: nothing changes. */
    prepare: (open: OpenDraft) => Promise<PreparedFile> | undefined,
  ): Promise<Draft> {
    const { store, files } = this.#input;
    return this.#alone(mailbox, draftId, async () => {
      await this.#opened(mailbox, draftId, async (open) => {
        expect(open.stored, expected);
        const prepared = await prepare(open);
        if (prepared === undefined) return;
        try {
          await store.save(mailbox, prepared, draftId, open.stored);
        } finally {
          await files.discard(prepared);
        }
      });
      return this.#opened(mailbox, draftId, (open) => Promise.resolve(describe(open)));
    });
  }

  #alone<T>(mailbox: MailboxName, draftId: string, task: () => Promise<T>): Promise<T> {
    return this.#input.turns.run(`${mailbox.domain}/${folderOfLocal(mailbox.user)}/${draftId}`, task);
  }

  /** For a caller that changes nothing. */
  #shown<T>(mailbox: MailboxName, draftId: string, task: (open: OpenDraft) => Promise<T>): Promise<T> {
    return this.#found(mailbox, draftId, () => this.#opened(mailbox, draftId, task));
  }

  /** A missing file may be hidden by a concurrent change, so the lookup is repeated under the lock. */
  async #found<T>(mailbox: MailboxName, draftId: string, look: () => Promise<T>): Promise<T> {
    try {
      return await look();
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'not-found') throw error;
      return this.#alone(mailbox, draftId, look);
    }
  }

  async #opened<T>(mailbox: MailboxName, draftId: string, task: (open: OpenDraft) => Promise<T>): Promise<T> {
    const { store, reader } = this.#input;
    const stored = await store.find(mailbox, draftId);
    const file = await reader.open({ mailbox, folder: stored.folder.name, id: stored.entry.id });
    try {
      return await task({ stored, file, content: await reader.draft(file) });
    } finally {
      await file.handle.close();
    }
  }

  #prepare(mailbox: MailboxName, change: DraftChange, open: OpenDraft | undefined): Promise<PreparedFile> {
    if (change.kind === 'raw') return this.#prepareRaw(change.content);
    const fields = change.keepHtml === true ? withKeptHtml(change.fields, open?.content) : change.fields;
    return this.#compose(mailbox, open, fields, open === undefined ? (change.parts ?? []) : partsOf(open));
  }

  async #prepareRaw(content: AsyncIterable<Buffer>): Promise<PreparedFile> {
    const prepared = await this.#input.files.prepare(content);
    if (prepared.size > 0) return prepared;
    await this.#input.files.discard(prepared);
    throw problem('bad-request', 'The message is empty.');
  }

  /** Includes the current content of the editor, if the request has it. */
  #composeAlong(
    mailbox: MailboxName,
    open: OpenDraft,
    fields: DraftFields | undefined,
    parts: readonly PartSource[],
  ): Promise<PreparedFile> {
    return this.#compose(mailbox, open, fields && withKeptHtml(fields, open.content), parts);
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

function partsOf({ file, content }: OpenDraft, parts = content.attachments): readonly PartSource[] {
  return partsOfMessage(file, parts);
}

function noAttachment() {
  return problem('not-found', 'There is no such attachment of this draft.');
}

/** A draft in lists. */
type ListedDraft = Pick<MessageSummary, 'id' | 'size' | 'from' | 'to' | 'subject' | 'hasAttachments' | 'snippet'> & {
  readonly draftId: string;
  /** ISO 8601. */
  readonly savedAt: string;
};

interface DraftListDeps {
  readonly store: Pick<DraftStore, 'all'>;
  readonly reader: Pick<StoreReader, 'summaries'>;
}

interface Sheet {
  readonly page: Page<ListedDraft>;
  /** A version was replaced between two reads. */
  readonly isTorn: boolean;
}

/** Repeats when drafts were saved during the read. */
const tries = 10;
const order = (a: OrderKey, b: OrderKey): number => compareNewestFirst(a, b);

/**
 * Drafts of a mailbox, newest first. @throws Problem `not-found` for the mailbox, `bad-request` for an invalid cursor
 */
export async function listDrafts(
  deps: DraftListDeps,
  mailbox: MailboxName,
  request: PageRequest,
): Promise<Page<ListedDraft>> {
  let sheet = await look(deps, mailbox, request);
  for (let attempt = 1; sheet.isTorn && attempt < tries; attempt++) sheet = await look(deps, mailbox, request);
  return sheet.page;
}

async function look({ store, reader }: DraftListDeps, mailbox: MailboxName, request: PageRequest): Promise<Sheet> {
  const all = await store.all(mailbox);
  const keyed = all.map((draft) => ({ ...draft, receivedAt: draft.entry.receivedAt, id: draft.entry.id }));
  const page = pageOf(keyed.toSorted(order), request, order);
  const ids = new Map(page.items.map(({ id, draftId }) => [id, draftId]));
  const folder = page.items[0]?.folder;
  const summaries = folder === undefined ? [] : await reader.summaries(folder, [...ids.keys()]);
  const items = summaries.map(({ id, receivedAt, size, from, to, subject, hasAttachments, snippet }) => {
    return { draftId: ids.get(id) ?? '', id, savedAt: receivedAt, size, from, to, subject, hasAttachments, snippet };
  });
  return { page: { ...page, items }, isTorn: items.length < page.items.length };
}
