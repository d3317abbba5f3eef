import { realpath, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { LRUCache } from 'lru-cache';
import { allSettledOrThrow } from '../../../core/concurrency.js';
import { cacheSize } from '../../../core/disk/cache-size.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isMissing, isNameTaken } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { type FolderSync, folderSyncOf, makeFolder } from '../../../core/disk/folder.js';
import { problem, startError } from '../../../core/problem.js';
import { mailboxFolder } from './mailbox-name.js';

export const maildirParts = ['tmp', 'new', 'cur'] as const;

/** Maximum number of mailboxes whose folders are known to be durable; a forgotten one costs three shared fsyncs. */
const maxDurable = 10_000;

/** The mailboxes below one root. The root may be a symbolic link; nothing below it may be one. */
export class MaildirTree {
  /** Absolute and resolved. */
  readonly root: string;
  readonly #files: FileLayer;
  readonly #folders: FolderSync;
  /** The parent folders of `new`. */
  readonly #durable = new LRUCache<string, readonly string[]>(cacheSize(maxDurable));

  readonly #looks = new Map<string, Promise<boolean>>();

  constructor(root: string, files: FileLayer = nodeFiles) {
    this.root = root;
    this.#files = files;
    this.#folders = folderSyncOf(files);
  }

  /**
   * The folder of the mailbox, created durably with tmp, new and cur. The path to `new` is checked again in each turn
   * of the event loop. Existing folders are fsynced once by this process: the process that created them may have died
   * before its fsync.
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

  /** True when the Maildir exists. */
  async exists(name: MailboxName): Promise<boolean> {
    const folder = mailboxFolder(this.root, name);
    return this.#allThere([join(this.root, name.domain), folder, join(folder, 'new'), join(folder, 'cur')]);
  }

  /** Deliveries of one turn of the event loop share a check. */
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

  /** False when it does not exist; throws unless it is a folder, and for a symbolic link. */
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
      if (!isNameTaken(error)) throw error;
      await this.#isFolder(path);
    }
  }
}

/**
 * Creates the folder of the mailboxes and returns its resolved path. Messages are hard-linked into it, so it must be on
 * the file system of the data folder; a start error otherwise.
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
