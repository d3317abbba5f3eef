import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import type { Clock } from '../../core/clock.js';
import type { MailboxName } from '../../core/contracts/mailboxes.js';
import { problem } from '../../core/problem.js';
import type { Confinement } from '../../core/disk/confinement.js';
import { currentVersion, type FolderContents, readFolderContents } from './folder-contents.js';
import { type FolderName, folderOfDirectory } from './folder-name.js';

/** A folder that was there when it was looked for. */
export interface MailboxFolder {
  readonly mailbox: MailboxName;
  readonly name: FolderName;
  /** Absolute. */
  readonly path: string;
}

const maxRemembered = 64;
/** Message names held for all folders together. */
const maxEntries = 500_000;

/** Finds folders, and remembers what was in them for as long as their directories say that nothing changed. */
export class MailboxFolders {
  readonly #confinement: Confinement;
  readonly #clock: Clock;
  readonly #pathOf: (mailbox: MailboxName) => string;
  readonly #remembered = new LRUCache<string, FolderContents>({
    max: maxRemembered,
    maxSize: maxEntries,
    sizeCalculation: (contents) => contents.entries.length + 1,
  });
  /** Readers that come while a folder is being read share that reading. */
  readonly #reading = new Map<string, Promise<FolderContents | undefined>>();

  /** @param pathOf absolute path of a mailbox */
  constructor(confinement: Confinement, clock: Clock, pathOf: (mailbox: MailboxName) => string) {
    this.#confinement = confinement;
    this.#clock = clock;
    this.#pathOf = pathOf;
  }

  get confinement(): Confinement {
    return this.#confinement;
  }

  /** Absolute path of the mailbox. @throws Problem `not-found` */
  async mailbox(mailbox: MailboxName): Promise<string> {
    const path = this.#pathOf(mailbox);
    if (await this.#confinement.hasFolder(path)) return path;
    throw problem('not-found', 'There is no such mailbox.');
  }

  /** @throws Problem `not-found` */
  async find(mailbox: MailboxName, name: FolderName): Promise<MailboxFolder> {
    const root = await this.mailbox(mailbox);
    if (name.directory === '') return { mailbox, name, path: root };
    const path = join(root, name.directory);
    if (await this.#confinement.hasFolder(path)) return { mailbox, name, path };
    const other = (await this.list(mailbox)).find((folder) => folder.name.name === name.name);
    if (other !== undefined) return other;
    throw problem('not-found', 'There is no such folder.');
  }

  /** All folders but INBOX, unsorted; of two directories that show the same name, the one that we would write. */
  async list(mailbox: MailboxName): Promise<readonly MailboxFolder[]> {
    const root = await this.mailbox(mailbox);
    const found = new Map<string, MailboxFolder>();
    for (const entry of (await this.#confinement.list(root)) ?? []) {
      const name = entry.isDirectory() ? folderOfDirectory(entry.name) : undefined;
      if (name === undefined || (found.has(name.name) && !/^[\x20-\x7e]*$/.test(entry.name))) continue;
      found.set(name.name, { mailbox, name, path: join(root, name.directory) });
    }
    return [...found.values()];
  }

  /** @throws Problem `not-found` when the folder is gone */
  async contents(folder: MailboxFolder): Promise<FolderContents> {
    const known = this.#remembered.get(folder.path);
    if (known?.version !== undefined && known.version === (await currentVersion(folder.path, this.#clock)))
      return known;
    return this.freshContents(folder);
  }

  /** The same without believing what is remembered. */
  async freshContents(folder: MailboxFolder): Promise<FolderContents> {
    const running = this.#reading.get(folder.path);
    const reading = running ?? readFolderContents(this.#confinement, folder.path, this.#clock);
    if (running === undefined) {
      this.#reading.set(folder.path, reading);
      const done = (): void => void this.#reading.delete(folder.path);
      reading.then(done, done);
    }
    const contents = await reading;
    if (contents === undefined) throw problem('not-found', 'There is no such folder.');
    if (contents.version !== undefined) this.#remembered.set(folder.path, contents);
    return contents;
  }
}
