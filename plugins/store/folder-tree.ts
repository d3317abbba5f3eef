import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import type { MailboxName } from '../../core/contracts/mailboxes.js';
import { isProblem } from '../../core/problem.js';
import { mapBounded } from './concurrency.js';
import type { FolderContents, MessageEntry } from './folder-contents.js';
import { inbox, parentOf, type SpecialUse, specialUseOf } from './folder-name.js';
import type { MailboxFolder, MailboxFolders } from './mailbox-folder.js';

/** A folder as the tree shows it. */
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

const foldersAtOnce = 4;
const statsAtOnce = 16;
const specialOrder: readonly (SpecialUse | null)[] = ['inbox', 'drafts', 'sent', 'archive', 'junk', 'trash', null];

/** Counts what is in folders. */
export class FolderTree {
  readonly #folders: MailboxFolders;
  /** Sizes of messages whose names do not say it; the file of a unique name never changes. */
  readonly #sizes = new LRUCache<string, number>({ max: 100_000 });

  constructor(folders: MailboxFolders) {
    this.#folders = folders;
  }

  /** INBOX first, then what has a special use, then by name. @throws Problem `not-found` */
  async list(mailbox: MailboxName): Promise<readonly FolderSummary[]> {
    const all = [await this.#folders.find(mailbox, inbox), ...(await this.#folders.list(mailbox))];
    const summaries = await mapBounded(all, foldersAtOnce, (folder) => this.#ifStillThere(folder));
    return summaries.filter((summary) => summary !== undefined).toSorted(compareFolders);
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
    const contents = await this.#folders.contents(folder);
    const below = await this.#folders.list(folder.mailbox);
    const children = below.filter(({ name }) => parentOf(name) === folder.name.name).map(({ name }) => name.name);
    return {
      name: folder.name.name,
      size: await this.#size(folder, contents),
      total: contents.entries.length,
      unread: contents.unread,
      oldest: timeOf(contents.entries.at(-1)),
      newest: timeOf(contents.entries[0]),
      children: children.toSorted(),
    };
  }

  /** @throws Problem `not-found` when the folder went away meanwhile */
  async summary(folder: MailboxFolder): Promise<FolderSummary> {
    const contents = await this.#folders.contents(folder);
    return {
      name: folder.name.name,
      parent: parentOf(folder.name),
      special: specialUseOf(folder.name),
      total: contents.entries.length,
      unread: contents.unread,
      size: await this.#size(folder, contents),
    };
  }

  async #size(folder: MailboxFolder, contents: FolderContents): Promise<number> {
    let sum = 0;
    const silent: MessageEntry[] = [];
    for (const entry of contents.entries) {
      if (entry.size === undefined) silent.push(entry);
      else sum += entry.size;
    }
    const asked = await mapBounded(silent, statsAtOnce, (entry) => this.#sizeOf(folder, entry));
    return asked.reduce((total, size) => total + size, sum);
  }

  async #sizeOf(folder: MailboxFolder, entry: MessageEntry): Promise<number> {
    const key = `${folder.path}/${entry.id}`;
    const known = this.#sizes.get(key);
    if (known !== undefined) return known;
    const stat = await lstat(join(folder.path, entry.file)).catch(() => undefined);
    if (stat !== undefined) this.#sizes.set(key, stat.size);
    return stat?.size ?? 0;
  }
}

function timeOf(entry: MessageEntry | undefined): string | null {
  return entry === undefined ? null : new Date(entry.receivedAt).toISOString();
}

function compareFolders(a: FolderSummary, b: FolderSummary): number {
  const order = rank(a) - rank(b);
  return order === 0 ? a.name.localeCompare(b.name, 'en') : order;
}

/** A folder below `Sent` stands with it. */
function rank(folder: FolderSummary): number {
  const top = folder.name.split('.')[0] ?? '';
  return specialOrder.indexOf(specialUseOf({ postern: 'folder-name', name: top, directory: '' }));
}
