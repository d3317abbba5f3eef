import { targets } from '../../../core/contracts/targets.js';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { KeyedMutex } from '../../../core/concurrency.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { isMissing } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { folderSyncOf } from '../../../core/disk/folder.js';
import { uniqueIdPattern } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import { type Address, makeAddress } from '../../../core/mime/address.js';
import { mailDate } from '../../../core/mime/header.js';
import { isProblem, problem } from '../../../core/problem.js';
import { HeaderFilter } from '../../../core/spool/edited.js';
import { lockKey } from '../folders/mailbox-folder.js';
import { isDomain, localOfFolder } from '../maildir/mailbox-name.js';
import type { UniqueNames } from '../maildir/maildir-name.js';
import type { StoreReader } from '../messages/store-reader.js';
import { writeCorrespondent } from '../mime/compose.js';
import { type DraftFields, holdsFields, newMessageId, mailboxOwner, readRange, sendable } from './draft-composition.js';
import type { DraftContent } from '../mime/draft-content.js';
import { DraftFiles, DraftStore, type PreparedFile, sentFolder, type DraftStoreOptions } from './draft-store.js';
import { type AlongWith, type DraftMark, expect, type OpenDraft, type StoredDraft } from './draft.js';
import { Drafts } from './drafts.js';

interface SentDraft {
  /** Unique name of the message in Sent. */
  readonly sentId: string;
  /** The queue entry; null when every recipient was local. */
  readonly uid: string | null;
}

interface DraftSendingInput {
  readonly reader: StoreReader;
  readonly drafts: Drafts;
  readonly store: DraftStore;
  readonly files: DraftFiles;
  readonly notes: SentNotes;
  readonly submission: SubmissionService;
  readonly now: () => Date;
  readonly log: Log;
}

interface Outgoing {
  readonly recipients: readonly Address[];
  readonly message: PreparedFile;
  readonly remoteAddress: string;
}

/** Targets that queue: the transaction id is the id of the entry. */
const queueTargets = new Set<string>([targets.relay, targets.hold]);
/** Fields left by an earlier transport, and fields that are written anew. */
const removed = ['date', 'return-path', 'received', 'delivered-to', 'x-postern-draft'];

/** Transaction id of a version of a draft, the same for every request. */
const transactionOf = ({ draftId, revision }: DraftMark): string => `${draftId}-${revision}`;

/** Submits drafts. A sent draft is a message in Sent; submitting the same one again sends nothing. */
export class DraftSending {
  readonly #input: DraftSendingInput;
  /**
   * A double click submits the version that the first request is about to replace: it waits, and finds that the draft
   * was sent.
   */
  readonly #turns = new KeyedMutex();

  constructor(input: DraftSendingInput) {
    this.#input = input;
  }

