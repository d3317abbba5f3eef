import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { isMissing, isTaken } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';

const waitMs = 20;
const waits = 100;

/**
 * Runs a task that renames files within a folder. A Dovecot that reads the folder meanwhile may miss some of them; it would take
 * them for expunged, and give them new UIDs when it sees them again. It does not while somebody has its own lock on the list of
 * UIDs. Where it holds that lock for long, or there is no such list, the task runs all the same: nothing is lost by it.
 * @param task is told whether Dovecot is kept out
 */
export async function whileUidsAreLocked<T>(
  folder: string,
  files: FileLayer,
  task: (isAlone: boolean) => Promise<T>,
): Promise<T> {
  const list = join(folder, 'dovecot-uidlist');
  const hasList = await isFile(list, files);
  const lock = hasList ? await take(`${list}.lock`, files) : undefined;
  try {
    return await task(!hasList || lock !== undefined);
  } finally {
    await lock?.release();
  }
}

interface Lock {
  release(): Promise<void>;
}

async function take(path: string, files: FileLayer): Promise<Lock | undefined> {
  for (let attempt = 0; attempt < waits; attempt++) {
    try {
      await files.close(await files.open(path, 'wx', 0o600));
      const { ino } = await files.lstat(path);
      return { release: () => removeOwn(path, ino, files) };
    } catch (error) {
      if (!isTaken(error)) return undefined;
      await wait(waitMs);
    }
  }
  return undefined;
}

/** A lock that stood for minutes may have been taken over. */
async function removeOwn(path: string, ino: number, files: FileLayer): Promise<void> {
  try {
    if ((await files.lstat(path)).ino === ino) await files.unlink(path);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

async function isFile(path: string, files: FileLayer): Promise<boolean> {
  try {
    return (await files.lstat(path)).isFile();
  } catch {
    return false;
  }
}
