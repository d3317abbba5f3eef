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
import { HeaderFilter } from '../../../core/spool/message.js';
import { lockKey } from '../maildir/mailbox-folder.js';
import { isDomain, localOfFolder } from '../maildir/mailbox-name.js';
import type { UniqueNames } from '../maildir/maildir-name.js';
import type { StoreReader } from '../messages/store-reader.js';
import { writeCorrespondent } from '../mime/compose.js';
import { type DraftFields, holdsFields, newMessageId, ownerOf, readRange, sendable } from './draft-composition.js';
import type { DraftContent } from './draft-content.js';
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
  readonly shelf: DraftStore;
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

/** The targets that keep a queue: the id of the transaction is then the entry's. */
const queueTargets = new Set<string>([targets.relay, targets.hold]);
/** What the way of an earlier message may have left, and what is written anew. */
const removed = ['date', 'return-path', 'received', 'delivered-to', 'x-postern-draft'];

/** Of each version of a draft, whoever hands it in. */
const transactionOf = ({ draftId, revision }: DraftMark): string => `${draftId}-${revision}`;

/** Hands drafts in. A draft that was sent is a message in Sent; asking again for the same one sends nothing. */
export class DraftSending {
  readonly #input: DraftSendingInput;
  /** A second click comes with the version that the first one is about to replace: it waits, and finds that the draft was sent. */
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
   * Finishes what dead processes handed in: files it, and removes the drafts. For the start, before anybody changes a draft.
   * Answers the messages that could not be filed now.
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
    // A new version would be a new message: what is sent again as it is stays the same one.
    const change = { kind: 'fields', keepHtml: true, keepVersion: true } as const;
    try {
      const saved =
        fields === undefined ? undefined : await drafts.update(mailbox, draftId, { ...change, fields }, expected);
      return await drafts.held(mailbox, draftId, async (open) => {
        expect(open.shelved, saved === undefined ? expected : (tag) => tag === saved.tag);
        return (await this.#handedIn(mailbox, open.shelved)) ?? this.#send(mailbox, open, remoteAddress);
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

  /** For somebody who knows an older version than the present one: he may have saved that with his first try. */
  #savedBefore(mailbox: MailboxName, draftId: string, fields: DraftFields | undefined): Promise<SentDraft | undefined> {
    return this.#input.drafts.held(mailbox, draftId, async ({ shelved, content }) => {
      const isSame = fields === undefined || holdsFields(mailbox, content, fields);
      return isSame ? this.#handedIn(mailbox, shelved) : undefined;
    });
  }

  /** What became of a draft that is gone. @throws Problem `conflict` when something else was sent */
  async #sentBefore(
    mailbox: MailboxName,
    draftId: string,
    fields: DraftFields | undefined,
  ): Promise<SentDraft | undefined> {
    const { shelf } = this.#input;
    const sent = await shelf.sent(mailbox, draftId);
    if (sent === undefined) return undefined;
    if (fields !== undefined && !(await this.#says(mailbox, sent.id, fields))) {
      throw problem(
        'conflict',
        'This draft was sent with other words, just before. What you have written was not sent.',
      );
    }
    return { sentId: sent.id, uid: null };
  }

  /** Whether a message in Sent says that. One that cannot be taken to pieces may. */
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

  /** Finishes with a version that was handed in before, if it was. */
  async #handedIn(mailbox: MailboxName, draft: StoredDraft): Promise<SentDraft | undefined> {
    const { notes, shelf } = this.#input;
    const note = await notes.find(mailbox, draft);
    if (note !== undefined) return this.#conclude(note);
    const sent = await shelf.sent(mailbox, draft.draftId, draft.revision);
    if (sent === undefined) return undefined;
    await shelf.remove(mailbox, draft);
    return { sentId: sent.id, uid: null };
  }

