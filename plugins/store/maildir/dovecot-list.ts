import { lstat, readFile, utimes } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../../core/clock.js';
import { isMissing, isTaken } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import type { FolderSync } from '../../../core/disk/folder.js';
import { problem } from '../../../core/problem.js';

export interface DovecotListContext {
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly clock: Clock;
  /** A lock that old was left by a program that died: nobody holds it for longer than a few milliseconds. */
  readonly staleMs: number;
}

const maxBytes = 4 * 1024 * 1024;
const waitMs = 50;
const maxWaits = 60;

/** As latin1: what we do not change keeps its bytes. Undefined for what is no file, or too large. */
export async function readDovecotList(path: string): Promise<string | undefined> {
  try {
    const stat = await lstat(path);
    return stat.isFile() && stat.size <= maxBytes ? await readFile(path, 'latin1') : undefined;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/**
 * Changes a list that Dovecot keeps in a file, as Dovecot does: under its lock file `<name>.lock`, replaced by a rename. A list
 * that is not there is empty before.
 * @returns the list afterwards
 * @throws Problem `unavailable` when another program holds the lock
 */
export async function replaceDovecotList(
  path: string,
  change: (list: string) => string,
  context: DovecotListContext,
): Promise<string> {
  const { files } = context;
  const lock = `${path}.lock`;
  const fd = await takeLock(lock, context);
  try {
    const before = (await readDovecotList(path)) ?? '';
    const after = change(before);
    if (after === before) {
      await files.close(fd);
      await files.unlink(lock);
      return after;
    }
    await writeAll(files, fd, [Buffer.from(after, 'latin1')]);
    await files.fsync(fd);
    await files.close(fd);
    await makeNewer(lock, path);
    await files.rename(lock, path);
    await context.sync.sync(dirname(path));
    return after;
  } catch (error) {
    await files.unlink(lock).catch(() => undefined);
    throw error;
  }
}

/** Dovecot reads a list again when its mtime is of another second. */
async function makeNewer(file: string, older: string): Promise<void> {
  const secondsOf = async (path: string) => Math.floor((await lstat(path)).mtimeMs / 1000);
  const before = await secondsOf(older).catch(() => 0);
  const now = await secondsOf(file);
  if (now <= before) await utimes(file, before + 1, before + 1);
}

async function takeLock(lock: string, { files, clock, staleMs }: DovecotListContext): Promise<number> {
  for (let attempt = 0; attempt < maxWaits; attempt++) {
    try {
      return await files.open(lock, 'wx', 0o600);
    } catch (error) {
      if (!isTaken(error)) throw error;
    }
    const age = await lstat(lock).then(
      ({ mtimeMs }) => clock.now() - mtimeMs,
      () => 0,
    );
    if (age > staleMs) await files.unlink(lock).catch(() => undefined);
    else await wait(waitMs);
  }
  throw problem('unavailable', 'Another program holds a list of this mailbox; try again later.');
}
