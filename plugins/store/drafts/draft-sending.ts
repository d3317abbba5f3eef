import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import { HeaderFilter } from '../../../core/spool/header-filter.js';
import { type Address, makeAddress } from '../../../core/mime/address.js';
import { writeCorrespondent } from '../mime/recipient.js';
import { mailDate } from '../../../core/mime/header.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem, problem } from '../../../core/problem.js';
import { type DraftFields, holdsFields, newMessageId, ownerOf, readRange, sendable } from './draft-composition.js';
import type { DraftContent } from './draft-content.js';
import type { DraftFiles, PreparedFile } from './draft-files.js';
import type { DraftMark } from './draft-name.js';
import { type DraftShelf, sentFolder, type ShelvedDraft } from './draft-shelf.js';
import { type AlongWith, expect, type OpenDraft } from './draft.js';
import type { Drafts } from './drafts.js';
import { lockKey } from '../folders/folder-editor.js';
import type { SentNote, SentNotes } from './sent-note.js';
import type { StoreReader } from '../messages/store-reader.js';
import { Turns } from '../maildir/turns.js';

export interface SentDraft {
  /** Unique name of the message in Sent. */
  readonly sentId: string;
  /** The queue entry; null when every recipient was local. */
  readonly uid: string | null;
}

export interface DraftSendingInput {
  readonly reader: StoreReader;
  readonly drafts: Drafts;
  readonly shelf: DraftShelf;
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
const queueTargets = new Set(['relay', 'hold']);
/** What the way of an earlier message may have left, and what is written anew. */
const removed = ['date', 'return-path', 'received', 'delivered-to', 'x-postern-draft'];

/** Of each version of a draft, whoever hands it in. */
const transactionOf = ({ draftId, revision }: DraftMark): string => `${draftId}-${revision}`;

/** Hands drafts in. A draft that was sent is a message in Sent; asking again for the same one sends nothing. */
export class DraftSending {
  readonly #input: DraftSendingInput;
  /** A second click comes with the version that the first one is about to replace: it waits, and finds that the draft was sent. */
  readonly #turns = new Turns();

  constructor(input: DraftSendingInput) {
    this.#input = input;
  }

  /** @throws Problem `not-found`, `invalid` for the recipients, `precondition-failed` */
  send(mailbox: MailboxName, draftId: string, along: AlongWith, remoteAddress: string): Promise<SentDraft> {
    return this.#turns.take(`${lockKey(mailbox)}/${draftId}`, () =>
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
  async #handedIn(mailbox: MailboxName, draft: ShelvedDraft): Promise<SentDraft | undefined> {
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
  if (everybody.length === 0) throw problem('invalid', 'This draft has no recipient. Say whom it shall go to.');
  return [...new Map(everybody.map((address) => [address.address, address])).values()];
}
