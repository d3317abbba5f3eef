import { addressesIn, type DisplayAddress } from '../../../core/mime/address-list.js';
import { type HeaderBlock, scanHeader } from '../../../core/mime/header.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';
import { type MessageFile, readHead } from '../maildir/message-file.js';
import { turns } from '../cache/turn.js';
import { isUnparsed, type MessageParser, type Unparsed } from '../mime/message-parser.js';
import type { MessageSummary } from './message-summary.js';
import type { PartView } from '../mime/parse-task.js';

/** A message as pages and JSON show it. */
export interface MessageView extends MessageSummary {
  readonly cc: readonly DisplayAddress[];
  readonly bcc: readonly DisplayAddress[];
  readonly replyTo: readonly DisplayAddress[];
  /** In order, decoded. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly text: string | null;
  /** Sanitised, without remote content. */
  readonly html: string | null;
  readonly parts: readonly PartView[];
  /** Why the body could not be parsed; then `text` and `html` are null and there are no parts. Null as a rule. */
  readonly unparsed: Unparsed['unparsed'] | null;
  /** Something was left out of text, HTML or parts because of its length. */
  readonly truncated: boolean;
}

/** A header block longer than this is shown as far as this. */
const headBytes = 1024 * 1024;
const usualHeadBytes = 64 * 1024;
const maxHeadersShown = 1000;
const turnEvery = 100;

export async function viewMessage(
  parser: MessageParser,
  file: MessageFile,
  summary: MessageSummary,
): Promise<MessageView> {
  const [header, content] = await Promise.all([
    readHeader(file),
    parser.parse<'message'>({ kind: 'message', fd: file.handle.fd, size: file.size }),
  ]);
  const failed = isUnparsed(content);
  return {
    ...summary,
    to: await addresses(header, 'to'),
    cc: await addresses(header, 'cc'),
    bcc: await addresses(header, 'bcc'),
    replyTo: await addresses(header, 'reply-to'),
    headers: shown(header),
    hasAttachments: failed ? summary.hasAttachments : content.parts.some((part) => part.attachment),
    text: failed ? null : content.text,
    html: failed ? null : content.html,
    parts: failed ? [] : content.parts,
    unparsed: failed ? content.unparsed : null,
    truncated: failed || content.truncated || header.dropped > 0 || header.fields.length > maxHeadersShown,
  };
}

async function readHeader(file: MessageFile): Promise<HeaderBlock> {
  const header = scanHeader(await readHead(file, usualHeadBytes));
  return header.complete || file.size <= usualHeadBytes ? header : scanHeader(await readHead(file, headBytes));
}

/** In slices: there may be thousands. */
async function addresses(header: HeaderBlock, key: string): Promise<readonly DisplayAddress[]> {
  const turn = turns();
  const found: DisplayAddress[] = [];
  for (const address of addressesIn(header.all(key).slice(0, 20))) {
    found.push(address);
    if (found.length % turnEvery === 0) await turn();
  }
  return found;
}

function shown(header: HeaderBlock): readonly (readonly [string, string])[] {
  return header.fields.slice(0, maxHeadersShown).map((field) => [field.name, decodeWords(header.value(field))]);
}
