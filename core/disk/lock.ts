import { readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { systemClock } from '../clock.js';
import { startError } from '../start-error.js';
import { writeDurable, writeFileAtomic } from './atomic.js';
import { isMissing, isTaken } from './fault.js';
import { nodeFiles as files } from './file-layer.js';
import { syncFolder } from './folder.js';
import { uniqueId } from './id.js';

export const lockFile = 'postern.lock';

const LockInfo = z.object({
  pid: z.int().positive(),
  /** ISO 8601. */
  startedAt: z.string(),
  /** `http://127.0.0.1:8080` once it listens. */
  http: z.string().nullable(),
  /** Which boot of the machine, and when in it the process began: a pid alone comes back after a restart. */
  bootId: z.string().nullable(),
  processStart: z.string().nullable(),
});

/** Who owns a data folder. */
export type LockInfo = Readonly<z.output<typeof LockInfo>>;

export interface FolderLock {
  /** Tells others where the owner answers. */
  update(change: { readonly http: string | null }): Promise<void>;
  /** Removes the lock, unless it is not ours any more. */
  release(): Promise<void>;
}

/** The living owner of the folder, if it has one. */
export async function readLock(folder: string): Promise<LockInfo | undefined> {
  const found = await readInfo(join(folder, lockFile));
  return found !== undefined && (await isAlive(found)) ? found : undefined;
}

/**
 * Makes this process the owner of the folder, which exists. The lock of a dead process is taken over; that of a living one is
 * a start error. Two processes that take over at the same time: one wins, for a link never replaces anything.
 */
export async function lockFolder(folder: string, { http }: { readonly http: string | null }): Promise<FolderLock> {
  const path = join(folder, lockFile);
  let info = await ownInfo(http);
  const mine = join(folder, `.${lockFile}.${uniqueId()}`);
  try {
    await writeDurable(files, mine, [encode(info)]);
    for (let attempt = 0; !(await tryToLink(mine, path)); attempt++) {
      const owner = await readLock(folder);
      if (owner !== undefined || attempt === 3) throw owned(folder, owner);
      await setAside(folder, path);
    }
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

async function tryToLink(from: string, path: string): Promise<boolean> {
  try {
    await files.link(from, path);
    return true;
  } catch (error) {
    if (isTaken(error)) return false;
    throw error;
  }
}

/** Takes a dead lock away under another name first: should it be alive after all, it is put back. */
async function setAside(folder: string, path: string): Promise<void> {
  const aside = join(folder, `.${lockFile}.${uniqueId()}`);
  try {
    await files.rename(path, aside);
  } catch (error) {
    if (isMissing(error)) return;
    throw error;
  }
  const taken = await readInfo(aside);
  if (taken !== undefined && (await isAlive(taken))) await tryToLink(aside, path);
  await files.unlink(aside);
}

function owned(folder: string, owner: LockInfo | undefined): Error {
  const who = owner === undefined ? 'another process' : `process ${owner.pid}, started ${owner.startedAt}`;
  return startError(
    `The data folder ${folder} is in use by ${who}. Stop that one first, or start with another folder (--data).`,
  );
}

/** Undefined when there is none, or one that was never wholly written. */
async function readInfo(path: string): Promise<LockInfo | undefined> {
  try {
    const text = await readFile(path, 'utf8');
    return LockInfo.safeParse(JSON.parse(text)).data;
  } catch (error) {
    if (isMissing(error) || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function encode(info: LockInfo): Buffer {
  return Buffer.from(`${JSON.stringify(info)}\n`);
}

async function ownInfo(http: string | null): Promise<LockInfo> {
  const startedAt = new Date(systemClock.now()).toISOString();
  return { pid: process.pid, startedAt, http, bootId: await bootId(), processStart: await processStart(process.pid) };
}

async function isAlive(info: LockInfo): Promise<boolean> {
  if (info.bootId !== (await bootId())) return false;
  if (!exists(info.pid)) return false;
  return info.processStart === (await processStart(info.pid));
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && (error as NodeJS.ErrnoException).code === 'EPERM';
  }
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
