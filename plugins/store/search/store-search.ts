import { mapBounded } from '../../../core/concurrency.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { FoundMail, FoundMessage, MailSearch, MailSearchRequest } from '../../../core/contracts/mail-search.js';
import { isProblem, problem } from '../../../core/problem.js';
import { searchWords } from '../cache/row-search.js';
import type { MailboxIdentity } from '../maildir/mailboxes.js';
import { inbox, type MailboxFolder } from '../folders/folder-name.js';
import type { MessageSummary } from '../folders/message-summary.js';
import type { StoreReader } from '../messages/store-reader.js';
import { marksOf } from './marks.js';

const maxSearches = 4;
const mailboxesAtOnce = 16;

/** Path of the page of a folder. */
type FolderHref = (mailbox: MailboxIdentity, folder: string) => string;

/**
 * Searches the folder caches of all mailboxes. There is no index across them: to scan the summaries of 100,000 messages
 * takes some 100 ms, and they are checked against the folders anyway.
 */
export class StoreSearch implements MailSearch {
  readonly node: string | undefined;
  readonly #reader: StoreReader;
  readonly #folderHref: FolderHref;
  #running = 0;

  constructor(reader: StoreReader, folderHref: FolderHref, node?: string) {
    this.node = node;
    this.#reader = reader;
    this.#folderHref = folderHref;
  }

  async search(request: MailSearchRequest): Promise<FoundMail> {
    if (searchWords(request.q).length === 0) return { items: [], total: 0, mailboxes: 0, searched: 0 };
    if (this.#running >= maxSearches) {
      const detail = 'Too many searches are running. Try again in a moment.';
      throw problem('unavailable', { detail, headers: { 'Retry-After': '2' } });
    }
    this.#running++;
    try {
      return await this.#search(request);
    } finally {
      this.#running--;
    }
  }

  async #search({ q, limit, timeoutMs, mayOpen }: MailSearchRequest): Promise<FoundMail> {
    const all = await this.#folders();
    const folders = all.filter((folder) => mayOpen(this.#hrefOf(folder)) && mayOpen(this.#messageHref(folder, '-')));
    const { items, total, unfinished } = await this.#reader.mailboxFolders.messages.search(folders, {
      q,
      limit,
      timeoutMs,
    });
    const mailboxes = new Set(folders.map(mailboxOf));
    return {
      items: items.map(({ folder, message }) =>
        describe(folder, message, { words: searchWords(q), href: this.#messageHref(folder, message.id) }),
      ),
      total,
      mailboxes: mailboxes.size,
      searched: mailboxes.size - new Set(unfinished.map(mailboxOf)).size,
    };
  }

  #hrefOf(folder: MailboxFolder): string {
    return this.#folderHref({ ...folder.mailbox, mailbox: mailboxOf(folder) }, folder.name.name);
  }

  #messageHref(folder: MailboxFolder, id: string): string {
    return `${this.#hrefOf(folder)}/messages/${encodeURIComponent(id)}`;
  }

  /** Of all mailboxes. */
  async #folders(): Promise<readonly MailboxFolder[]> {
    const mailboxes: MailboxName[] = [];
    for (const domain of await this.#reader.domains()) {
      mailboxes.push(...((await this.#reader.mailboxes(domain)) ?? []));
    }
    return (await mapBounded(mailboxes, mailboxesAtOnce, (mailbox) => this.#foldersOf(mailbox))).flat();
  }

  /** INBOX first; none when the mailbox was removed meanwhile. */
  async #foldersOf(mailbox: MailboxName): Promise<readonly MailboxFolder[]> {
    const folders = this.#reader.mailboxFolders;
    try {
      return [await folders.find(mailbox, inbox), ...(await folders.list(mailbox))];
    } catch (error) {
      if (isProblem(error) && error.problem === 'not-found') return [];
      throw error;
    }
  }
}

function mailboxOf({ mailbox: { domain, user } }: MailboxFolder): string {
  return `${user}@${domain}`;
}

function describe(
  folder: MailboxFolder,
  message: MessageSummary,
  { words, href }: { readonly words: readonly string[]; readonly href: string },
): FoundMessage {
  // The marks count in the normal form in which words are compared.
  const subject = message.subject.normalize('NFC');
  return {
    mailbox: mailboxOf(folder),
    folder: folder.name.name,
    id: message.id,
    href,
    subject,
    marks: marksOf(subject, words),
    from: message.from,
    receivedAt: message.receivedAt,
  };
}
