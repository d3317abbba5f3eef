import type { MessagePart } from '../../../core/contracts/message-viewer.js';
import { decodedSize, decodeTransfer } from '../../../core/mime/decode.js';
import {
  findPart,
  isAttachment,
  ownParts,
  type Part,
  readStructure,
  type Structure,
} from '../../../core/mime/structure.js';
import { readDraft } from './draft-content.js';
import { htmlDocument, maxHtmlLength, sanitiseHtml } from './html.js';
import type { HtmlDocument, MessageContent, ParseResults, ParseTask, PartBytes } from './message-parser.js';
import { readTextBody } from './message-text.js';
import { readableParts } from './summary.js';

/** Runs in a parse worker, so it may be slow; `bytes` is the whole file. */
export async function parseMessage(bytes: Buffer, task: ParseTask): Promise<ParseResults[ParseTask['kind']]> {
  if (task.kind === 'draft') return readDraft(bytes);
  const structure = readStructure(bytes);
  if (task.kind === 'message') return contentOf(bytes, structure);
  return task.kind === 'html' ? documentOf(bytes, structure, task.remote) : partOf(bytes, structure, task.part);
}

/** Maximum characters of text. */
const maxTextLength = 1024 * 1024;

interface Joined {
  readonly text: string | null;
  readonly cut: boolean;
}

async function joined(bytes: Buffer, parts: readonly Part[], separator: string, limit: number): Promise<Joined> {
  const texts: string[] = [];
  let length = 0;
  let cut = false;
  for (const part of parts) {
    if (length > limit) return { text: texts.join(separator).slice(0, limit), cut: true };
    const body = await readTextBody(bytes, part);
    texts.push(body.text);
    length += body.text.length;
    cut ||= body.cut;
  }
  const text = texts.join(separator);
  return { text: parts.length === 0 ? null : text.slice(0, limit), cut: cut || text.length > limit };
}

async function contentOf(bytes: Buffer, structure: Structure): Promise<MessageContent> {
  const readable = readableParts(structure);
  const text = await joined(bytes, readable.text, '\n', maxTextLength);
  const html = await joined(bytes, readable.html, '<hr>', maxHtmlLength);
  return {
    text: text.text,
    html: html.text === null ? null : sanitiseHtml(html.text, { remote: false }).html,
    parts: structure.parts.map((part) => viewOf(bytes, part)),
    truncated: structure.truncated || text.cut || html.cut,
  };
}

function viewOf(bytes: Buffer, part: Part): MessagePart {
  const container = part.boundary !== undefined;
  const body = bytes.subarray(part.bodyOffset, part.end);
  return {
    part: part.part,
    depth: part.depth,
    contentType: part.contentType,
    charset: part.charset === '' ? null : part.charset,
    encoding: part.encoding,
    disposition: part.disposition ?? null,
    filename: part.filename ?? null,
    cid: part.cid ?? null,
    size: container ? body.length : decodedSize(body, part.encoding),
    attachment: !container && isAttachment(part),
    container,
  };
}

const maxPictureBytes = 2 * 1024 * 1024;
const maxPicturesBytes = 8 * 1024 * 1024;
const pictureTypes = new Set(['image/png', 'image/jpeg', 'image/jpg', 'image/gif', 'image/webp', 'image/bmp']);

async function documentOf(bytes: Buffer, structure: Structure, remote: boolean): Promise<HtmlDocument> {
  const html = await joined(bytes, readableParts(structure).html, '<hr>', maxHtmlLength);
  if (html.text === null) return { document: null, remoteRemoved: false };
  const safe = sanitiseHtml(html.text, { remote, picture: picturesOf(bytes, structure) });
  return { document: htmlDocument(safe.html), remoteRemoved: safe.remoteRemoved };
}

/** Returns the images of the message by Content-ID, up to a total size. */
function picturesOf(bytes: Buffer, structure: Structure): (cid: string) => string | undefined {
  const parts = new Map<string, Part>();
  for (const part of ownParts(structure)) {
    if (part.cid !== undefined && pictureTypes.has(part.contentType)) parts.set(part.cid, part);
  }
  let spent = 0;
  return (cid) => {
    const part = parts.get(cid);
    if (part === undefined || part.end - part.bodyOffset > maxPictureBytes * 1.5) return undefined;
    const picture = decodeTransfer(bytes.subarray(part.bodyOffset, part.end), part.encoding);
    spent += picture.length;
    if (picture.length > maxPictureBytes || spent > maxPicturesBytes) return undefined;
    return `data:${part.contentType};base64,${picture.toString('base64')}`;
  };
}

function partOf(bytes: Buffer, structure: Structure, number: string): PartBytes {
  const part = findPart(structure, number);
  if (part === undefined || part.boundary !== undefined) {
    return { bytes: null, contentType: 'application/octet-stream', charset: null, filename: null };
  }
  const decoded = decodeTransfer(bytes.subarray(part.bodyOffset, part.end), part.encoding);
  return {
    // A copy with its own buffer, which can be transferred.
    bytes: new Uint8Array(decoded),
    contentType: part.contentType,
    charset: part.charset === '' ? null : part.charset,
    filename: part.filename ?? null,
  };
}