  /** @throws Problem `not-found`, `invalid` for the recipients, `precondition-failed` */
  send(mailbox: MailboxName, draftId: string, along: AlongWith, remoteAddress: string): Promise<SentDraft> {
    return this.#turns.run(`${lockKey(mailbox)}/${draftId}`, () =>
      this.#saveAndSend(mailbox, draftId, along, remoteAddress),
    );
  }

  /**
   * Finishes the submissions of dead processes: files them, and removes the drafts. Run it at the start, before any
   * draft changes. Returns the messages that could not be filed.
   */
  async resume(): Promise<readonly PreparedFile[]> {
    const { notes, log } = this.#input;
    const left: PreparedFile[] = [];
    for (const note of await notes.all()) {
      try {
        await this.#conclude(note);
        log.info({ transaction: transactionOf(note) }, 'a message that was sent before the start is filed in Sent');
      } catch (error) {
        left.push(note.message);
        log.error({ err: error, transaction: transactionOf(note) }, 'a message was sent, but it could not be filed');
      }
    }
    return left;
  }

  async #saveAndSend(
    mailbox: MailboxName,
    draftId: string,
    { fields, expected }: AlongWith,
    remoteAddress: string,
  ): Promise<SentDraft> {
    const { drafts } = this.#input;
    // A new version would have a new id: repeating a submission must use the same one.
    const change = { kind: 'fields', keepHtml: true, keepVersion: true } as const;
    try {
      const saved =
        fields === undefined ? undefined : await drafts.update(mailbox, draftId, { ...change, fields }, expected);
      return await drafts.held(mailbox, draftId, async (open) => {
        expect(open.stored, saved === undefined ? expected : (tag) => tag === saved.tag);
        return (await this.#handedIn(mailbox, open.stored)) ?? this.#send(mailbox, open, remoteAddress);
      });
    } catch (error) {
      const isLate = isProblem(error) && error.problem === 'precondition-failed';
      const sent = (await drafts.isThere(mailbox, draftId))
        ? isLate && (await this.#savedBefore(mailbox, draftId, fields))
        : await this.#sentBefore(mailbox, draftId, fields);
      if (!sent) throw error;
      return sent;
    }
  }

  /** For a client with an older version: it may have saved the current one with its first attempt. */
  #savedBefore(mailbox: MailboxName, draftId: string, fields: DraftFields | undefined): Promise<SentDraft | undefined> {
    return this.#input.drafts.held(mailbox, draftId, async ({ stored, content }) => {
      const isSame = fields === undefined || holdsFields(mailbox, content, fields);
      return isSame ? this.#handedIn(mailbox, stored) : undefined;
    });
  }

  /** Result of a draft that no longer exists. @throws Problem `conflict` when a different message was sent */
  async #sentBefore(
    mailbox: MailboxName,
    draftId: string,
    fields: DraftFields | undefined,
  ): Promise<SentDraft | undefined> {
    const { store } = this.#input;
    const sent = await store.sent(mailbox, draftId);
    if (sent === undefined) return undefined;
    if (fields !== undefined && !(await this.#says(mailbox, sent.id, fields))) {
      throw problem(
        'conflict',
        'This draft was sent with other words, just before. What you have written was not sent.',
      );
    }
    return { sentId: sent.id, uid: null };
  }

  /** True when a message in Sent has this content; also when it cannot be parsed. */
  async #says(mailbox: MailboxName, id: string, fields: DraftFields): Promise<boolean> {
    const { reader } = this.#input;
    const file = await reader.open({ mailbox, folder: sentFolder, id });
    try {
      const content = await reader.draft(file);
      return content.truncated || holdsFields(mailbox, content, fields);
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'conflict') throw error;
      return true;
    } finally {
      await file.handle.close();
    }
  }

  /** Finishes an earlier submission of this version, if there is one. */
  async #handedIn(mailbox: MailboxName, draft: StoredDraft): Promise<SentDraft | undefined> {
    const { notes, store } = this.#input;
    const note = await notes.find(mailbox, draft);
    if (note !== undefined) return this.#conclude(note);
    const sent = await store.sent(mailbox, draft.draftId, draft.revision);
    if (sent === undefined) return undefined;
    await store.remove(mailbox, draft);
    return { sentId: sent.id, uid: null };
  }

  async #send(mailbox: MailboxName, open: OpenDraft, remoteAddress: string): Promise<SentDraft> {
    const { files, notes, log } = this.#input;
    const { draftId, revision } = open.stored;
    const recipients = recipientsOf(open.content);
    const message = await files.prepare(this.#finished(mailbox, open));
    let isNoted = false;
    try {
      const uid = await this.#submit(mailbox, open, { recipients, message, remoteAddress });
      const note = { mailbox, draftId, revision, uid, message };
      await notes.write(note).then(
        () => (isNoted = true),
        (error: unknown) => log.warn({ err: error }, 'it was not noted that a message was sent'),
      );
      return await this.#conclude(note).catch((error: unknown) => {
        log.error(
          { err: error, transaction: transactionOf(note) },
          'a message was sent, but not filed: its draft is left',
        );
        throw error;
      });
    } finally {
      if (!isNoted) await files.discard(message);
    }
  }

  /** The queue entry, if there is one. */
  async #submit(mailbox: MailboxName, { stored }: OpenDraft, outgoing: Outgoing): Promise<string | null> {
    const { files, submission } = this.#input;
    const { recipients, message, remoteAddress } = outgoing;
    const submitted = await submission.submit({
      // Deterministic, so that a submission repeated after a crash creates no second message.
      id: transactionOf(stored),
      username: mailboxOwner(mailbox).address.address,
      remoteAddress,
      via: 'HTTP',
      reversePath: makeAddress(mailbox.user, mailbox.domain),
      recipients,
      content: () => without(['bcc'], files.open(message)),
    });
    const isQueued = submitted.recipients.some(({ target }) => queueTargets.has(target));
    return isQueued ? submitted.id : null;
  }

  /** Files the message, removes its draft and the note. Each step can be repeated after a crash. */
  async #conclude({ mailbox, draftId, revision, uid, message }: SentNote): Promise<SentDraft> {
    const { store, files, notes } = this.#input;
    const mark = { draftId, revision };
    const filed = await store.sent(mailbox, draftId, revision);
    const sentId = filed?.id ?? (await store.fileSent(mailbox, message, mark));
    const drafts = await store.all(mailbox);
    const left = drafts.find((draft) => draft.draftId === draftId && draft.revision === revision);
    if (left !== undefined) await store.remove(mailbox, left);
    await notes.forget(mailbox, mark);
    await files.discard(message);
    return { sentId, uid };
  }

  /** The message as submitted and filed: current date, and missing required fields. */
  async *#finished(mailbox: MailboxName, open: OpenDraft): AsyncGenerator<Buffer> {
    const { from, messageId } = open.content;
    const fields = [`Date: ${mailDate(this.#input.now())}`];
    if (messageId === null) fields.push(`Message-ID: ${newMessageId(mailbox)}`);
    if (from === null)
      fields.push(`From: ${writeCorrespondent({ name: '', address: mailboxOwner(mailbox).address.address })}`);
    yield Buffer.from(fields.map((field) => `${field}\r\n`).join(''));
    const drop = [...removed, ...(messageId === null ? ['message-id'] : []), ...(from === null ? ['from'] : [])];
    yield* without(drop, withoutMarks(open));
  }
}

