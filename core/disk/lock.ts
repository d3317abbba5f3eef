import { readFile, readlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { systemClock } from '../clock.js';
import { startError } from '../problem.js';
import { writeDurable, writeFileAtomic } from './atomic.js';
import { faultCode, isMissing, isNameTaken, isUnwritable } from './fault.js';
import { nodeFiles as files, readRegularText } from './file-layer.js';
import { syncFolder } from './folder.js';
import { uniqueId } from './id.js';

export const lockFile = 'postern.lock';

/** Nested takeovers that crashed and can be repaired; with more an operator has to look. */
const maxTakeovers = 3;

const LockInfo = z.object({
  pid: z.int().positive(),
  /** ISO 8601. */
  startedAt: z.string(),
  /** `http://127.0.0.1:8080` once it listens. */
  http: z.string().nullable(),
  /** Authenticates commands of this user to the owner over HTTP; new at each start. */
  token: z.string().nullable().default(null),
  /** Boot of the machine, and start of the process in it: after a restart a pid alone may be another process. */
  bootId: z.string().nullable(),
  processStart: z.string().nullable(),
});

/** The process that owns a data folder. */
export type LockInfo = Readonly<z.output<typeof LockInfo>>;

export interface FolderLock {
  /** Publishes the address of the owner and the token. */
  update(change: { readonly http: string | null; readonly token?: string }): Promise<void>;
  /** Removes the lock unless another process owns it. */
  release(): Promise<void>;
}

/** The running owner of the folder. */
export async function readLock(folder: string): Promise<LockInfo | undefined> {
  return livingOwner(join(folder, lockFile));
}

async function livingOwner(path: string): Promise<LockInfo | undefined> {
  const found = await readInfo(path);
  return found !== undefined && (await isAlive(found)) ? found : undefined;
}

const retryMs = 1000;

/**
 * Like `lockFolder` on a disk that may be full or read-only, so that an operator can make room with a running server.
 * The lock is written once that is possible; when another process has it by then, this one ends.
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
 * Makes this process the owner of the existing folder. Takes over the lock of a dead process; a living owner is a start
 * error.
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
 * Links `mine` to `path`, which replaces nothing. A dead lock is removed only by the holder of the lock one level
 * above: otherwise a slow process could remove the new lock of a faster one.
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
    if (isNameTaken(error)) return false;
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

/** Undefined when it is missing or was never completely written. */
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
  if (whose === 'none') return false;
  return isSameStart(info.processStart, await processStart(info.pid), whose);
}

type ProcessOwner = 'this user' | 'other user' | 'none';

function ownerOfProcess(pid: number): ProcessOwner {
  try {
    process.kill(pid, 0);
    return 'this user';
  } catch (error) {
    return error instanceof Error && (error as NodeJS.ErrnoException).code === 'EPERM' ? 'other user' : 'none';
  }
}

/**
 * An unknown value does not show that the process is another one. For a service with a capability that this user lacks,
 * the namespace is hidden (ptrace(2)); with `hidepid` everything is, but not for a process of this user.
 */
function isSameStart(noted: string | null, seen: string | null, whose: ProcessOwner): boolean {
  if (noted === null) return seen === null;
  if (seen === null) return whose === 'this user';
  const [[namespace, ticks], [seenNamespace, seenTicks]] = [noted.split(' '), seen.split(' ')];
  return ticks === seenTicks && (seenNamespace === '' || namespace === seenNamespace);
}

/** Null when unknown. */
async function bootId(): Promise<string | null> {
  return readFile('/proc/sys/kernel/random/boot_id', 'utf8').then(
    (text) => text.trim(),
    () => null,
  );
}

/** Pid namespace and clock ticks since boot (proc(5), `stat` field 22); null when unknown, `ended` of a zombie. */
async function processStart(pid: number): Promise<string | null> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1');
    const values = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [state, threads, ticks] = [values[0], values[17], values[19]];
    // Other threads may still write while the first one has ended.
    if (state === 'Z' && threads === '1') return 'ended';
    return `${await readlink(`/proc/${pid}/ns/pid`).catch(() => '')} ${ticks ?? ''}`;
  } catch {
    return null;
  }
}
