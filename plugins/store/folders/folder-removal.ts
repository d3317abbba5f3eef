import { join } from 'node:path';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { mapBounded } from '../../../core/concurrency.js';

const unlinksAtOnce = 16;

/** Removes a folder with its contents. A symbolic link is removed, never followed. A missing folder is no error. */
export async function removeTree(files: FileLayer, path: string): Promise<void> {
  await unlessGone(async () => {
    if (!(await files.lstat(path)).isDirectory()) return files.unlink(path);
    await mapBounded(await files.readdir(path), unlinksAtOnce, (name) => removeEntry(files, join(path, name)));
    await files.rmdir(path);
  });
}

/** Tries to unlink first: nearly all entries are messages. Linux reports EISDIR for a folder, others EPERM. */
async function removeEntry(files: FileLayer, path: string): Promise<void> {
  await unlessGone(async () => {
    try {
      await files.unlink(path);
    } catch (error) {
      if (!(await files.lstat(path)).isDirectory()) throw error;
      await removeTree(files, path);
    }
  });
}

async function unlessGone(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}
