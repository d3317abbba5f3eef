import type { MailboxName } from '../../core/contracts/mailboxes.js';
import type { SubmissionService } from '../../core/contracts/submission.js';
import { HeaderFilter } from '../../core/disk/header-filter.js';
import { type Address, makeAddress } from '../../core/mime/address.js';
import { writeCorrespondent } from '../../core/mime/recipient.js';
import { mailDate } from '../../core/mime/mail-date.js';
import type { Log } from '../../core/log.js';
import { problem } from '../../core/problem.js';
import { newMessageId, ownerOf, readRange, sendable } from './draft-composition.js';
import type { DraftContent } from './draft-content.js';
import type { DraftFiles } from './draft-files.js';
import type { DraftShelf } from './draft-shelf.js';
import { DraftTurns } from './draft-turns.js';
import type { Drafts } from './drafts.js';
import { type AlongWith, expect, type OpenDraft } from './draft.js';
import { lockKey } from './folder-editor.js';

export interface SentDraft {
  /** Unique name of the message in Sent. */
  readonly sentId: string;
  /** The queue entry; null when every recipient was local. */
  readonly uid: string | null;
}

export interface DraftSendingInput {
  readonly drafts: Drafts;
  readonly shelf: DraftShelf;
  readonly files: DraftFiles;
  readonly submission: SubmissionService;
  readonly now: () => Date;
  readonly log: Log;
}

/** The targets that keep a queue: the id of the transaction is then the entry's. */
const queueTargets = new Set(['relay', 'hold']);
/** What the way of an earlier message may have left, and what is written anew. */
const removed = ['date', 'return-path', 'received', 'delivered-to', 'x-postern-draft'];

/** Hands drafts in. A draft that was sent is a message in Sent; asking again for the same one sends nothing. */
export class DraftSending {
  readonly #input: DraftSendingInput;
  /** A second click comes with the version that the first one is about to replace: it waits, and finds that the draft was sent. */
  readonly #turns = new DraftTurns();

  constructor(input: DraftSendingInput) {
    this.#input = input;
  }

  /** @throws Problem `not-found`, `invalid` for the recipients, `precondition-failed` */
  send(mailbox: MailboxName, draftId: string, along: AlongWith, remoteAddress: string): Promise<SentDraft> {
    return this.#turns.take(`${lockKey(mailbox)}/${draftId}`, () =>
      this.#saveAndSend(mailbox, draftId, along, remoteAddress),
    );
  }

  async #saveAndSend(
    mailbox: MailboxName,
    draftId: string,
    { fields, expected }: AlongWith,
    remoteAddress: string,
  ): Promise<SentDraft> {
    const { drafts, shelf } = this.#input;
    const isThere = (await shelf.all(mailbox)).some((draft) => draft.draftId === draftId);
    if (!isThere) return this.#alreadySent(mailbox, draftId);
    const saved =
      fields === undefined
        ? undefined
        : await drafts.update(mailbox, draftId, { kind: 'fields', fields, keepHtml: true }, expected);
    try {
      return await drafts.held(mailbox, draftId, async (open) => {
        expect(open.shelved, saved === undefined ? expected : (tag) => tag === saved.tag);
        return this.#send(mailbox, open, remoteAddress);
      });
    } catch (error) {
      // It may have gone since it was looked for.
      return this.#alreadySent(mailbox, draftId, error);
    }
  }

  async #alreadySent(mailbox: MailboxName, draftId: string, error?: unknown): Promise<SentDraft> {
    const { shelf } = this.#input;
    const isThere = (await shelf.all(mailbox)).some((draft) => draft.draftId === draftId);
    const sent = isThere ? undefined : await shelf.sent(mailbox, draftId);
    if (sent === undefined) throw error instanceof Error ? error : problem('not-found', 'There is no such draft.');
    return { sentId: sent.id, uid: null };
  }

  async #send(mailbox: MailboxName, open: OpenDraft, remoteAddress: string): Promise<SentDraft> {
    const { shelf, files, submission, log } = this.#input;
    const { draftId, revision } = open.shelved;
    const before = await shelf.sent(mailbox, draftId, revision);
    if (before !== undefined) {
      // A crash came between filing the message and removing its draft.
      await shelf.remove(mailbox, open.shelved);
      return { sentId: before.id, uid: null };
    }
    const recipients = recipientsOf(open.content);
    const message = await files.prepare(this.#finished(mailbox, open));
    try {
      const submitted = await submission.submit({
        // The same one when a crash came before the message was filed: nobody gets that twice.
        id: `${draftId}-${revision}`,
        username: ownerOf(mailbox).address.address,
        remoteAddress,
        via: 'HTTP',
        reversePath: makeAddress(mailbox.user, mailbox.domain),
        recipients,
        content: () => without(['bcc'], files.open(message)),
      });
      const sentId = await shelf.fileSent(mailbox, message, { draftId, revision }).catch((error: unknown) => {
        log.error({ err: error, transaction: submitted.id }, 'a message was sent, but not filed: its draft is left');
        throw error;
      });
      await shelf.remove(mailbox, open.shelved);
      const isQueued = submitted.recipients.some(({ target }) => queueTargets.has(target));
      return { sentId, uid: isQueued ? submitted.id : null };
    } finally {
      await files.discard(message);
    }
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
