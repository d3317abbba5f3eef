import { z } from 'zod';
import type { Placement } from './spool.js';

/** Kinds of the records of the spool: a message with its places, and the number of a message that was taken back. */
export const messageKind = 1;
export const voidKind = 2;
const numberBytes = 6;
const lengthBytes = 4;

const Places = z.array(z.strictObject({ folder: z.string(), name: z.string(), owner: z.string().optional() }));

/** A message and where it belongs. */
export interface MessageRecord {
  readonly placements: readonly Placement[];
  readonly content: Buffer;
}

/**
 * The length of the places, the places as JSON, the message. Folders below `root` are kept relative to it, so that the
 * data folder may be moved.
 */
export function encodeMessage(
  root: string,
  placements: readonly Placement[],
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
    const placements = Places.parse(JSON.parse(payload.toString('utf8', lengthBytes, end))).map((place): Placement => ({
      folder: place.folder.startsWith('/') ? place.folder : `${root}/${place.folder}`,
      name: place.name,
      ...(place.owner !== undefined && { owner: place.owner }),
    }));
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
