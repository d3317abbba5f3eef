import { crc32 } from 'node:zlib';
import { z } from 'zod';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { type FileLayer, openRegularFile } from '../../../core/disk/file-layer.js';
import { StoredEnvelope } from './stored-envelope.js';
import { readAt } from './whole-file.js';

/**
 * The envelope stands with the message, so that an entry can be made again when the journal is lost: in the first line of the file, or in
 * a file beside it where the file of the message is shared with mailboxes.
 */
const field = 'Postern-Envelope: ';
export const envelopeSuffix = '.envelope';
const sumBytes = 8;
const pieceBytes = 64 * 1024;
const maxLineBytes = 8 * 1024 * 1024;

const Body = z.object({
  envelope: StoredEnvelope,
  /** Where what is sent begins, from behind this line. */
  traceOffset: z.int().min(0),
  checksum: z.exactOptional(z.number()),
});
export type BodyEnvelope = z.output<typeof Body>;

/** One line with its line end. */
export function encodeBodyEnvelope(envelope: NewEntry, traceOffset: number, checksum: number | undefined): Buffer {
  const json = JSON.stringify({ envelope, traceOffset, ...(checksum !== undefined && { checksum }) });
  return Buffer.from(`${field}${sumOf(json)} ${json}\r\n`);
}

/** Undefined when it is damaged, or of a message from before there were envelopes. */
export function decodeBodyEnvelope(line: Buffer): BodyEnvelope | undefined {
  const text = line.toString('utf8').trimEnd();
  const json = text.slice(field.length + sumBytes + 1);
  if (!text.startsWith(field) || text.slice(field.length, field.length + sumBytes) !== sumOf(json)) return undefined;
  try {
    return Body.parse(JSON.parse(json));
  } catch {
    return undefined;
  }
}

/** The line of the envelope that a file begins with; empty when it begins otherwise. */
export async function envelopeLineOf(files: FileLayer, path: string): Promise<Buffer> {
  const fd = await openRegularFile(path, files);
  try {
    let line = Buffer.alloc(0);
    while (line.length < maxLineBytes) {
      const piece = await readAt(files, fd, line.length, pieceBytes);
      line = Buffer.concat([line, piece]);
      if (!line.subarray(0, field.length).equals(Buffer.from(field))) break;
      const end = line.indexOf(10);
      if (end >= 0) return line.subarray(0, end + 1);
      if (piece.length < pieceBytes) break;
    }
    return Buffer.alloc(0);
  } finally {
    await files.close(fd);
  }
}

function sumOf(json: string): string {
  return crc32(json).toString(16).padStart(sumBytes, '0');
}
