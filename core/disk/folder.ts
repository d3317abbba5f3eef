import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Semaphore } from '../concurrency.js';
import { startError } from '../problem.js';
import { isMissing, isNameTaken } from './fault.js';
import { type FileLayer, nodeFiles } from './file-layer.js';

/** Folders open at once; more wait. A message may have a thousand mailboxes. */
const maxOpen = 64;

interface Flush {
  readonly done: Promise<void>;
  /** True once the fsync has started: later callers need the next one. */
  started: boolean;
}

/**
 * Makes folder entries durable. Callers that wait before an fsync starts share it; later ones wait for the next one,
 * since only that is sure to include their entries.
 */
export class FolderSync {
  readonly #files: FileLayer;
  readonly #slots = new Semaphore(maxOpen);
  /** The newest flush of each folder that is being flushed. */
  readonly #flushes = new Map<string, Flush>();

  constructor(files: FileLayer) {
    this.#files = files;
  }

  /** Resolves when all present entries of the folder are durable. */
  sync(folder: string): Promise<void> {
    const newest = this.#flushes.get(folder);
    if (newest !== undefined && !newest.started) return newest.done;
    const flush: Flush = { started: false, done: Promise.resolve() };
    const done = this.#run(folder, flush, newest?.done);
    const shared = Object.assign(flush, { done });
    this.#flushes.set(folder, shared);
    const forget = (): void => {
      if (this.#flushes.get(folder) === shared) this.#flushes.delete(folder);
    };
    done.then(forget, forget);
    return done;
  }

  async #run(folder: string, flush: Flush, before: Promise<void> | undefined): Promise<void> {
    await before?.catch(() => undefined);
    await this.#slots.acquire();
    try {
      await this.#flush(folder, flush);
    } finally {
      this.#slots.release();
    }
  }

  /**
   * Opens a new descriptor each time: after an EIO the kernel marks the pages clean, and the old descriptor would
   * report success.
   */
  async #flush(folder: string, flush: Flush): Promise<void> {
    const fd = await this.#open(folder, flush);
    try {
      flush.started = true;
      await this.#files.fsync(fd);
    } finally {
      await this.#files.close(fd);
    }
  }

  async #open(folder: string, flush: Flush): Promise<number> {
    try {
      return await this.#files.openNow(folder, 'r');
    } catch (error) {
      flush.started = true;
      throw error;
    }
  }
}

const folders = new FolderSync(nodeFiles);

/** The shared instance for the real file layer; any other layer gets its own. */
export function folderSyncOf(files: FileLayer): FolderSync {
  return files === nodeFiles ? folders : new FolderSync(files);
}

/** Like `FolderSync.sync`, with the shared instance. */
export function syncFolder(folder: string): Promise<void> {
  return folders.sync(folder);
}

/** Creates the folder (0700) and missing parents durably. An existing one stays as it is. */
export async function makeFolder(
  path: string,
  files: FileLayer = nodeFiles,
  sync: FolderSync = folderSyncOf(files),
): Promise<void> {
  try {
    await files.mkdir(path, 0o700);
  } catch (error) {
    if (isNameTaken(error)) return;
    if (!isMissing(error) || dirname(path) === path) throw error;
    await makeFolder(dirname(path), files, sync);
    await makeFolder(path, files, sync);
    return;
  }
  await sync.sync(dirname(path));
}

/** Makes everything durable that a file system has in memory. */
export interface FileSystemFlush {
  /** False when the system cannot; then each file must be fsynced. Rejects when the disk reports a fault. */
  flush(folder: string): Promise<boolean>;
}

/** What `sync` prints for an option it does not know. */
const unknownOption = /unrecognized|invalid option|unknown option|usage/i;

/**
 * Runs `sync -f` of the coreutils, since Node has no syncfs(2). Elsewhere `sync` has no -f, or only begins to write.
 */
export const coreutilsFlush: FileSystemFlush = {
  flush: (folder) =>
    new Promise((resolve, reject) => {
      if (process.platform !== 'linux') {
        resolve(false);
        return;
      }
      execFile('sync', ['-f', folder], (error, _, stderr) => {
        if (error === null) resolve(true);
        else if (typeof error.code === 'string' || unknownOption.test(stderr)) resolve(false);
        else reject(new Error('the file system could not be brought to the disk', { cause: error }));
      });
    }),
};

/**
 * For folders that the server needs and neither removes nor moves.
 * @throws start error when the name belongs to something else; a link counts as its target
 */
export async function requireFolder(
  path: string,
  what = 'Move it away; the next start makes the folder.',
): Promise<void> {
  const entry = await stat(path).catch(() => undefined);
  if (entry === undefined || entry.isDirectory()) return;
  throw startError(`${path} is not a folder. ${what}`);
}