  async #send(mailbox: MailboxName, open: OpenDraft, remoteAddress: string): Promise<SentDraft> {
    const { files, notes, log } = this.#input;
    const { draftId, revision } = open.shelved;
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
  async #submit(mailbox: MailboxName, { shelved }: OpenDraft, outgoing: Outgoing): Promise<string | null> {
    const { files, submission } = this.#input;
    const { recipients, message, remoteAddress } = outgoing;
    const submitted = await submission.submit({
      // The same one when a crash came before it was noted: nobody gets that twice.
      id: transactionOf(shelved),
      username: ownerOf(mailbox).address.address,
      remoteAddress,
      via: 'HTTP',
      reversePath: makeAddress(mailbox.user, mailbox.domain),
      recipients,
      content: () => without(['bcc'], files.open(message)),
    });
    const isQueued = submitted.recipients.some(({ target }) => queueTargets.has(target));
    return isQueued ? submitted.id : null;
  }

  /** Files the message, removes its draft and forgets the note. After a crash at any step it may be done again. */
  async #conclude({ mailbox, draftId, revision, uid, message }: SentNote): Promise<SentDraft> {
    const { shelf, files, notes } = this.#input;
    const mark = { draftId, revision };
    const filed = await shelf.sent(mailbox, draftId, revision);
    const sentId = filed?.id ?? (await shelf.fileSent(mailbox, message, mark));
    const drafts = await shelf.all(mailbox);
    const left = drafts.find((draft) => draft.draftId === draftId && draft.revision === revision);
    if (left !== undefined) await shelf.remove(mailbox, left);
    await notes.forget(mailbox, mark);
    await files.discard(message);
    return { sentId, uid };
  }

  /** The message as it is sent and filed: the present date, and whatever it cannot go without. */
  async *#finished(mailbox: MailboxName, open: OpenDraft): AsyncGenerator<Buffer> {
    const { from, messageId } = open.content;
    const fields = [`Date: ${mailDate(this.#input.now())}`];
    if (messageId === null) fields.push(`Message-ID: ${newMessageId(mailbox)}`);
    if (from === null)
      fields.push(`From: ${writeCorrespondent({ name: '', address: ownerOf(mailbox).address.address })}`);
    yield Buffer.from(fields.map((field) => `${field}\r\n`).join(''));
    const drop = [...removed, ...(messageId === null ? ['message-id'] : []), ...(from === null ? ['from'] : [])];
    yield* without(drop, withoutMarks(open));
  }
}

/** The message without what is only for its editor. */
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

/** Everybody once. @throws Problem `invalid` */
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
  /** The prepared file with the message, beside the note. */
  file: z.string().regex(uniqueIdPattern),
});

/** A version of a draft that was handed in: what is left is to file it in Sent and to remove the draft. */
interface SentNote extends DraftMark {
  readonly mailbox: MailboxName;
  /** The queue entry; null when every recipient was local. */
  readonly uid: string | null;
  /** The message as it was handed in, with Bcc. */
  readonly message: PreparedFile;
}

interface SentNotesInput {
  /** Where messages are prepared. */
  readonly folder: string;
  readonly files: FileLayer;
  readonly log: Log;
}

/** A note whose message has gone says that everything is done. */
type Read = SentNote | 'done' | 'unreadable';

const noteName = /^sent-[0-9a-f]{32}$/;
const tornName = /^\.sent-[0-9a-f]{32}\..*\.tmp$/;
/** What may lie beside the messages that are prepared. */
export const sentNoteNames: readonly RegExp[] = [noteName, tornName];

/** Notes of what was handed in and is not filed yet, durable, so that whoever comes next finishes it and sends nothing again. */
export class SentNotes {
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

  /** What dead processes left. What cannot be understood is left alone, as is what is no file. */
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

  /** One that comes back after a power cut finds that everything is done. The message is the caller's to discard. */
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
  /** Private, on the file system of the mailboxes; emptied here. */
  readonly folder: string;
  /** The limit of a message now: a reload may change it. */
  readonly messageBytes: () => number;
  readonly clock: Clock;
  readonly log: Log;
  readonly files?: FileLayer;
}

/** Everything that drafts need, wired. */
export interface DraftService {
  readonly drafts: Drafts;
  readonly shelf: DraftStore;
  readonly sending: DraftSending;
}

export async function openDraftService(input: DraftServiceOptions): Promise<DraftService> {
  const { reader, names, provide, quotas, submission, folder, messageBytes, clock, log, files = nodeFiles } = input;
  const sync = folderSyncOf(files);
  const prepared = new DraftFiles({ folder, files, sync, messageBytes });
  const shelf = new DraftStore({ folders: reader.mailboxFolders, provide, quotas, names, files, sync, prepared, log });
  const now = (): Date => new Date(clock.now());
  const drafts = new Drafts({ reader, shelf, files: prepared, turns: new KeyedMutex(), now });
  const notes = new SentNotes({ folder, files, log });
  const sending = new DraftSending({ reader, drafts, shelf, files: prepared, notes, submission, now, log });
  await prepared.sweep(await sending.resume());
  return { drafts, shelf, sending };
}
