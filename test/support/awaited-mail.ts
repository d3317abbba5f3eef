import { setTimeout as pause } from 'node:timers/promises';
import type { HttpClient } from './http-client.js';
import { listMessages, type ListedMessage } from './mailbox-reader.js';

const timeoutMs = 30_000;

/** Resolves with the inbox when it lists so many messages: for mail that somebody else sends when he likes. */
export async function untilListed(
  client: HttpClient,
  count: number,
  mailbox = 'localhost/postmaster',
): Promise<readonly ListedMessage[]> {
  const until = performance.now() + timeoutMs;
  for (;;) {
    const listed = await listMessages(client, mailbox);
    if (listed.length >= count) return listed;
    if (performance.now() > until) throw new Error(`${listed.length} of ${count} messages have come`);
    await pause(50);
  }
}
