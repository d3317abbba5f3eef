import type { Dirent } from 'node:fs';
import { open, readdir, realpath, stat } from 'node:fs/promises';
import { join, resolve, sep } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type {
  ConfigurationSource,
  LookBounds,
  SkippedFile,
  SourceRequest,
  SourceSnapshot,
} from '../../../core/contracts/configuration-source.js';
import { problem } from '../../../core/problem.js';

const deepest = 3;
const maxEntries = 1000;

/** Identity of a file, to detect changes. */
interface Found {
  readonly name: string;
  readonly real: string;
  readonly inode: number;
  readonly size: number;
  readonly changedMs: number;
}

interface Listing {
  readonly found: readonly Found[];
  readonly skipped: readonly SkippedFile[];
}

/**
 * A folder as a source: a mounted ConfigMap, whose names are links into a folder that is replaced as a whole, a git
 * checkout, or files copied by hand. Links may only lead to files within the folder.
 */
export class FolderSource implements ConfigurationSource {
  readonly shown: string;

  constructor({ address, folder }: Pick<SourceRequest, 'address' | 'folder'>) {
    this.shown = resolve(folder, address);
  }

  async look({ maxBytes, signal }: LookBounds): Promise<SourceSnapshot> {
    const listing = await this.#list(signal);
    const { found, skipped } = listing;
    return {
      files: found.map(({ name }) => ({ name })),
      skipped,
      read: (name) =>
        this.#read(
          found.find((file) => file.name === name),
          maxBytes,
        ),
      confirm: async () => {
        if (!isDeepStrictEqual(await this.#list(signal), listing)) throw changes();
      },
    };
  }

  async #list(signal: AbortSignal): Promise<Listing> {
    const root = await attempt(() => realpath(this.shown), this.shown);
    const found: Found[] = [];
    const skipped: SkippedFile[] = [];
    const walk = async (folder: string, depth: number): Promise<void> => {
      const entries = await attempt(() => readdir(join(root, folder), { withFileTypes: true }), this.shown);
      for (const entry of entries.filter(({ name }) => !name.startsWith('.')).toSorted(byName)) {
        signal.throwIfAborted();
        const name = folder === '' ? entry.name : `${folder}/${entry.name}`;
        if (found.length + skipped.length >= maxEntries)
          throw problem('invalid', `There are more than ${maxEntries} files.`);
        const file = await look(root, name);
        if (typeof file === 'string') skipped.push({ file: name, why: file });
        else if (file !== undefined) found.push(file);
        else if (depth < deepest) await walk(name, depth + 1);
        else skipped.push({ file: name, why: 'lies too deep' });
      }
    };
    await walk('', 1);
    return { found, skipped };
  }

  async #read(file: Found | undefined, maxBytes: number): Promise<Buffer> {
    if (file === undefined) throw changes();
    const handle = await attempt(() => open(file.real, 'r'), file.name);
    try {
      const { size, ino } = await handle.stat();
      if (ino !== file.inode) throw changes();
      if (size > maxBytes) throw problem('invalid', `${file.name} is larger than ${maxBytes} bytes.`);
      return await handle.readFile();
    } finally {
      await handle.close();
    }
  }
}

const byName = (a: Dirent, b: Dirent): number => (a.name < b.name ? -1 : 1);

/** The file, undefined for a folder, or why it is ignored. */
async function look(root: string, name: string): Promise<Found | string | undefined> {
  try {
    const real = await realpath(join(root, name));
    if (!real.startsWith(root + sep)) return 'is a link that leads out of the source';
    const found = await stat(real);
    if (found.isDirectory()) return undefined;
    if (!found.isFile()) return 'is no file';
    return { name, real, inode: found.ino, size: found.size, changedMs: found.mtimeMs };
  } catch {
    return 'cannot be read';
  }
}

async function attempt<T>(act: () => Promise<T>, what: string): Promise<T> {
  try {
    return await act();
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException;
    const why = code === 'ENOENT' ? 'is not there' : code === 'ENOTDIR' ? 'is no folder' : `cannot be read (${code})`;
    throw problem('unavailable', { detail: `${what} ${why}.`, cause });
  }
}

const changes = (): Error => problem('unavailable', 'The source changes at this moment.');
