import { readFile, readlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { systemClock } from '../clock.js';
import { startError } from '../problem.js';
import { writeDurable, writeFileAtomic } from './atomic.js';
import { faultCode, isMissing, isTaken, isUnwritable } from './fault.js';
import { nodeFiles as files, readRegularText } from './file-layer.js';
import { syncFolder } from './folder.js';
import { uniqueId } from './id.js';

export const lockFile = 'postern.lock';

/** So many crashes in the middle of a takeover, one on top of the other, are mended; then a person must look. */
const maxTakeovers = 3;

const LockInfo = z.object({
  pid: z.int().positive(),
  /** ISO 8601. */
  startedAt: z.string(),
  /** `http://127.0.0.1:8080` once it listens. */
  http: z.string().nullable(),
  /** Lets commands of this folder's user speak to the owner over HTTP; made anew at each start. */
  token: z.string().nullable().default(null),
  /** Which boot of the machine, and when in it the process began: a pid alone comes back after a restart. */
  bootId: z.string().nullable(),
  processStart: z.string().nullable(),
});

/** Who owns a data folder. */
export type LockInfo = Readonly<z.output<typeof LockInfo>>;

export interface FolderLock {
  /** Tells others where the owner answers, and to what. */
  update(change: { readonly http: string | null; readonly token?: string }): Promise<void>;
  /** Removes the lock, unless it is not ours any more. */
  release(): Promise<void>;
}

/** The living owner of the folder, if it has one. */
export async function readLock(folder: string): Promise<LockInfo | undefined> {
  return livingOwner(join(folder, lockFile));
}

async function livingOwner(path: string): Promise<LockInfo | undefined> {
  const found = await readInfo(path);
  return found !== undefined && (await isAlive(found)) ? found : undefined;
}

const retryMs = 1000;

/**
 * The same where the disk may be full or read-only: a server has to start there, so that an operator can make room. The lock is then
 * written as soon as that works. A process that finds another owner by then ends.
 */
export async function lockFolderSoon(folder: string): Promise<FolderLock> {
  const path = join(folder, lockFile);
  let lock = await unlessUnwritable(lockFolder(folder, { http: null }));
  if (lock === undefined) {
    const owner = await livingOwner(path);
    if (owner !== undefined) throw inUseError(path, owner);
  }
  let wanted: Parameters<FolderLock['update']>[0] = { http: null };
  let timer: NodeJS.Timeout | undefined;
  const later = (): void => {
    timer = setTimeout(() => void write(), retryMs).unref();
  };
  const write = async (): Promise<void> => {
    clearTimeout(timer);
    lock ??= await unlessUnwritable(lockFolder(folder, { http: null }));
    const isWritten = lock !== undefined && (await unlessUnwritable(lock.update(wanted).then(() => true))) === true;
    if (!isWritten) later();
  };
  if (lock === undefined) later();
  return {
    update: async (change) => {
      wanted = change;
      await write();
    },
    release: async () => {
      clearTimeout(timer);
      if (lock !== undefined) await unlessUnwritable(lock.release());
    },
  };
}

async function unlessUnwritable<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (isUnwritable(error)) return undefined;
    throw error;
  }
}

/**
 * Makes this process the owner of the folder, which exists. The lock of a dead process is taken over; that of a living
 * one is a start error.
 */
export async function lockFolder(folder: string, { http }: { readonly http: string | null }): Promise<FolderLock> {
  const path = join(folder, lockFile);
  let info = await ownInfo(http);
  const mine = join(folder, `.${lockFile}.${uniqueId()}`);
  try {
    await writeDurable(files, mine, [encode(info)]);
    await acquire(mine, path, 0);
  } finally {
    await files.unlink(mine).catch(() => undefined);
  }
  await syncFolder(folder);
  return {
    update: async (change) => {
      info = { ...info, ...change };
      await writeFileAtomic(path, encode(info));
    },
    release: async () => {
      const found = await readInfo(path);
      if (found?.pid === info.pid && found.processStart === info.processStart) await files.unlink(path);
    },
  };
}

