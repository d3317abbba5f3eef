import { dirname } from 'node:path';
import { z } from 'zod';
import { writeDurable } from '../disk/atomic.js';
import { unlessMissing } from '../disk/fault.js';
import type { FileLayer } from '../disk/file-layer.js';
import type { FolderSync } from '../disk/folder.js';
import { type LinkTarget, targetPath } from './spool.js';

/** Where a message of those bytes that was placed there is now, under whatever name; undefined when nowhere, null when nobody wants it any more. */
export type FindLinked = (placement: LinkTarget, content: Buffer) => Promise<string | null | undefined>;

export interface RestorationContext {
  readonly files: FileLayer;
  readonly folders: FolderSync;
  readonly find: FindLinked;
  /** A fresh path on the same file system, that nobody looks at. */
  readonly freshPath: () => string;
}

type Restored = 'there' | 'written' | 'gone';

/**
 * Sees to it that a message is where its record says, byte for byte, and durable when it had to be written. It is left
 * alone when it is found, wherever that is; and when its folder is gone, somebody has removed a mailbox with all its mail.
 */
export async function restore(record: MessageRecord, ground: RestorationContext): Promise<readonly Restored[]> {
  const restored: Restored[] = [];
  for (const placement of record.placements) restored.push(await restoreOne(placement, record.content, ground));
  return restored;
}

async function restoreOne(placement: LinkTarget, content: Buffer, ground: RestorationContext): Promise<Restored> {
  const found = await ground.find(placement, content);
  if (found === null) return 'gone';
  if (found !== undefined && (await hasContent(found, content, ground.files))) return 'there';
  if (found === undefined && !(await isFolder(placement.folder, ground.files))) return 'gone';
  await rewrite(found ?? targetPath(placement), content, ground);
  return 'written';
}

/** Brings messages whose writing the disk has failed to report to the disk anew, where they are now. */
export async function rewriteAll(record: MessageRecord, ground: RestorationContext): Promise<void> {
  for (const placement of record.placements) {
    const found = await ground.find(placement, record.content);
    if (typeof found === 'string') await rewrite(found, record.content, ground);
  }
}

/** Removes what an aborted delivery has left where it was placed, if it is the message and not somebody else's. */
export async function removeLinked(record: MessageRecord, { files }: RestorationContext): Promise<void> {
  for (const placement of record.placements) {
    const found = await findAtTarget(files)(placement, record.content);
    if (typeof found === 'string' && (await hasContent(found, record.content, files))) await files.unlink(found);
  }
}

/** A message file is never changed in place: a whole one takes its name. */
async function rewrite(
  path: string,
  content: Buffer,
  { files, folders, freshPath }: RestorationContext,
): Promise<void> {
  const fresh = freshPath();
  try {
    await writeDurable(files, fresh, [content]);
    await files.rename(fresh, path);
  } catch (error) {
    await files.unlink(fresh).catch(() => undefined);
    throw error;
  }
  await folders.sync(dirname(path));
}

/** Whether the file has these bytes. */
export async function hasContent(path: string, content: Buffer, files: FileLayer): Promise<boolean> {
  const { size } = await files.lstat(path);
  if (size !== content.length) return false;
  const fd = await files.open(path, 'r');
  try {
    const bytes = Buffer.allocUnsafe(size);
    for (let at = 0; at < size;) {
      const count = await files.read(fd, bytes.subarray(at), at);
      if (count === 0) return false;
      at += count;
    }
    return bytes.equals(content);
  } finally {
    await files.close(fd);
  }
}

async function isFolder(path: string, files: FileLayer): Promise<boolean> {
  const there = await unlessMissing(files.lstat(path));
  return there?.isDirectory() === true;
}

/** Finds a message only under the name and in the folder that it was given. */
export function findAtTarget(files: FileLayer): FindLinked {
  return async (placement) => {
    const path = targetPath(placement);
    const there = await unlessMissing(files.lstat(path));
    return there?.isFile() === true ? path : undefined;
  };
}

/** Fsyncs a message where it is now: for machines that cannot flush a file system. */
export async function makeDurable(record: MessageRecord, { files, folders, find }: RestorationContext): Promise<void> {
  for (const placement of record.placements) {
    const found = await find(placement, record.content);
    if (typeof found !== 'string') continue;
    const fd = await files.open(found, 'r');
    try {
      await files.fsync(fd);
    } finally {
      await files.close(fd);
    }
    await folders.sync(dirname(found));
  }
}

/** Kinds of the records of the spool: a message with its places, and the number of a message that was taken back. */
export const messageKind = 1;
export const voidKind = 2;
const numberBytes = 6;
const lengthBytes = 4;

const Places = z.array(z.strictObject({ folder: z.string(), name: z.string(), owner: z.string().optional() }));

/** A message and where it belongs. */
export interface MessageRecord {
  readonly placements: readonly LinkTarget[];
  readonly content: Buffer;
}

/**
 * The length of the places, the places as JSON, the message. Folders below `root` are kept relative to it, so that the
 * data folder may be moved.
 */
export function encodeMessage(
  root: string,
  placements: readonly LinkTarget[],
  content: readonly Buffer[],
): readonly Buffer[] {
  const places = placements.map(({ folder, name, owner }) => ({
    folder: folder.startsWith(`${root}/`) ? folder.slice(root.length + 1) : folder,
    name,
    ...(owner !== undefined && { owner }),
  }));
  const json = JSON.stringify(places);
  const head = Buffer.allocUnsafe(lengthBytes + Buffer.byteLength(json));
  head.writeUInt32LE(head.length - lengthBytes);
  head.write(json, lengthBytes);
  return [head, ...content];
}

/** Undefined when it cannot be understood. */
export function decodeMessage(root: string, payload: Buffer): MessageRecord | undefined {
  if (payload.length < lengthBytes) return undefined;
  const end = lengthBytes + payload.readUInt32LE(0);
  if (end > payload.length) return undefined;
  try {
    const placements = Places.parse(JSON.parse(payload.toString('utf8', lengthBytes, end))).map(
      (place): LinkTarget => ({
        folder: place.folder.startsWith('/') ? place.folder : `${root}/${place.folder}`,
        name: place.name,
        ...(place.owner !== undefined && { owner: place.owner }),
      }),
    );
    return { placements, content: payload.subarray(end) };
  } catch {
    return undefined;
  }
}

export function encodeVoid(number: number): Buffer {
  const payload = Buffer.alloc(numberBytes);
  payload.writeUIntLE(number, 0, numberBytes);
  return payload;
}

/** The number of the message that is void; 0 when it cannot be understood. */
export function decodeVoid(payload: Buffer): number {
  return payload.length === numberBytes ? payload.readUIntLE(0, numberBytes) : 0;
}
