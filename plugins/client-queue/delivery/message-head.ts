import type { RelayQueue } from '../../../core/contracts/relay-queue.js';

const longestHead = 256 * 1024;

/** So many bytes from the beginning of a queued message; the whole of it where it is shorter. */
export async function messageStart(queue: Pick<RelayQueue, 'open'>, uid: string, bytes: number): Promise<Buffer> {
  const stream = await queue.open(uid);
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= bytes) break;
  }
  return Buffer.concat(chunks).subarray(0, bytes);
}

/** The header block with its empty line, bounded. */
export async function messageHead(queue: Pick<RelayQueue, 'open'>, uid: string): Promise<Buffer> {
  const start = await messageStart(queue, uid, longestHead);
  const end = start.indexOf('\r\n\r\n');
  return end < 0 ? start : start.subarray(0, end + 4);
}
