import { join } from 'node:path';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { mapBounded } from '../../../core/concurrency.js';

const unlinksAtOnce = 16;

/** Removes a folder with everything in it. A symbolic link is removed, never followed. What is gone already is no fault. */
export async function removeTree(files: FileLayer, path: string): Promise<void> {
  await unlessGone(async () => {
    if (!(await files.lstat(path)).isDirectory()) return files.unlink(path);
    await mapBounded(await files.readdir(path), unlinksAtOnce, (name) => removeEntry(files, join(path, name)));
    await files.rmdir(path);
  });
}

/** Tried as a file first: nearly all are messages. Linux says EISDIR for a folder, others EPERM. */
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
