import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../core/clock.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { Confinement } from '../../../core/disk/confinement.js';
import { problem } from '../../../core/problem.js';
import type { FolderMessages } from './folder-messages.js';
import { type FolderName, folderOfDirectory, type MailboxFolder } from './folder-name.js';
import { directoryVersion } from '../maildir/folder-stamp.js';
import { folderOfLocal } from '../maildir/mailbox-name.js';

/** Mailboxes whose lists of folders are cached. */
const maxLists = 1000;

/** Finds folders; `FolderMessages` reads their contents. */
export class MailboxFolders {
  readonly messages: FolderMessages;
  readonly #confinement: Confinement;
  readonly #clock: Clock;
  readonly #pathOf: (mailbox: MailboxName) => string;
  /** By the path of the mailbox. */
  readonly #lists = new LRUCache<string, FolderList>({ max: maxLists });

  /** @param pathOf returns the absolute path of a mailbox */
  constructor(
    confinement: Confinement,
    messages: FolderMessages,
    clock: Clock,
    pathOf: (mailbox: MailboxName) => string,
  ) {
    this.#confinement = confinement;
    this.#clock = clock;
    this.messages = messages;
    this.#pathOf = pathOf;
  }

  get confinement(): Confinement {
    return this.#confinement;
  }

  /** Absolute path of the mailbox. @throws Problem `not-found` */
  mailbox(mailbox: MailboxName): string {
    if (this.has(mailbox)) return this.#pathOf(mailbox);
    throw problem('not-found', 'There is no such mailbox.');
  }

  has(mailbox: MailboxName): boolean {
    return this.#confinement.hasFolder(this.#pathOf(mailbox));
  }

  /** @throws Problem `not-found` */
  async find(mailbox: MailboxName, name: FolderName): Promise<MailboxFolder> {
    const root = this.mailbox(mailbox);
    if (name.directory === '') return { mailbox, name, path: root };
    const path = join(root, name.directory);
    if (this.#confinement.hasFolder(path)) return { mailbox, name, path };
    const other = (await this.list(mailbox)).find((folder) => folder.name.name === name.name);
    if (other !== undefined) return other;
    throw problem('not-found', 'There is no such folder.');
  }

  /**
   * All folders but INBOX, unsorted; of two directories with the same display name, the one with the canonical
   * encoding.
   */
  async list(mailbox: MailboxName): Promise<readonly MailboxFolder[]> {
    const root = this.mailbox(mailbox);
    const version = directoryVersion(root, this.#clock.now());
    const known = this.#lists.get(root);
    if (known !== undefined && known.version === version) return known.folders;
    const folders = await this.#read(mailbox, root);
    // It may have changed since.
    if (version !== undefined && version === directoryVersion(root, this.#clock.now())) {
      this.#lists.set(root, { version, folders });
    }
    return folders;
  }

  async #read(mailbox: MailboxName, root: string): Promise<readonly MailboxFolder[]> {
    const found = new Map<string, MailboxFolder>();
    for (const entry of (await this.#confinement.list(root)) ?? []) {
      const name = entry.isDirectory() ? folderOfDirectory(entry.name) : undefined;
      if (name === undefined || (found.has(name.name) && !/^[\x20-\x7e]*$/.test(entry.name))) continue;
      found.set(name.name, { mailbox, name, path: join(root, name.directory) });
    }
    return [...found.values()];
  }
}

interface FolderList {
  readonly version: string;
  readonly folders: readonly MailboxFolder[];
}

export function lockKey(mailbox: MailboxName): string {
  return `${mailbox.domain}/${folderOfLocal(mailbox.user)}`;
}
