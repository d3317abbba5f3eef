import { dirname } from 'node:path';
import { z } from 'zod';
import { writeDurable } from '../disk/atomic.js';
import { unlessMissing } from '../disk/fault.js';
import type { FileLayer } from '../disk/file-layer.js';
import type { FolderSync } from '../disk/folder.js';
import { type LinkTarget, targetPath } from './spool.js';

/**
 * Where a message with this content that was linked at the target is now, under any name; undefined when it is nowhere,
 * null when it is no longer needed.
 */
export type FindLinked = (target: LinkTarget, content: Buffer) => Promise<string | null | undefined>;

export interface RestoreContext {
  readonly files: FileLayer;
  readonly folders: FolderSync;
  readonly find: FindLinked;
  /** A new path on the same file system. */
  readonly newPath: () => string;
}

type Restored = 'there' | 'written' | 'gone';

/**
 * Restores a message at the targets of its record, durably. A message that is found unchanged anywhere stays as it is,
 * and none is written to a folder that is gone: the mailbox was removed with all its mail.
 */
export async function restore(record: MessageRecord, context: RestoreContext): Promise<readonly Restored[]> {
  const restored: Restored[] = [];
  for (const target of record.targets) restored.push(await restoreOne(target, record.content, context));
  return restored;
}

async function restoreOne(target: LinkTarget, content: Buffer, context: RestoreContext): Promise<Restored> {
  const found = await context.find(target, content);
  if (found === null) return 'gone';
  if (found !== undefined && (await hasContent(found, content, context.files))) return 'there';
  if (found === undefined && !(await isFolder(target.folder, context.files))) return 'gone';
  await rewrite(found ?? targetPath(target), content, context);
  return 'written';
}

/**
 * Writes a message again wherever it is now, after the disk failed to write it. False when it was not found for a
 * target; rejects with ENOENT when it was moved meanwhile.
 */
export function rewriteAll(record: MessageRecord, context: RestoreContext): Promise<boolean> {
  return forEachFound(record, context, (path) => rewrite(path, record.content, context, 'is there'));
}

async function forEachFound(
  { targets, content }: MessageRecord,
  { find }: RestoreContext,
  act: (path: string) => Promise<void>,
): Promise<boolean> {
  let isEverywhere = true;
  for (const target of targets) {
    const found = await find(target, content);
    if (typeof found === 'string') await act(found);
    else if (found === undefined) isEverywhere = false;
  }
  return isEverywhere;
}

/** Removes the files of an aborted delivery from their targets, if they hold the message. */
export async function removeLinked(record: MessageRecord, { files }: RestoreContext): Promise<void> {
  for (const target of record.targets) {
    const found = await findAtTarget(files)(target, record.content);
    if (typeof found === 'string' && (await hasContent(found, record.content, files))) await files.unlink(found);
  }
}

/**
 * A message file is never changed in place: a new file is renamed over it.
 *
 * @param state rejects with ENOENT when it is no longer there: it was moved, and would be in two places
 */
async function rewrite(
  path: string,
  content: Buffer,
  { files, folders, newPath }: RestoreContext,
  state?: 'is there',
): Promise<void> {
  const fresh = newPath();
  try {
    await writeDurable(files, fresh, [content]);
    if (state === 'is there') await files.lstat(path);
    await files.rename(fresh, path);
  } catch (error) {
    await files.unlink(fresh).catch(() => undefined);
    throw error;
  }
  await folders.sync(dirname(path));
}

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

/** Finds a message only at its target. */
export function findAtTarget(files: FileLayer): FindLinked {
  return async (target) => {
    const path = targetPath(target);
    const there = await unlessMissing(files.lstat(path));
    return there?.isFile() === true ? path : undefined;
  };
}

/**
 * Fsyncs a message wherever it is now, for systems that cannot flush a whole file system. False when it was not found
 * for a target; rejects with ENOENT when it was moved meanwhile.
 */
export function makeDurable(record: MessageRecord, context: RestoreContext): Promise<boolean> {
  const { files, folders } = context;
  return forEachFound(record, context, async (path) => {
    const fd = await files.open(path, 'r');
    try {
      await files.fsync(fd);
    } finally {
      await files.close(fd);
    }
    await folders.sync(dirname(path));
  });
}

/** Kinds of records: a message with its targets, and the number of a voided message. */
export const messageKind = 1;
export const voidKind = 2;
const numberBytes = 6;
const lengthBytes = 4;

const Places = z.array(z.strictObject({ folder: z.string(), name: z.string(), owner: z.string().optional() }));

export interface MessageRecord {
  readonly targets: readonly LinkTarget[];
  readonly content: Buffer;
}

/**
 * Length of the targets, the targets as JSON, the message. Folders below `root` are stored relative to it, so that the
 * data folder can be moved.
 */
export function encodeMessage(
  root: string,
  targets: readonly LinkTarget[],
  content: readonly Buffer[],
): readonly Buffer[] {
  const places = targets.map(({ folder, name, owner }) => ({
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

/** Undefined when it is invalid. */
export function decodeMessage(root: string, payload: Buffer): MessageRecord | undefined {
  if (payload.length < lengthBytes) return undefined;
  const end = lengthBytes + payload.readUInt32LE(0);
  if (end > payload.length) return undefined;
  try {
    const targets = Places.parse(JSON.parse(payload.toString('utf8', lengthBytes, end))).map((place): LinkTarget => ({
      folder: place.folder.startsWith('/') ? place.folder : `${root}/${place.folder}`,
      name: place.name,
      ...(place.owner !== undefined && { owner: place.owner }),
    }));
    return { targets, content: payload.subarray(end) };
  } catch {
    return undefined;
  }
}

export function encodeVoid(number: number): Buffer {
  const payload = Buffer.alloc(numberBytes);
  payload.writeUIntLE(number, 0, numberBytes);
  return payload;
}

/** The number of the voided message; 0 when it is invalid. */
export function decodeVoid(payload: Buffer): number {
  return payload.length === numberBytes ? payload.readUIntLE(0, numberBytes) : 0;
}