/**
 * Links `mine` to `path`, which replaces nothing. A dead lock is removed only by who holds the lock above it: otherwise a
 * slow one could remove the lock of a quick one that had taken over in between.
 */
async function acquire(mine: string, path: string, height: number): Promise<void> {
  if (await tryToLink(mine, path)) return;
  const owner = await livingOwner(path);
  if (owner !== undefined || height === maxTakeovers) throw inUseError(path, owner);
  const above = `${path}.takeover`;
  await acquire(mine, above, height + 1);
  try {
    const quicker = await livingOwner(path);
    if (quicker !== undefined) throw inUseError(path, quicker);
    await removeIfThere(path);
    if (!(await tryToLink(mine, path))) throw inUseError(path, undefined);
  } finally {
    await removeIfThere(above);
  }
}

async function removeIfThere(path: string): Promise<void> {
  try {
    await files.unlink(path);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

async function tryToLink(from: string, path: string): Promise<boolean> {
  try {
    await files.link(from, path);
    return true;
  } catch (error) {
    if (isTaken(error)) return false;
    throw error;
  }
}

function inUseError(path: string, owner: LockInfo | undefined): Error {
  const who =
    owner === undefined ? 'another process that is starting' : `process ${owner.pid}, started ${owner.startedAt}`;
  return startError(
    `The data folder ${dirname(path)} is in use by ${who}. Stop that one first, or start with another folder (--data).`,
  );
}

/** Undefined when there is none, or one that was never wholly written. */
async function readInfo(path: string): Promise<LockInfo | undefined> {
  try {
    const text = await readRegularText(path);
    return LockInfo.safeParse(JSON.parse(text)).data;
  } catch (error) {
    if (isMissing(error) || error instanceof SyntaxError) return undefined;
    if (faultCode(error) === 'EFTYPE' || faultCode(error) === 'ENXIO') {
      throw startError(`${path} is not a regular file. Move it away; the next start makes it.`, error);
    }
    throw error;
  }
}

function encode(info: LockInfo): Buffer {
  return Buffer.from(`${JSON.stringify(info)}\n`);
}

async function ownInfo(http: string | null): Promise<LockInfo> {
  const startedAt = new Date(systemClock.now()).toISOString();
  return {
    pid: process.pid,
    startedAt,
    http,
    token: null,
    bootId: await bootId(),
    processStart: await processStart(process.pid),
  };
}

async function isAlive(info: LockInfo): Promise<boolean> {
  if (info.bootId !== (await bootId())) return false;
  const whose = ownerOfProcess(info.pid);
  if (whose === 'nobody') return false;
  return isSameStart(info.processStart, await processStart(info.pid), whose);
}

type ProcessOwner = 'me' | 'somebody' | 'nobody';

function ownerOfProcess(pid: number): ProcessOwner {
  try {
    process.kill(pid, 0);
    return 'me';
  } catch (error) {
    return error instanceof Error && (error as NodeJS.ErrnoException).code === 'EPERM' ? 'somebody' : 'nobody';
  }
}

/**
 * What cannot be seen does not make another process of it. Of a service with a right that this user lacks, the namespace is hidden
 * (ptrace(2)); with `hidepid` all of it is, but not that it is a process of this user.
 */
function isSameStart(noted: string | null, seen: string | null, whose: ProcessOwner): boolean {
  if (noted === null) return seen === null;
  if (seen === null) return whose === 'me';
  const [[namespace, ticks], [seenNamespace, seenTicks]] = [noted.split(' '), seen.split(' ')];
  return ticks === seenTicks && (seenNamespace === '' || namespace === seenNamespace);
}

/** Null where the system does not tell. */
async function bootId(): Promise<string | null> {
  return readFile('/proc/sys/kernel/random/boot_id', 'utf8').then(
    (text) => text.trim(),
    () => null,
  );
}

/** Pid namespace and clock ticks since boot (proc(5), `stat` field 22); null where the system does not tell. */
async function processStart(pid: number): Promise<string | null> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1');
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    return `${await readlink(`/proc/${pid}/ns/pid`).catch(() => '')} ${ticks ?? ''}`;
  } catch {
    return null;
  }
}
