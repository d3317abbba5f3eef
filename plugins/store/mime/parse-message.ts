import { createRequire } from 'node:module';
import type { simpleParser as SimpleParser } from 'mailparser';
import { effectiveCharset } from '../../../core/mime/charset.js';
import { decodedSize, decodeTransfer } from '../../../core/mime/decode.js';
import {
  findPart,
  isAttachment,
  ownParts,
  type Part,
  readStructure,
  type Structure,
} from '../../../core/mime/structure.js';
import { readDraft } from '../drafts/draft-content.js';
import { htmlDocument, maxHtmlLength, sanitiseHtml } from './html.js';
import type { HtmlDocument, MessageContent, ParseResults, ParseTask, PartBytes, PartView } from './message-parser.js';
import { readableParts } from './summary.js';

/** Runs in a parse worker: `bytes` is the whole file, and everything here may take its time. */
export async function parseMessage(bytes: Buffer, task: ParseTask): Promise<ParseResults[ParseTask['kind']]> {
  if (task.kind === 'draft') return readDraft(bytes);
  const structure = readStructure(bytes);
  if (task.kind === 'message') return contentOf(bytes, structure);
  return task.kind === 'html' ? documentOf(bytes, structure, task.remote) : partOf(bytes, structure, task.part);
}

/** Characters of text that are shown. */
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
    const body = await readBody(bytes, part);
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

function viewOf(bytes: Buffer, part: Part): PartView {
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

/** Finds the pictures of the message by Content-ID, as long as they are not too many bytes. */
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
    // A copy of its own, so that it can be handed over instead of being copied once more.
    bytes: new Uint8Array(decoded),
    contentType: part.contentType,
    charset: part.charset === '' ? null : part.charset,
    filename: part.filename ?? null,
  };
}

// mailparser is CommonJS and slow to load: only a parse worker imports this file.
const { simpleParser } = createRequire(import.meta.url)('mailparser') as { readonly simpleParser: typeof SimpleParser };

/** Bytes of one encoded body that are read. */
const maxBodyBytes = 1024 * 1024;

interface ReadBody {
  readonly text: string;
  /** It was longer than what is read. */
  readonly cut: boolean;
}

/**
 * Text of one text part: transfer encoding, charset and `format=flowed` undone by mailparser, which is handed that part
 * alone. So attachments, structure and headers, hostile ones above all, never reach it.
 */
export async function readBody(bytes: Buffer, part: Part): Promise<ReadBody> {
  const end = Math.min(part.end, part.bodyOffset + maxBodyBytes);
  const body = bytes.subarray(part.bodyOffset, end);
  const message = Buffer.concat([headerOf(part, body), body]);
  const parsed = await simpleParser(message, {
    skipHtmlToText: true,
    skipTextToHtml: true,
    skipTextLinks: true,
    skipImageLinks: true,
    maxHtmlLengthToParse: maxBodyBytes,
  });
  const html = part.contentType === 'text/html' ? parsed.html : undefined;
  const text = typeof html === 'string' ? html : (parsed.text ?? '');
  return { text: text.replaceAll('\0', '\ufffd'), cut: end < part.end };
}

/** Written anew from what was understood. */
function headerOf(part: Part, body: Buffer): Buffer {
  const type = part.contentType === 'text/html' ? 'text/html' : 'text/plain';
  const charset = charsetOf(part, body);
  const flowed = part.flowed ? `; format=flowed${part.delSp ? '; delsp=yes' : ''}` : '';
  const encoding = ['base64', 'quoted-printable'].includes(part.encoding) ? part.encoding : '8bit';
  return Buffer.from(
    `MIME-Version: 1.0\r\nContent-Type: ${type}; charset=${charset}${flowed}\r\nContent-Transfer-Encoding: ${encoding}\r\n\r\n`,
  );
}

/** mailparser knows charsets that the platform does not; what no one knows is found by looking at the bytes. */
function charsetOf(part: Part, body: Buffer): string {
  if (/^(?:utf-7|x-mac-[a-z]{1,20}|hz-gb-2312)$/.test(part.charset)) return part.charset;
  return effectiveCharset(decodeTransfer(body, part.encoding), part.charset);
}
