import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Semaphore } from '../concurrency.js';
import { startError } from '../problem.js';
import { isMissing, isTaken } from './fault.js';
import { type FileLayer, nodeFiles } from './file-layer.js';

/** Folders that are open at once; more wait. A message may have a thousand mailboxes. */
const maxOpen = 64;

interface Flush {
  readonly done: Promise<void>;
  /** True once the fsync is under way: who comes now needs the next one. */
  started: boolean;
}

/**
 * Makes folder entries durable. All who wait for one folder when its fsync starts share that fsync; who comes later
 * waits for the next one, for only that is sure to hold his entry.
 */
export class FolderSync {
  readonly #files: FileLayer;
  readonly #slots = new Semaphore(maxOpen);
  /** The newest flush of each folder that has one. */
  readonly #flushes = new Map<string, Flush>();

  constructor(files: FileLayer) {
    this.#files = files;
  }

  /** Every entry that is in the folder now is on the disk when this resolves. */
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

  /** A new descriptor each time: after an EIO the kernel has marked the pages clean, and the old one would say "fine". */
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

/** The one that everybody shares; a layer of its own (a test's) gets its own. */
export function folderSyncOf(files: FileLayer): FolderSync {
  return files === nodeFiles ? folders : new FolderSync(files);
}

/** Every entry that is in the folder now is on the disk when this resolves; shares the fsync with others who wait. */
export function syncFolder(folder: string): Promise<void> {
  return folders.sync(folder);
}

/** Makes the folder (0700) and what is missing above it, each of them durable. One that is there already stays as it is. */
export async function makeFolder(
  path: string,
  files: FileLayer = nodeFiles,
  sync: FolderSync = folderSyncOf(files),
): Promise<void> {
  try {
    await files.mkdir(path, 0o700);
  } catch (error) {
    if (isTaken(error)) return;
    if (!isMissing(error) || dirname(path) === path) throw error;
    await makeFolder(dirname(path), files, sync);
    await makeFolder(path, files, sync);
    return;
  }
  await sync.sync(dirname(path));
}

/** Brings everything that a file system holds in memory to its disk. */
export interface FileSystemFlush {
  /** False when this machine cannot; then each file must be fsynced. Rejects when the disk reports a fault. */
  flush(folder: string): Promise<boolean>;
}

/** The shell's words for a program that is not there or cannot be run, and what `sync` says to an option it does not know. */
const unknownOption = /unrecognized|invalid option|unknown option|usage/i;

/** By `sync -f` of the coreutils, for Node has no syncfs(2). Elsewhere `sync` knows no -f, or only begins to write. */
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
 * For what we cannot do without, and would neither remove nor move away.
 * @throws start error when something else has the name that a folder is to have; a link counts as what it leads to
 */
export async function requireFolder(
  path: string,
  what = 'Move it away; the next start makes the folder.',
): Promise<void> {
  const entry = await stat(path).catch(() => undefined);
  if (entry === undefined || entry.isDirectory()) return;
  throw startError(`${path} is not a folder. ${what}`);
}
