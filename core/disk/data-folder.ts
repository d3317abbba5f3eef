import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { OwnerCall } from '../cli/command.js';
import { ownerOf } from '../cli/owner-call.js';
import { version } from '../host/installation.js';
import { isStartError, startError } from '../problem.js';
import { openDocument } from './document.js';
import { isUnwritable } from './fault.js';
import { makeFolder, requireFolder } from './folder.js';
import { type FolderLock, lockFolder, lockFolderSoon } from './lock.js';

/** Rights in a file mode that nobody but the owner should have. */
export const othersMay = 0o077;

/** Makes the data folder if need be and becomes its owner. */
export function takeDataFolder(data: string): Promise<FolderLock> {
  return inFolder(data, async () => {
    await checkFormat(data);
    for (const part of ['spool', 'uploads']) await requireFolder(join(data, part));
    const lock = await lockFolderSoon(data);
    try {
      // The next start notes it.
      await noteFormat(data).catch((error: unknown) => {
        if (!isUnwritable(error)) throw error;
      });
    } catch (error) {
      await lock.release();
      throw error;
    }
    return lock;
  });
}

/** The owner of the data folder if one runs; else the folder becomes ours. Only a start makes one. */
export async function shareDataFolder(
  data: string,
): Promise<{ readonly owner: OwnerCall | undefined; readonly lock: FolderLock | undefined }> {
  if (!existsSync(data)) {
    throw startError(
      `There is no data folder ${data}. Name it with --data, or the configuration with --config; "postern start" makes a new one.`,
    );
  }
  return inFolder(data, async () => {
    await checkFormat(data);
    const owner = await ownerOf(data);
    if (owner !== undefined) return { owner, lock: undefined };
    await refuseRoot(data);
    return { owner, lock: await lockFolder(data, { http: null }) };
  });
}

/** Root may write there, and then the server of that user could not read it. Throws a start error. */
async function refuseRoot(data: string): Promise<void> {
  const { uid } = await stat(data);
  if (process.getuid?.() !== 0 || uid === 0) return;
  throw startError(
    `The data folder ${data} belongs to user ${uid}, whose server could not read what root writes: run this as that user (sudo -u '#${uid}' postern …), or start the server first.`,
  );
}

/** What the operating system refuses becomes a sentence. */
async function inFolder<T>(data: string, open: () => Promise<T>): Promise<T> {
  try {
    await makeFolder(data);
    await requireFolder(data, 'Choose another with --data.');
    return await open();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (isStartError(cause) || code === undefined) throw cause;
    if (isUnwritable(cause)) {
      const why = code === 'EROFS' ? 'its file system is read-only' : 'its disk is full';
      throw startError(`The data folder ${data} cannot be written: ${why} (${code}).`, cause);
    }
    throw startError(`The data folder ${data} cannot be made or written (${code}): choose another with --data.`, cause);
  }
}

/** Raised when what is on the disk changes so that an older version could not go on with it; see docs/upgrading.md. */
export const dataFormat = 1;

/** `format.json`: what the folder is like, and which version was there last. */
const Format = z.object({ format: z.int().min(1), version: z.string().min(1) });

/** Opens what a folder says of itself; one that says nothing is new, or older than the file. */
async function openFormat(data: string) {
  const file = join(data, 'format.json');
  const written = await openDocument({ file, schema: Format, initial: { format: dataFormat, version: '' } });
  const found = written.data;
  if (found.format <= dataFormat) return written;
  throw startError(
    `The data folder ${data} was last used by Postern ${found.version}, in format ${found.format}; this is ${version}, which knows formats up to ${dataFormat}. Start that version or a newer one, or restore the copy from before the upgrade.`,
  );
}

/** Throws a start error when a newer version has written what this one does not know. */
export async function checkFormat(data: string): Promise<void> {
  await openFormat(data);
}

/** For the owner of the folder: notes that this version was here. */
async function noteFormat(data: string): Promise<void> {
  const written = await openFormat(data);
  if (written.data.format === dataFormat && written.data.version === version) return;
  await written.update(() => ({ format: dataFormat, version }));
}
