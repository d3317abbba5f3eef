import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { DraftShelf } from './draft-shelf.js';
import { compareNewestFirst, type OrderKey } from '../maildir/message-entry.js';
import type { MessageSummary } from '../messages/message-summary.js';
import { type Page, pageOf, type PageRequest } from '../http/page.js';
import type { StoreReader } from '../messages/store-reader.js';

/** A draft as lists show it. */
export type ListedDraft = Pick<
  MessageSummary,
  'id' | 'size' | 'from' | 'to' | 'subject' | 'hasAttachments' | 'snippet'
> & {
  readonly draftId: string;
  /** ISO 8601. */
  readonly savedAt: string;
};

export interface DraftListGround {
  readonly shelf: Pick<DraftShelf, 'all'>;
  readonly reader: Pick<StoreReader, 'summaries'>;
}

interface Sheet {
  readonly page: Page<ListedDraft>;
  /** Between two looks, a version gave way to the next one. */
  readonly isTorn: boolean;
}

/** Who saves each time we look must be very quick to outrun that many looks. */
const tries = 10;
const order = (a: OrderKey, b: OrderKey): number => compareNewestFirst(a, b);

/** Drafts of a mailbox, newest first. @throws Problem `not-found` for the mailbox, `bad-request` for a cursor that is none */
export async function listDrafts(
  ground: DraftListGround,
  mailbox: MailboxName,
  request: PageRequest,
): Promise<Page<ListedDraft>> {
  let sheet = await look(ground, mailbox, request);
  for (let attempt = 1; sheet.isTorn && attempt < tries; attempt++) sheet = await look(ground, mailbox, request);
  return sheet.page;
}

async function look({ shelf, reader }: DraftListGround, mailbox: MailboxName, request: PageRequest): Promise<Sheet> {
  const all = await shelf.all(mailbox);
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
