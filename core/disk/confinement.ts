import { constants, type Dirent } from 'node:fs';
import { type FileHandle, lstat, open, readdir, readlink, realpath } from 'node:fs/promises';
import { dirname, sep } from 'node:path';

/**
 * Opens below one folder, and nowhere else. Symbolic links are not followed, on the last step by O_NOFOLLOW; that no step
 * in between was one is asked of the open descriptor, so that a directory swapped for a link at the wrong moment is seen.
 */
export class Confinement {
  /** With its links resolved: the folder itself may be one, by the operator's wish. */
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

  /** A regular file, for reading; undefined for anything else, and for what is not there. A FIFO does not hang. */
  async openFile(path: string): Promise<FileHandle | undefined> {
    const handle = await this.#open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if (handle === undefined) return undefined;
    if ((await handle.stat()).isFile() && dirname(await realPathOf(handle, path)) === dirname(path)) return handle;
    await handle.close();
    return undefined;
  }

  /** What is in a directory; undefined when there is no such directory, or it is a link. */
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

  /** True for a directory that is no link. */
  async hasFolder(path: string): Promise<boolean> {
    try {
      return (await lstat(path)).isDirectory() && (await realpath(path)) === path;
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

/** Where the opened thing really is. Systems without /proc have to ask by name. */
function realPathOf(handle: FileHandle, path: string): Promise<string> {
  return readlink(procPath(handle)).catch(() => realpath(path));
}

function procPath(handle: FileHandle): string {
  return `/proc/self/fd/${handle.fd}`;
}

/** Not there, a link, no directory, a socket, or not ours to read: for a reader the same. */
const absent = new Set(['ENOENT', 'ENOTDIR', 'ELOOP', 'EMLINK', 'ENXIO', 'EACCES', 'ENAMETOOLONG']);

export function isAbsent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && absent.has(error.code);
}
