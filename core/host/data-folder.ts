import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { OwnerCall } from '../contracts/server.js';
import { lockOwner } from './owner-call.js';
import type { Clock } from '../clock.js';
import { isOwnLayerEntry, layerFolderName } from '../config/layer-folder.js';
import { openDocument } from '../disk/document.js';
import { isUnwritable } from '../disk/fault.js';
import { makeFolder, requireFolder } from '../disk/folder.js';
import { uniqueId, uniqueIdPattern } from '../disk/id.js';
import { type FolderLock, lockFolder, lockFolderSoon } from '../disk/lock.js';
import { filesNamed, type OwnFolders, UnknownEntries, unknownEntriesOf, unknownInFolders } from './unknown-entries.js';
import { keptAnswerNames } from '../http/shell/idempotency.js';
import { auditName, logFileName } from '../log/file.js';
import type { Log } from '../log/log.js';
import { isStartError, startError } from '../problem.js';
import type { HealthRegistry } from './health.js';
import { version } from './installation.js';

/** Permission bits that only the owner should have. */
export const othersMay = 0o077;

/** Creates the data folder when it is missing, and locks it. */
export function takeDataFolder(data: string): Promise<FolderLock> {
  return inFolder(data, async () => {
    await checkFormat(data);
    for (const part of ['spool', 'uploads']) await requireFolder(join(data, part));
    const lock = await lockFolderSoon(data);
    try {
      // The next start writes it.
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

/** The running owner of the data folder; without one, locks it. Never creates the folder. */
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
    const owner = await lockOwner(data);
    if (owner !== undefined) return { owner, lock: undefined };
    await refuseRoot(data);
    return { owner, lock: await lockFolder(data, { http: null }) };
  });
}

/** Files written by root could not be read by a server of another user. Throws a start error. */
async function refuseRoot(data: string): Promise<void> {
  const { uid } = await stat(data);
  if (process.getuid?.() !== 0 || uid === 0) return;
  throw startError(
    `The data folder ${data} belongs to user ${uid}, whose server could not read what root writes: run this as that user (sudo -u '#${uid}' postern …), or start the server first.`,
  );
}

/** Turns system errors into start errors. */
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
    throw startError(
      `The data folder ${data} cannot be created or written (${code}): choose another with --data.`,
      cause,
    );
  }
}

/** Raised when an older version can no longer read the data; see docs/upgrading.md. */
export const dataFormat = 1;

/** `format.json`: the format of the folder, and the version that wrote it last. */
const Format = z.object({ format: z.int().min(1), version: z.string().min(1) });

/** A folder without the file is new, or older than the file. */
async function openFormat(data: string) {
  const file = join(data, 'format.json');
  const written = await openDocument({ file, schema: Format, initial: { format: dataFormat, version: '' } });
  const found = written.data;
  if (found.format <= dataFormat) return written;
  throw startError(
    `The data folder ${data} was last used by Postern ${found.version}, in format ${found.format}; this is ${version}, which knows formats up to ${dataFormat}. Start that version or a newer one, or restore the copy from before the upgrade.`,
  );
}

/** Throws a start error when the folder has a newer format. */
export async function checkFormat(data: string): Promise<void> {
  await openFormat(data);
}

/** Writes the format and this version. */
async function noteFormat(data: string): Promise<void> {
  const written = await openFormat(data);
  if (written.data.format === dataFormat && written.data.version === version) return;
  await written.update(() => ({ format: dataFormat, version }));
}

/** `node.json`. */
const Node = z.object({ id: z.string().regex(uniqueIdPattern) });

/** Tells this data folder from those of other servers that share something with it. Drawn once. */
export async function nodeIdOf(data: string): Promise<string> {
  const drawn = { id: uniqueId() };
  const node = await openDocument({ file: join(data, 'node.json'), schema: Node, initial: drawn });
  // Writes it the first time.
  if (node.data === drawn) {
    await node
      .update(() => drawn)
      .catch((error: unknown) => {
        if (!isUnwritable(error)) throw error;
      });
  }
  return node.data.id;
}

/** Entries of the data folder itself: documents, the lock, hidden entries, folders of plugins. */
const ownEntry = /^(?:\..*|.*\.json|certificate\.pem|postern\.lock.*)$/;
/** Left by a disk test that was killed. */
const probeName = /^\.probe-/;

/** The folders of core; plugins watch their own. */
const folders: OwnFolders = {
  '': (entry) => entry.isDirectory() || ownEntry.test(entry.name),
  [layerFolderName]: isOwnLayerEntry,
  idempotency: filesNamed(...keptAnswerNames),
  logs: filesNamed(logFileName, auditName),
  spool: filesNamed(uniqueIdPattern, probeName),
  uploads: filesNamed(uniqueIdPattern, probeName),
};

/**
 * Reports unknown entries of the data folder to health. The first `look` comes after the leftovers of a dead process
 * are removed.
 */
export function watchDataFolder(
  data: string,
  { health, clock, log }: { readonly health: HealthRegistry; readonly clock: Clock; readonly log: Log },
): UnknownEntries {
  const find = () => unknownInFolders(data, folders);
  const unknown = new UnknownEntries({ what: unknownEntriesOf('data'), find, clock, log });
  health.check('core', 'data folder', () => unknown.report());
  return unknown;
}