/** The message without fields that are only for the editor. */
async function* withoutMarks({ file, content }: OpenDraft): AsyncGenerator<Buffer> {
  let at = 0;
  for (const { start, end } of content.attachments.flatMap(({ marks }) => marks)) {
    yield* readRange(file.handle, at, start);
    at = end;
  }
  yield* readRange(file.handle, at, file.size);
}

async function* without(fields: readonly string[], source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const filter = new HeaderFilter(fields);
  for await (const chunk of source) yield* filter.push(chunk);
  yield filter.end();
}

/** Without duplicates. @throws Problem `invalid` */
function recipientsOf({ to, cc, bcc }: DraftContent): readonly Address[] {
  const everybody = [...to, ...cc, ...bcc].map((person) => sendable(person).address);
  if (everybody.length === 0) throw problem('invalid', 'Add at least one recipient.');
  return [...new Map(everybody.map((address) => [address.address, address])).values()];
}

const Written = z.strictObject({
  domain: z.string().refine(isDomain),
  /** The mailbox's directory. */
  user: z.string().refine((name) => localOfFolder(name) !== undefined),
  draftId: z.string().regex(uniqueIdPattern),
  revision: z.int().min(0),
  uid: z.string().nullable(),
  /** Prepared file of the message, beside the note. */
  file: z.string().regex(uniqueIdPattern),
});

/** A submitted version of a draft, which is still to be filed in Sent before the draft is removed. */
interface SentNote extends DraftMark {
  readonly mailbox: MailboxName;
  /** The queue entry; null when every recipient was local. */
  readonly uid: string | null;
  /** The submitted message, with Bcc. */
  readonly message: PreparedFile;
}

interface SentNotesInput {
  /** Folder of prepared messages. */
  readonly folder: string;
  readonly files: FileLayer;
  readonly log: Log;
}

/** A note without its message is complete. */
type Read = SentNote | 'done' | 'unreadable';

const noteName = /^sent-[0-9a-f]{32}$/;
const tornName = /^\.sent-[0-9a-f]{32}\..*\.tmp$/;
/** Files that belong to the folder of prepared messages. */
export const sentNoteNames: readonly RegExp[] = [noteName, tornName];

/**
 * Durable notes of submissions that are not filed yet, so that another process can finish them without sending again.
 */
class SentNotes {
  readonly #input: SentNotesInput;

  constructor(input: SentNotesInput) {
    this.#input = input;
  }

