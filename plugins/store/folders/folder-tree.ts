import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../core/clock.js';
import { folderVersion } from '../maildir/folder-stamp.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isProblem } from '../../../core/problem.js';
import type { FolderTotals } from '../cache/folder-task.js';
import { mapBounded } from '../../../core/concurrency.js';
import type { MailboxFolders } from './mailbox-folder.js';
import { inbox, type MailboxFolder, parentOf, type SpecialUse, specialUseOf } from './folder-name.js';

/** A folder in the tree. */
export interface FolderSummary {
  readonly name: string;
  /** Name of the folder above; null on the first level. */
  readonly parent: string | null;
  readonly special: SpecialUse | null;
  readonly total: number;
  readonly unread: number;
  /** Bytes of all messages. */
  readonly size: number;
}

export interface FolderProperties {
  readonly name: string;
  readonly size: number;
  readonly total: number;
  readonly unread: number;
  /** ISO 8601 received times, or null for an empty folder. */
  readonly oldest: string | null;
  readonly newest: string | null;
  /** Names of the folders one level below. */
  readonly children: readonly string[];
}

/** Folders whose totals are cached. */
const maxSummaries = 10_000;
const maxLists = 1000;
const foldersAtOnce = 4;
const specialOrder: readonly (SpecialUse | null)[] = ['inbox', 'drafts', 'sent', 'archive', 'junk', 'trash', null];

interface FolderList {
  readonly summaries: readonly (FolderSummary | undefined)[];
  readonly sorted: readonly FolderSummary[];
}

/** Counts the messages of folders. */
export class FolderTree {
  readonly #folders: MailboxFolders;
  readonly #clock: Clock;
  /** By path. */
  readonly #summaries = new LRUCache<string, { readonly version: string; readonly summary: FolderSummary }>({
    max: maxSummaries,
  });

  /** The last list of a mailbox, by its path. */
  readonly #lists = new LRUCache<string, FolderList>({ max: maxLists });

  constructor(folders: MailboxFolders, clock: Clock) {
    this.#folders = folders;
    this.#clock = clock;
  }

  /** INBOX first, then special folders, then by name; the same object while nothing changes. @throws Problem `not-found` */
  async list(mailbox: MailboxName): Promise<readonly FolderSummary[]> {
    const first = await this.#folders.find(mailbox, inbox);
    const all = [first, ...(await this.#folders.list(mailbox))];
    const summaries = await mapBounded(all, foldersAtOnce, (folder) => this.#ifStillThere(folder));
    const known = this.#lists.get(first.path);
    const isSame =
      known?.summaries.length === summaries.length && known.summaries.every((one, i) => one === summaries[i]);
    if (known !== undefined && isSame) return known.sorted;
    const sorted = summaries.filter((summary) => summary !== undefined).toSorted(compareFolders);
    this.#lists.set(first.path, { summaries, sorted });
    return sorted;
  }

  async #ifStillThere(folder: MailboxFolder): Promise<FolderSummary | undefined> {
    try {
      return await this.summary(folder);
    } catch (error) {
      if (isProblem(error) && error.problem === 'not-found' && folder.name.directory !== '') return undefined;
      throw error;
    }
  }

  async properties(folder: MailboxFolder): Promise<FolderProperties> {
    const { total, unread, size, oldest, newest } = await this.#folders.messages.totals(folder);
    const below = await this.#folders.list(folder.mailbox);
    const children = below.filter(({ name }) => parentOf(name) === folder.name.name).map(({ name }) => name.name);
    return {
      name: folder.name.name,
      size,
      total,
      unread,
      oldest: timeOf(oldest),
      newest: timeOf(newest),
      children: children.toSorted(),
    };
  }

  /** @throws Problem `not-found` when the folder was removed meanwhile */
  async summary(folder: MailboxFolder): Promise<FolderSummary> {
    const version = folderVersion(folder.path, this.#clock.now());
    const known = this.#summaries.get(folder.path);
    if (known !== undefined && known.version === version) return known.summary;
    const summary = describeFolder(folder, await this.#folders.messages.totals(folder));
    // It may have changed since.
    if (version !== undefined && version === folderVersion(folder.path, this.#clock.now())) {
      this.#summaries.set(folder.path, { version, summary });
    }
    return summary;
  }
}

export function describeFolder({ name }: MailboxFolder, { total, unread, size }: FolderTotals): FolderSummary {
  return { name: name.name, parent: parentOf(name), special: specialUseOf(name), total, unread, size };
}

function timeOf(time: number | null): string | null {
  return time === null ? null : new Date(time).toISOString();
}

function compareFolders(a: FolderSummary, b: FolderSummary): number {
  const order = rank(a) - rank(b);
  return order === 0 ? a.name.localeCompare(b.name, 'en') : order;
}

/** Subfolders sort with their special folder. */
function rank(folder: FolderSummary): number {
  const top = folder.name.split('.')[0] ?? '';
  return specialOrder.indexOf(specialUseOf({ postern: 'folder-name', name: top, directory: '' }));
}
