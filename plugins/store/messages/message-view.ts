import type { MessagePart, ViewedMessage } from '../../../core/contracts/message-viewer.js';
import { TimeSlice } from '../../../core/concurrency.js';
import { addressesIn, type DisplayAddress } from '../../../core/mime/address-list.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';
import { type HeaderBlock, scanHeader } from '../../../core/mime/header.js';
import type { MessageSummary } from '../folders/message-summary.js';
import { isUnparsed, type Parse, type ParseSource } from '../mime/message-parser.js';
import type { Summary } from '../mime/summary.js';

/** A message of a mailbox on pages and in JSON. */
export type MessageView = MessageSummary & ViewedMessage;

/** A message wherever it lies. */
export interface ReadableMessage {
  readonly source: ParseSource;
  /** Its first bytes; fewer only when it is shorter. */
  readonly head: (bytes: number) => Promise<Buffer>;
}

/** Maximum bytes of a header block that are shown. */
const headBytes = 1024 * 1024;
const defaultHeadBytes = 64 * 1024;
const maxHeadersShown = 1000;
const turnEvery = 100;
const maxAddressFields = 20;

export async function viewMessage<S extends Summary>(
  parse: Parse,
  message: ReadableMessage,
  summary: S,
): Promise<S & Omit<ViewedMessage, 'size'>> {
  const [header, content] = await Promise.all([
    readHeader(message),
    parse<'message'>({ kind: 'message', ...message.source }),
  ]);
  const failed = isUnparsed(content);
  const slice = new TimeSlice();
  const parts: readonly MessagePart[] = failed ? [] : content.parts;
  return {
    ...summary,
    to: await addresses(header, 'to', slice),
    cc: await addresses(header, 'cc', slice),
    bcc: await addresses(header, 'bcc', slice),
    replyTo: await addresses(header, 'reply-to', slice),
    headers: await shown(header, slice),
    hasAttachments: failed ? summary.hasAttachments : parts.some((part) => part.attachment),
    text: failed ? null : content.text,
    html: failed ? null : content.html,
    parts,
    unparsed: failed ? content.unparsed : null,
    truncated: failed || content.truncated || header.dropped > 0 || header.fields.length > maxHeadersShown,
  };
}

async function readHeader({ source, head }: ReadableMessage): Promise<HeaderBlock> {
  const header = scanHeader(await head(defaultHeadBytes));
  return header.complete || source.size <= defaultHeadBytes ? header : scanHeader(await head(headBytes));
}

/** Yields, since there may be thousands, in fields of 256 KB. */
async function addresses(header: HeaderBlock, key: string, slice: TimeSlice): Promise<readonly DisplayAddress[]> {
  const found: DisplayAddress[] = [];
  const fields = header.fields.filter((field) => field.key === key).slice(0, maxAddressFields);
  for (const address of addressesIn(valuesOf(header, fields))) {
    found.push(address);
    if (found.length % turnEvery === 0) await slice.yieldIfDue();
  }
  return found;
}

/** One at a time: to decode a long one takes a while. */
function* valuesOf(header: HeaderBlock, fields: HeaderBlock['fields']): Generator<string> {
  for (const field of fields) yield header.value(field);
}

async function shown(header: HeaderBlock, slice: TimeSlice): Promise<readonly (readonly [string, string])[]> {
  const pairs: (readonly [string, string])[] = [];
  for (const field of header.fields.slice(0, maxHeadersShown)) {
    pairs.push([field.name, decodeWords(header.value(field))]);
    await slice.yieldIfDue();
  }
  return pairs;
}