  async write(note: SentNote): Promise<void> {
    const { mailbox, draftId, revision, uid, message } = note;
    const [domain = '', user = ''] = lockKey(mailbox).split('/');
    const written = { domain, user, draftId, revision, uid, file: basename(message.path) };
    await writeFileAtomic(this.#pathOf(mailbox, note), JSON.stringify(written), this.#input);
  }

  async find(mailbox: MailboxName, mark: DraftMark): Promise<SentNote | undefined> {
    const note = await this.#read(this.#pathOf(mailbox, mark));
    return typeof note === 'string' ? undefined : note;
  }

  /** Notes of dead processes. Invalid notes and other files are ignored. */
  async all(): Promise<readonly SentNote[]> {
    const { files, folder, log } = this.#input;
    const notes: SentNote[] = [];
    for (const name of await files.readdir(folder)) {
      const path = join(folder, name);
      const isTorn = tornName.test(name);
      if (!(isTorn || noteName.test(name)) || !(await files.lstat(path)).isFile()) continue;
      const note = isTorn ? 'done' : await this.#read(path);
      if (note === 'done') await files.unlink(path);
      else if (note === 'unreadable') log.warn({ path }, 'a note of a sent draft cannot be understood; left alone');
      else notes.push(note);
    }
    return notes;
  }

  /** A note that reappears after a power cut is complete. The caller discards the message. */
  async forget(mailbox: MailboxName, mark: DraftMark): Promise<void> {
    await this.#input.files.unlink(this.#pathOf(mailbox, mark)).catch(() => undefined);
  }

  async #read(path: string): Promise<Read> {
    const { files, folder } = this.#input;
    try {
      if (!(await files.lstat(path)).isFile()) return 'unreadable';
      const { domain, user, file, ...mark } = Written.parse(JSON.parse(await readFile(path, 'utf8')));
      const local = localOfFolder(user);
      if (!isDomain(domain) || local === undefined) return 'unreadable';
      const message = join(folder, file);
      const found = await files.lstat(message);
      if (!found.isFile()) return 'unreadable';
      const mailbox = { postern: 'mailbox-name', domain, user: local } as const;
      return { ...mark, mailbox, message: { path: message, size: found.size } };
    } catch (error) {
      if (isMissing(error)) return 'done';
      if (error instanceof SyntaxError || error instanceof z.ZodError) return 'unreadable';
      throw error;
    }
  }

  #pathOf(mailbox: MailboxName, { draftId, revision }: DraftMark): string {
    const key = createHash('sha256')
      .update(`${lockKey(mailbox)}/${draftId}-${revision}`)
      .digest('hex');
    return join(this.#input.folder, `sent-${key.slice(0, 32)}`);
  }
}

interface DraftServiceOptions {
  readonly reader: StoreReader;
  readonly names: UniqueNames;
  readonly provide: DraftStoreOptions['provide'];
  readonly quotas: DraftStoreOptions['quotas'];
  readonly submission: SubmissionService;
  /** Private, on the file system of the mailboxes; emptied at the start. */
  readonly folder: string;
  /** The current size limit, which a reload may change. */
  readonly messageBytes: () => number;
  readonly clock: Clock;
  readonly log: Log;
  readonly files?: FileLayer;
}

/** The services for drafts. */
export interface DraftService {
  readonly drafts: Drafts;
  readonly store: DraftStore;
  readonly sending: DraftSending;
}

export async function openDraftService(input: DraftServiceOptions): Promise<DraftService> {
  const { reader, names, provide, quotas, submission, folder, messageBytes, clock, log, files = nodeFiles } = input;
  const sync = folderSyncOf(files);
  const prepared = new DraftFiles({ folder, files, sync, messageBytes });
  const store = new DraftStore({ folders: reader.mailboxFolders, provide, quotas, names, files, sync, prepared, log });
  const now = (): Date => new Date(clock.now());
  const drafts = new Drafts({ reader, store, files: prepared, turns: new KeyedMutex(), now });
  const notes = new SentNotes({ folder, files, log });
  const sending = new DraftSending({ reader, drafts, store, files: prepared, notes, submission, now, log });
  await prepared.sweep(await sending.resume());
  return { drafts, store, sending };
}
