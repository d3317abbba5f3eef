import type { Readable } from 'node:stream';
import { parseAddressList } from '../../../core/mime/address-list.js';
import { scanHeader } from '../../../core/mime/header.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';

/** What a message that was set aside says of itself; its envelope is lost. */
export interface QuarantinedMessage {
  /** Of its Return-Path field; empty for the null reverse-path. */
  readonly sender: string;
  /** Who may have been meant, best first: for whom it was received, or those in its header. */
  readonly recipients: readonly string[];
  readonly subject: string;
}

const headBytes = 64 * 1024;
const mostRecipients = 100;
const longestSubject = 200;
const returnPath = /^Return-Path: <([^<>\r\n]*)>\r\n/;

/** Undefined for what does not begin as messages of the queue do. */
export async function readQuarantined(source: Readable): Promise<QuarantinedMessage | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of source as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= headBytes) break;
  }
  const head = Buffer.concat(chunks).subarray(0, headBytes);
  const [, sender] = returnPath.exec(head.toString('latin1', 0, 1100)) ?? [];
  return sender === undefined ? undefined : { sender, ...described(head) };
}

function described(head: Buffer): Pick<QuarantinedMessage, 'recipients' | 'subject'> {
  const header = scanHeader(head);
  const [, receivedFor] = /\bfor\s+<([^<>\s]+)>/.exec(header.first('received') ?? '') ?? [];
  const named = ['to', 'cc'].flatMap((name) => header.all(name)).flatMap((field) => parseAddressList(field));
  const addresses = receivedFor === undefined ? named.map(({ address }) => address) : [receivedFor];
  return {
    recipients: [...new Set(addresses)].filter((address) => address.includes('@')).slice(0, mostRecipients),
    subject: decodeWords(header.first('subject') ?? '').slice(0, longestSubject),
  };
}

/** The message as it is sent: without the Return-Path field, if it begins with one. */
export async function* withoutReturnPath(source: Readable): AsyncGenerator<Buffer> {
  let start = Buffer.alloc(0);
  let isBehind = false;
  for await (const chunk of source as AsyncIterable<Buffer>) {
    if (isBehind) {
      yield chunk;
      continue;
    }
    start = Buffer.concat([start, chunk]);
    const end = start.indexOf('\r\n');
    if (end < 0 && start.length < headBytes) continue;
    isBehind = true;
    const [field] = returnPath.exec(start.toString('latin1', 0, end + 2)) ?? [];
    yield field === undefined ? start : start.subarray(field.length);
  }
  if (!isBehind && start.length > 0) yield start;
}
