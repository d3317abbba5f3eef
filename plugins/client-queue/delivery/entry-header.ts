import type { Readable } from 'node:stream';
import { scanHeader } from '../../../core/mime/header.js';

const mostBytes = 64 * 1024;
const mostFields = 200;

/** The header fields of a message, unfolded, for people; the rest of it is not read. */
export async function headerOf(message: Readable): Promise<readonly (readonly [name: string, value: string])[]> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= mostBytes) break;
  }
  const block = scanHeader(Buffer.concat(chunks).subarray(0, mostBytes));
  return block.fields.slice(0, mostFields).map((field) => [field.name, block.value(field)] as const);
}
