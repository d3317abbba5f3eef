import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../../../core/clock.js';
import { problem } from '../../../core/problem.js';
import type {
  FolderAnswers,
  FolderQuestion,
  FoldersQuestion,
  FolderTask,
  FolderTotals,
  Trust,
} from '../cache/folder-task.js';
import type { FolderThread } from '../cache/folder-thread.js';
import type { MailboxFolder } from './folder-name.js';
import type { MessageEntry } from '../maildir/message-entry.js';
import { describeMessage, type MessageSummary } from './message-summary.js';
import type { Page, PageRequest } from '../maildir/page.js';

/** Criteria for messages. */
export interface MessageFilter {
  /** Words that must all occur in subject, sender, recipients, Message-ID or the first words; ignores case. */
  readonly q?: string | undefined;
  readonly unread?: boolean | undefined;
  readonly flagged?: boolean | undefined;
  /** Received at or after / before, in milliseconds since 1970. */
  readonly since?: number | undefined;
  readonly before?: number | undefined;
}

export interface ListingRequest extends MessageFilter, PageRequest {
  readonly order: 'newest' | 'oldest';
}

export interface Listing extends Page<MessageSummary> {
  /** False when a search reached its time limit: not all messages were searched. */
  readonly searchedAll: boolean;
  readonly totals: FolderTotals;
}

export interface Matching {
  /** Newest first. */
  readonly ids: readonly string[];
  readonly unread: number;
}

export interface Located {
  readonly byId: ReadonlyMap<string, MessageEntry>;
  /** The folder was not changing: a missing message does not exist. */
  readonly quiet: boolean;
}

export interface FoundMessages {
  /** Newest first. */
  readonly items: readonly { readonly folder: MailboxFolder; readonly message: MessageSummary }[];
  /** Matches found so far. */
  readonly total: number;
  /** Folders with messages that were not searched. */
  readonly unfinished: readonly MailboxFolder[];
}

export interface FolderMessagesInput {
  readonly thread: Pick<FolderThread, 'ask' | 'search'>;
  readonly site: FolderTask['site'];
  readonly clock: Clock;
}

/** Time limit in milliseconds for reading messages during a search of a list. */
const timeoutMs = 2000;
const idsAtOnce = 2000;

/**
 * Access to the messages in folders. Every answer is checked against the folder. All methods reject with the problem
 * `not-found` when the folder is gone, and `unavailable` when it cannot be read now.
 */
export class FolderMessages {
  readonly #input: FolderMessagesInput;

  constructor(input: FolderMessagesInput) {
    this.#input = input;
  }

  totals(folder: MailboxFolder): Promise<FolderTotals> {
    return this.#ask(folder, { kind: 'totals' });
  }

  /** @throws Problem `bad-request` for an invalid cursor; validate it first */
  async list(folder: MailboxFolder, request: ListingRequest): Promise<Listing> {
    const sheet = await this.#ask(folder, { kind: 'page', request: { ...request, timeoutMs } });
    const { items, total, nextCursor, prevCursor, searchedAll, totals } = sheet;
    const described = items.map((item) => describeMessage(folder, item));
    return { items: described, total, limit: request.limit, nextCursor, prevCursor, searchedAll, totals };
  }

  /** All matching messages, without a time limit. */
  async matching(folder: MailboxFolder, filter: MessageFilter): Promise<Matching> {
    const { ids, unread } = await this.#ask(folder, { kind: 'select', filter });
    const found: string[][] = [];
    for (const piece of ids) {
      found.push(Buffer.from(piece).toString('utf8').split('/').slice(0, -1));
      await setImmediate();
    }
    return { ids: found.flat(), unread };
  }

  /** File names of messages by id; messages that are not in the folder are left out. */
  async locate(folder: MailboxFolder, ids: readonly string[], trust: Trust = 'looked'): Promise<Located> {
    const byId = new Map<string, MessageEntry>();
    let quiet = true;
    for (let start = 0; start === 0 || start < ids.length; start += idsAtOnce) {
      const piece = ids.slice(start, start + idsAtOnce);
      const located = await this.#ask(folder, { kind: 'locate', ids: piece, trust: start === 0 ? trust : 'known' });
      for (const entry of located.entries) if (entry !== null) byId.set(entry.id, entry);
      quiet &&= located.quiet;
    }
    return { byId, quiet };
  }

  /** Newest first. For small folders, or when few ids contain that text. */
  entries(folder: MailboxFolder, containing = ''): Promise<readonly MessageEntry[]> {
    return this.#ask(folder, { kind: 'entries', containing });
  }

  /** In the order of the ids; messages that are gone meanwhile are left out. */
  async summaries(folder: MailboxFolder, ids: readonly string[]): Promise<readonly MessageSummary[]> {
    const found = await this.#ask(folder, { kind: 'summaries', ids });
    return found.map((item) => describeMessage(folder, item));
  }

  /** Matches in many folders; folders that are gone have none. */
  async search(folders: readonly MailboxFolder[], question: Omit<FoldersQuestion, 'folders'>): Promise<FoundMessages> {
    const { thread, site, clock } = this.#input;
    const search = { ...question, folders: folders.map(({ path }) => path) };
    const { items, total, unfinished } = await thread.search({ site, now: clock.now(), search });
    const found = items.map(({ folder: index, ...item }) => {
      const folder = folders[index];
      return folder === undefined ? undefined : { folder, message: describeMessage(folder, item) };
    });
    return {
      items: found.filter((one) => one !== undefined),
      total,
      unfinished: unfinished.map((index) => folders[index]).filter((folder) => folder !== undefined),
    };
  }

  async #ask<Q extends FolderQuestion>({ path }: MailboxFolder, question: Q): Promise<FolderAnswers[Q['kind']]> {
    const { thread, site, clock } = this.#input;
    const answer = await thread.ask<Q>({ site, folder: path, question, now: clock.now() });
    if (answer === null) throw problem('not-found', 'There is no such folder.');
    return answer;
  }
}
