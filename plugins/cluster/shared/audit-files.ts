import { createHash } from 'node:crypto';
import { type FileHandle, stat } from 'node:fs/promises';
import { z } from 'zod';
import { unlessMissing } from '../../../core/disk/fault.js';
import { auditPath, openAuditFile } from '../../../core/log/file.js';

/** A batch of lines. */
const batchBytes = 256 * 1024;
/** A file is known by the beginning of its first line, which names a time and a request. */
const headBytes = 4096;
const maxFiles = 1000;
const lineEnd = 0x0a;

/** Up to where the files were copied. */
const AuditPlace = z.object({
  /** Its beginning, hashed. */
  file: z.string(),
  offset: z.int(),
  /** The line that ends there: a folder from a backup may have another one. */
  last: z.object({ bytes: z.int(), hash: z.string() }),
});
export type AuditPlace = z.output<typeof AuditPlace>;

export const parsePlace = (text: string): AuditPlace => AuditPlace.parse(JSON.parse(text));

/** Lines after a place, without line ends. */
interface NextLines {
  readonly lines: readonly string[];
  /** After them. */
  readonly place: AuditPlace;
}

interface AuditFile {
  readonly handle: FileHandle;
  readonly id: string;
  readonly size: number;
}

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('base64url');

/** Differs whenever a line was written to the audit log. */
export async function auditStamp(folder: string): Promise<string> {
  const found = await unlessMissing(stat(auditPath(folder, 0)));
  return found === undefined ? '' : `${found.ino} ${found.size} ${found.mtimeMs}`;
}

/**
 * The next complete lines of the audit log in a folder; undefined when there are none. Begins with the oldest file when
 * the place is in none of them.
 */
export async function linesAfter(folder: string, place: AuditPlace | undefined): Promise<NextLines | undefined> {
  const files = await openAll(folder);
  try {
    let index = files.findIndex(({ id }) => id === place?.file);
    const file = files[index];
    const isKnown = place !== undefined && file !== undefined && (await endsAt(file, place));
    index = Math.max(0, index);
    for (let offset = isKnown ? place.offset : 0; index < files.length; index += 1, offset = 0) {
      const found = files[index];
      const batch = found && (await readLines(found, offset));
      if (found !== undefined && batch !== undefined) return linesOf(batch, found.id, offset);
    }
    return undefined;
  } finally {
    for (const { handle } of files) await handle.close();
  }
}

/** The files that have a line, the oldest first. */
async function openAll(folder: string): Promise<readonly AuditFile[]> {
  const files: AuditFile[] = [];
  const inodes = new Set<number>();
  // From the newest: one that is set aside meanwhile is met twice, never missed.
  for (let number = 0; number < maxFiles; number += 1) {
    const handle = await openAuditFile(folder, number);
    if (handle === undefined && number > 0) break;
    if (handle === undefined) continue;
    const { ino, size } = await handle.stat();
    const id = inodes.has(ino) ? undefined : await idOf(handle);
    inodes.add(ino);
    if (id === undefined) await handle.close();
    else files.unshift({ handle, id, size });
  }
  return files;
}

async function idOf(handle: FileHandle): Promise<string | undefined> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(headBytes), 0, headBytes, 0);
  const end = buffer.subarray(0, bytesRead).indexOf(lineEnd);
  if (end === -1 && bytesRead < headBytes) return undefined;
  return hashOf(buffer.subarray(0, end === -1 ? headBytes : end));
}

/** Whether the file has the line that was copied last, where it was. */
async function endsAt({ handle, size }: AuditFile, { offset, last }: AuditPlace): Promise<boolean> {
  if (offset > size) return false;
  const { buffer } = await handle.read(Buffer.alloc(last.bytes), 0, last.bytes, offset - last.bytes);
  return hashOf(buffer) === last.hash;
}

/** Complete lines from the offset on; undefined when there are none. */
async function readLines({ handle, size }: AuditFile, offset: number): Promise<Buffer | undefined> {
  for (let length = batchBytes; ; length *= 2) {
    const wanted = Math.min(length, size - offset);
    if (wanted <= 0) return undefined;
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(wanted), 0, wanted, offset);
    const end = buffer.subarray(0, bytesRead).lastIndexOf(lineEnd);
    if (end !== -1) return buffer.subarray(0, end + 1);
    if (wanted < length) return undefined;
  }
}

function linesOf(batch: Buffer, file: string, offset: number): NextLines {
  const last = batch.subarray(batch.lastIndexOf(lineEnd, -2) + 1);
  return {
    lines: batch.toString('utf8').slice(0, -1).split('\n'),
    place: { file, offset: offset + batch.length, last: { bytes: last.length, hash: hashOf(last) } },
  };
}
