import { realpath, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { LRUCache } from 'lru-cache';
import { allSettledOrThrow } from '../../../core/concurrency.js';
import { cacheSize } from '../../../core/disk/cache-size.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isMissing, isTaken } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { type FolderSync, folderSyncOf, makeFolder } from '../../../core/disk/folder.js';
import { problem, startError } from '../../../core/problem.js';
import { mailboxFolder } from './mailbox-name.js';

export const maildirParts = ['tmp', 'new', 'cur'] as const;

/** Mailboxes whose folders are known to be durable; a forgotten one costs three shared fsyncs. */
const maxDurable = 10_000;

/** The mailboxes below one root. The root may be reached by a symbolic link; nothing below it may be one. */
export class MaildirTree {
  /** Absolute and resolved. */
  readonly root: string;
  readonly #files: FileLayer;
  readonly #folders: FolderSync;
  /** The folders on the way to `new`. */
  readonly #durable = new LRUCache<string, readonly string[]>(cacheSize(maxDurable));

  readonly #looks = new Map<string, Promise<boolean>>();

  constructor(root: string, files: FileLayer = nodeFiles) {
    this.root = root;
    this.#files = files;
    this.#folders = folderSyncOf(files);
  }

  /**
   * The folder of the mailbox, which exists with its tmp, new and cur, durably. The way to `new` is looked at anew in each turn of the event loop.
   * Folders that were there already are fsynced once by this process: who made them may have died before he did.
   */
  async ensure(name: MailboxName): Promise<string> {
    const folder = mailboxFolder(this.root, name);
    const way = this.#durable.get(folder);
    if (way !== undefined && (await this.#look(folder, way))) return folder;
    const domain = join(this.root, name.domain);
    for (const path of [domain, folder, ...maildirParts.map((part) => join(folder, part))]) await this.#make(path);
    await allSettledOrThrow([this.root, domain, folder].map((path) => this.#folders.sync(path)));
    this.#durable.set(folder, [domain, folder, join(folder, 'new')]);
    return folder;
  }

  /** True when there is a Maildir of that name. */
  async exists(name: MailboxName): Promise<boolean> {
    const folder = mailboxFolder(this.root, name);
    return this.#allThere([join(this.root, name.domain), folder, join(folder, 'new'), join(folder, 'cur')]);
  }

  /** Deliveries of one turn of the event loop share a look. */
  #look(folder: string, way: readonly string[]): Promise<boolean> {
    const shared = this.#looks.get(folder);
    if (shared !== undefined) return shared;
    if (this.#looks.size === 0) setImmediate(() => this.#looks.clear());
    const look = this.#allThere(way);
    this.#looks.set(folder, look);
    return look;
  }

  async #allThere(paths: readonly string[]): Promise<boolean> {
    for (const path of paths) if (!(await this.#isFolder(path))) return false;
    return true;
  }

  /** False when nothing is there; throws when it is not a folder, or a symbolic link to one. */
  async #isFolder(path: string): Promise<boolean> {
    try {
      const entry = await this.#files.lstat(path);
      if (entry.isDirectory()) return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
    throw problem('internal', {
      detail: 'The mailbox is not in order.',
      cause: new Error(`${path} is not a folder: symbolic links and files are not followed in the mailbox tree`),
    });
  }

  async #make(path: string): Promise<void> {
    if (await this.#isFolder(path)) return;
    try {
      await this.#files.mkdir(path, 0o700);
    } catch (error) {
      if (!isTaken(error)) throw error;
      await this.#isFolder(path);
    }
  }
}

/**
 * Makes the folder of the mailboxes and answers its resolved path. Messages come into it by a link, so it must share a
 * file system with the data folder; a start error otherwise.
 */
export async function openRoot(data: string, root: string): Promise<string> {
  const path = resolve(data, root);
  try {
    await makeFolder(path);
  } catch (error) {
    throw startError(
      `Cannot make the folder of the mailboxes, ${path}. Make it, or give this user the right to.`,
      error,
    );
  }
  const [mail, home] = await Promise.all([stat(path), stat(data)]);
  if (!mail.isDirectory()) throw startError(`plugins.store.root: ${path} is not a folder. Name another one.`);
  if (mail.dev !== home.dev) {
    throw startError(
      `plugins.store.root: ${path} and the data folder ${data} are on different file systems. Put both on one, for messages are linked from one to the other.`,
    );
  }
  return realpath(path);
}
