import { constants, type Dirent, lstatSync, realpathSync } from 'node:fs';
import { type FileHandle, open, readdir, readlink, realpath } from 'node:fs/promises';
import { dirname, sep } from 'node:path';

/**
 * Opens entries below one folder only. Symbolic links are not followed: O_NOFOLLOW refuses the last step, and the real
 * path of the open descriptor shows a link in an earlier step, even one swapped in meanwhile.
 */
export class Confinement {
  /** With its links resolved: an operator may have linked the folder itself. */
  readonly #root: string;

  private constructor(root: string) {
    this.#root = root;
  }

  static async of(root: string): Promise<Confinement> {
    return new Confinement(await realpath(root));
  }

  get root(): string {
    return this.#root;
  }

  /** A regular file for reading; undefined for other types and missing files. Does not block on a FIFO. */
  async openFile(path: string): Promise<FileHandle | undefined> {
    const handle = await this.#open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if (handle === undefined) return undefined;
    if ((await handle.stat()).isFile() && dirname(await realPathOf(handle, path)) === dirname(path)) return handle;
    await handle.close();
    return undefined;
  }

  /** The entries of a directory; undefined when it is missing or a link. */
  async list(path: string): Promise<readonly Dirent[] | undefined> {
    const handle = await this.#open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_DIRECTORY);
    if (handle === undefined) return undefined;
    try {
      if ((await realPathOf(handle, path)) !== path) return undefined;
      return await readdir(procPath(handle), { withFileTypes: true }).catch(() =>
        readdir(path, { withFileTypes: true }),
      );
    } finally {
      await handle.close();
    }
  }

  /** True for a directory that is no link. Blocks: what is asked for again and again is in memory, and a thread costs more. */
  hasFolder(path: string): boolean {
    try {
      return lstatSync(path).isDirectory() && realpathSync.native(path) === path;
    } catch (error) {
      if (isAbsent(error)) return false;
      throw error;
    }
  }

  async #open(path: string, flags: number): Promise<FileHandle | undefined> {
    if (path !== this.#root && !path.startsWith(this.#root + sep)) return undefined;
    try {
      return await open(path, flags);
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }
}

/** The real path of an open file or directory. Systems without /proc look it up by name. */
function realPathOf(handle: FileHandle, path: string): Promise<string> {
  return readlink(procPath(handle)).catch(() => realpath(path));
}

function procPath(handle: FileHandle): string {
  return `/proc/self/fd/${handle.fd}`;
}

/** Missing, a link, not a directory, a socket, or not readable: the same for a reader. */
const absent = new Set(['ENOENT', 'ENOTDIR', 'ELOOP', 'EMLINK', 'ENXIO', 'EACCES', 'ENAMETOOLONG']);

export function isAbsent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && absent.has(error.code);
}
