import { lstat, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../core/clock.js';
import { isMissing, isTaken } from '../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../core/disk/file-layer.js';
import type { FolderSync } from '../../core/disk/folder.js';
import { problem } from '../../core/problem.js';
import { decodeModifiedUtf7, encodeModifiedUtf7 } from './modified-utf7.js';

/** Folder `from` and all below it are called `to` now; null: they are gone. */
export interface SubscriptionChange {
  readonly from: string;
  readonly to: string | null;
}

export interface SubscriptionGround {
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly clock: Clock;
  /** A lock that old was left by a program that died: nobody holds it for longer than a few milliseconds. */
  readonly staleMs: number;
}

const largest = 4 * 1024 * 1024;
const waitMs = 50;
const waits = 60;

/**
 * Changes names in the mailbox's `subscriptions`, which mail clients wrote through an IMAP server: in the two formats that
 * Dovecot knows, under its lock file `subscriptions.lock`, replaced by a rename. Without such a file there is nothing to do.
 */
export async function changeSubscriptions(
  mailbox: string,
  change: SubscriptionChange,
  ground: SubscriptionGround,
): Promise<void> {
  const path = join(mailbox, 'subscriptions');
  if ((await readList(path)) === undefined) return;
  const { files } = ground;
  const lock = `${path}.lock`;
  const fd = await takeLock(lock, ground);
  try {
    const before = (await readList(path)) ?? '';
    const after = changed(before, change);
    if (after === before) {
      await files.close(fd);
      await files.unlink(lock);
      return;
    }
    await writeAll(files, fd, [Buffer.from(after, 'latin1')]);
    await files.fsync(fd);
    await files.close(fd);
    await files.rename(lock, path);
  } catch (error) {
    await files.unlink(lock).catch(() => undefined);
    throw error;
  }
  await ground.sync.sync(mailbox);
}

/** As latin1: what we do not change keeps its bytes. */
async function readList(path: string): Promise<string | undefined> {
  try {
    const stat = await lstat(path);
    return stat.isFile() && stat.size <= largest ? await readFile(path, 'latin1') : undefined;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

async function takeLock(lock: string, { files, clock, staleMs }: SubscriptionGround): Promise<number> {
  for (let attempt = 0; attempt < waits; attempt++) {
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
  throw problem('unavailable', 'Another program holds the list of subscriptions; try again later.');
}

/** First line of the newer format, whose names have a tab between their levels; the older one has a dot. */
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
