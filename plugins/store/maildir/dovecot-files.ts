import { lstat, readFile, utimes } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../../core/clock.js';
import { isMissing, isNameTaken } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import type { FolderSync } from '../../../core/disk/folder.js';
import { problem } from '../../../core/problem.js';
import { decodeModifiedUtf7, encodeModifiedUtf7 } from './modified-utf7.js';

export interface DovecotListContext {
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly clock: Clock;
  /** Locks are held for a few milliseconds; an older one belongs to a dead program. */
  readonly staleMs: number;
}

const maxBytes = 4 * 1024 * 1024;
const waitMs = 50;
const maxWaits = 60;

/** As latin1, so that unchanged bytes are kept. Undefined unless it is a file within the size limit. */
async function readDovecotList(path: string): Promise<string | undefined> {
  try {
    const stat = await lstat(path);
    return stat.isFile() && stat.size <= maxBytes ? await readFile(path, 'latin1') : undefined;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/**
 * Changes a list in a file of Dovecot in the same way as Dovecot: under its lock file `<name>.lock`, replaced by a
 * rename. A missing list counts as empty.
 * @returns the new list
 * @throws Problem `unavailable` when another program holds the lock
 */
export async function replaceDovecotList(
  path: string,
  change: (list: string) => string,
  context: DovecotListContext,
): Promise<string> {
  const { files } = context;
  const lock = `${path}.lock`;
  const fd = await createLock(lock, context);
  let after: string;
  try {
    let before: string;
    try {
      before = (await readDovecotList(path)) ?? '';
      after = change(before);
      if (after !== before) {
        await writeAll(files, fd, [Buffer.from(after, 'latin1')]);
        await files.fsync(fd);
      }
    } finally {
      await files.close(fd);
    }
    if (after === before) {
      await files.unlink(lock);
      return after;
    }
    await makeNewer(lock, path);
    await files.rename(lock, path);
  } catch (error) {
    await files.unlink(lock).catch(() => undefined);
    throw error;
  }
  // From here on, a lock belongs to another program.
  await context.sync.sync(dirname(path));
  return after;
}

/** Dovecot reloads a list when its mtime has changed by seconds. */
async function makeNewer(file: string, older: string): Promise<void> {
  const secondsOf = async (path: string) => Math.floor((await lstat(path)).mtimeMs / 1000);
  const before = await secondsOf(older).catch(() => 0);
  const now = await secondsOf(file);
  if (now <= before) await utimes(file, before + 1, before + 1);
}

async function createLock(lock: string, { files, clock, staleMs }: DovecotListContext): Promise<number> {
  for (let attempt = 0; attempt < maxWaits; attempt++) {
    try {
      return await files.open(lock, 'wx', 0o600);
    } catch (error) {
      if (!isNameTaken(error)) throw error;
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

const lockWaitMs = 20;
const lockTries = 100;

/**
 * Runs a task that renames files within a folder. A Dovecot that scans the folder meanwhile may miss some of them; it
 * would treat them as expunged, and give them new UIDs when it sees them again. It does not scan while its lock on the
 * UID list is held. When that lock is not available in time, or there is no such list, the task runs without it:
 * nothing is lost.
 * @param task its argument is true while Dovecot is locked out
 */
export async function whileUidsAreLocked<T>(
  folder: string,
  files: FileLayer,
  task: (isAlone: boolean) => Promise<T>,
): Promise<T> {
  const list = join(folder, 'dovecot-uidlist');
  const hasList = await isRegularFile(list, files);
  const lock = hasList ? await acquireUidLock(`${list}.lock`, files) : undefined;
  try {
    return await task(!hasList || lock !== undefined);
  } finally {
    await lock?.release();
  }
}

interface UidLock {
  release(): Promise<void>;
}

async function acquireUidLock(path: string, files: FileLayer): Promise<UidLock | undefined> {
  for (let attempt = 0; attempt < lockTries; attempt++) {
    try {
      await files.close(await files.open(path, 'wx', 0o600));
      const { ino } = await files.lstat(path);
      return { release: () => removeOwn(path, ino, files) };
    } catch (error) {
      if (!isNameTaken(error)) return undefined;
      await wait(lockWaitMs);
    }
  }
  return undefined;
}

/** Another program may have taken over a lock that is minutes old. */
async function removeOwn(path: string, ino: number, files: FileLayer): Promise<void> {
  try {
    if ((await files.lstat(path)).ino === ino) await files.unlink(path);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

async function isRegularFile(path: string, files: FileLayer): Promise<boolean> {
  try {
    return (await files.lstat(path)).isFile();
  } catch {
    return false;
  }
}

/** Folder `from` and its subfolders were renamed to `to`; null: removed. */
interface SubscriptionChange {
  readonly from: string;
  readonly to: string | null;
}

/**
 * Changes names in the mailbox's `subscriptions`, which mail clients wrote through an IMAP server: in both formats of
 * Dovecot. Does nothing without such a file.
 */
export async function changeSubscriptions(
  mailbox: string,
  change: SubscriptionChange,
  context: DovecotListContext,
): Promise<void> {
  const path = join(mailbox, 'subscriptions');
  if ((await readDovecotList(path)) === undefined) return;
  await replaceDovecotList(path, (list) => changed(list, change), context);
}

/** First line of the newer format, which separates levels by tabs; the older format uses dots. */
const secondFormat = /^V\t2\n/;

function changed(list: string, change: SubscriptionChange): string {
  const separator = secondFormat.test(list) ? '\t' : '.';
  return list
    .split('\n')
    .flatMap((line) => changedLine(line, separator, change))
    .join('\n');
}

function changedLine(line: string, separator: string, { from, to }: SubscriptionChange): readonly string[] {
  if (line === '' || /^V\t\d/.test(line)) return [line];
  const raw = /[\x80-\xff]/.test(line);
  const written = separator === '.' ? line : line.replaceAll(separator, '.');
  const name = nameOf(written, raw);
  if (name !== from && !name.startsWith(`${from}.`)) return [line];
  if (to === null) return [];
  const renamed = to + name.slice(from.length);
  const encoded = raw ? Buffer.from(renamed).toString('latin1') : encodeModifiedUtf7(renamed);
  return [encoded.replaceAll('.', separator)];
}

function nameOf(written: string, raw: boolean): string {
  const text = raw ? Buffer.from(written, 'latin1').toString('utf8') : (decodeModifiedUtf7(written) ?? written);
  return text.normalize('NFC');
}
