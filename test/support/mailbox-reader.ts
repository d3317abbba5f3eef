import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { HttpClient } from './http-client.js';

export interface ListedMessage {
  readonly id: string;
  readonly subject: string;
  readonly internetMessageId: string | null;
  readonly size: number;
  readonly unread: boolean;
  readonly flagged: boolean;
  readonly answered: boolean;
}

interface MessagePage {
  readonly items: readonly ListedMessage[];
  readonly total: number;
  readonly nextCursor: string | null;
}

/** All messages of a folder as the JSON pages list them. */
export async function listMessages(
  client: HttpClient,
  mailbox = 'localhost/postmaster',
  folder = 'INBOX',
): Promise<readonly ListedMessage[]> {
  const items: ListedMessage[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page = (await client.json(`/store/${mailbox}/folders/${folder}?limit=1000${query}`)) as MessagePage;
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor !== null);
  return items;
}

/** The message file as the server hands it out. */
export async function rawMessage(
  client: HttpClient,
  id: string,
  mailbox = 'localhost/postmaster',
  folder = 'INBOX',
): Promise<Buffer> {
  const path = `/store/${mailbox}/folders/${folder}/messages/${encodeURIComponent(id)}`;
  const answer = await client.request(path, { accept: 'message/rfc822' });
  if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${answer.text}`);
  return answer.bytes;
}

/** The message files of a Maildir that another program would see. */
export async function maildirMessages(maildir: string): Promise<readonly Buffer[]> {
  const folders = [join(maildir, 'new'), join(maildir, 'cur')];
  const files = await Promise.all(
    folders.map(async (folder) => (await readdir(folder)).map((name) => join(folder, name))),
  );
  return Promise.all(files.flat().map((file) => readFile(file)));
}

/**
 * The message as it was sent: what stands behind the trace header fields that a final delivery puts in front
 * (RFC 5321 §4.4), one `Return-Path:` and one `Received:`.
 */
export function behindTrace(raw: Buffer): Buffer {
  const trace = /^Return-Path: <[^\r\n]*>\r\nReceived: [^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*/.exec(raw.toString('latin1'));
  if (trace === null) throw new Error(`no trace header fields: ${raw.subarray(0, 300).toString('latin1')}`);
  return raw.subarray(trace[0].length);
}
