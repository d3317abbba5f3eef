import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  opendirSync,
  openSync,
  readlinkSync,
  realpathSync,
} from 'node:fs';
import { join, sep } from 'node:path';
import { isAbsent } from '../../../core/disk/confinement.js';
import { type Stamp, stampOf } from '../maildir/folder-stamp.js';

/** Names read at once; larger batches are slower. */
const namesAtOnce = 1000;
/** Maximum that cursors and dates support; a file may have any time. */
const latestMs = 99_999_999_999_999;
const hasProc = existsSync('/proc/self/fd');

/**
 * A directory below the folder of the mailboxes, opened without following symbolic links. It is read through its
 * descriptor, so that a replacement of the path has no effect. Blocking: for worker threads.
 */
export class ConfinedDirectory {
  readonly #fd: number;
  /** Path of the open descriptor where the system has one. */
  readonly #path: string;

  private constructor(fd: number, path: string) {
    this.#fd = fd;
    this.#path = hasProc ? `/proc/self/fd/${fd}` : path;
  }

  /** Undefined when there is no such directory, or a link leads to it. @param root resolved */
  static open(root: string, path: string): ConfinedDirectory | undefined {
    if (!path.startsWith(root + sep)) return undefined;
    const fd = openQuietly(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_DIRECTORY);
    if (fd === undefined) return undefined;
    if (realPathOf(fd, path) === path) return new ConfinedDirectory(fd, path);
    closeSync(fd);
    return undefined;
  }

  stamp(): Stamp {
    return stampOf(fstatSync(this.#fd, { bigint: true }));
  }

  /** Names of regular files, except hidden ones, in batches. */
  *files(): Generator<readonly string[]> {
    const directory = opendirSync(this.#path, { bufferSize: namesAtOnce });
    try {
      let names: string[] = [];
      for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
        if (!entry.isFile() || entry.name.startsWith('.')) continue;
        names.push(entry.name);
        if (names.length < namesAtOnce) continue;
        yield names;
        names = [];
      }
      yield names;
    } finally {
      directory.closeSync();
    }
  }

  /** Time and size of the file; undefined when it is gone. */
  facts(name: string): { readonly receivedAt: number; readonly size: number } | undefined {
    try {
      const { mtimeMs, size } = lstatSync(join(this.#path, name));
      return { receivedAt: Math.min(Math.max(0, mtimeMs), latestMs), size };
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }

  /** A descriptor of a regular file, for reading; the caller closes it. Does not block on a FIFO. */
  openFile(name: string): { readonly fd: number; readonly size: number } | undefined {
    const fd = openQuietly(join(this.#path, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if (fd === undefined) return undefined;
    const stat = fstatSync(fd);
    if (stat.isFile()) return { fd, size: stat.size };
    closeSync(fd);
    return undefined;
  }

  close(): void {
    closeSync(this.#fd);
  }
}

function openQuietly(path: string, flags: number): number | undefined {
  try {
    return openSync(path, flags);
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

function realPathOf(fd: number, path: string): string {
  return hasProc ? readlinkSync(`/proc/self/fd/${fd}`) : realpathSync(path);
}
