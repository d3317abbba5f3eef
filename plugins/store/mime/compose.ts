import type MimeNode from 'nodemailer/lib/mime-node';
import { type Address, parseAddress } from '../../../core/mime/address.js';
import { attachmentField } from '../../../core/mime/structure.js';
import { problem, type Problem } from '../../../core/problem.js';

/** An existing part, from its first header field to its end, to be copied as it is. */
export interface RawPart {
  open(): AsyncIterable<Buffer>;
}

/** Contents of a message. All values are validated: none contains a line end. */
export interface Composition {
  readonly from: Correspondent;
  readonly to: readonly Correspondent[];
  readonly cc: readonly Correspondent[];
  readonly bcc: readonly Correspondent[];
  readonly subject: string;
  /** RFC 5322 §3.3. */
  readonly date: string;
  /** With angle brackets, like the next two. */
  readonly messageId: string;
  readonly inReplyTo: string | null;
  readonly references: readonly string[];
  /** With LF line ends. */
  readonly text: string | null;
  readonly html: string | null;
  /** Further header fields, each with its line end. */
  readonly kept: Buffer;
  readonly parts: readonly RawPart[];
}

/** Header of an attachment. */
export interface AttachmentLabel {
  /** Stable during the life of the draft. */
  readonly attachmentId: string;
  readonly filename: string;
  readonly contentType: string;
}

type NodeClass = typeof MimeNode;

/** Loaded on first use: most servers never compose a message. */
const nodeClass = async (): Promise<NodeClass> => (await import('nodemailer/lib/mime-node')).default;

/** Nothing that a caller sends is treated as a path or URL. */
const closed = { disableFileAccess: true, disableUrlAccess: true, keepBcc: true } as const;

/** Composes a message (RFC 5322, RFC 2045) piece by piece: texts are in memory, parts are streamed. */
export async function* composeMessage(composition: Composition): AsyncGenerator<Buffer> {
  const { parts, kept } = composition;
  const Node = await nodeClass();
  yield kept;
  if (parts.length === 0) {
    const root = bodyNode(composition, (type) => new Node(type, closed));
    label(root, composition);
    yield await root.build();
    return;
  }
  const root = new Node('multipart/mixed', closed);
  label(root, composition);
  const body = await bodyNode(composition, (type) => root.createChild(type)).build();
  const header = root.buildHeaders();
  const boundary = root.boundary;
  if (typeof boundary !== 'string') throw new Error('a multipart has a boundary');
  yield Buffer.from(`${header}\r\n\r\n--${boundary}\r\n`);
  yield body;
  for (const part of parts) {
    yield Buffer.from(`\r\n--${boundary}\r\n`);
    yield* part.open();
  }
  yield Buffer.from(`\r\n--${boundary}--\r\n`);
}

/** A part with its header, its content in base64 (RFC 2045 §6.8). */
export async function* encodeAttachment(
  about: AttachmentLabel,
  content: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  const Node = await nodeClass();
  const node = new Node('multipart/mixed', closed).createChild(about.contentType, { filename: about.filename });
  node.setHeader('Content-Transfer-Encoding', 'base64');
  node.setHeader('Content-Disposition', 'attachment');
  node.setHeader(attachmentField, about.attachmentId);
  yield Buffer.from(`${node.buildHeaders()}\r\n\r\n`);
  yield* base64Lines(content);
}

function label(root: MimeNode, composition: Composition): void {
  const { from, to, cc, bcc, subject, date, messageId, inReplyTo, references } = composition;
  root.setHeader({
    From: [from].map(mimeAddress),
    To: to.map(mimeAddress),
    Cc: cc.map(mimeAddress),
    Bcc: bcc.map(mimeAddress),
    Subject: subject,
    Date: date,
    'Message-ID': messageId,
  });
  if (inReplyTo !== null) root.setHeader('In-Reply-To', inReplyTo);
  if (references.length > 0) root.setHeader('References', references.join(' '));
}

const mimeAddress = ({ name, address }: Correspondent) => ({ name, address: address.address });

/** Text, HTML, or both as alternatives, the preferred one last (RFC 2046 §5.1.4). */
function bodyNode({ text, html }: Composition, node: (type: string) => MimeNode): MimeNode {
  if (html === null) return node('text/plain; charset=utf-8').setContent(ended(text ?? ''));
  if (text === null) return node('text/html; charset=utf-8').setContent(ended(html));
  const both = node('multipart/alternative');
  both.createChild('text/plain; charset=utf-8').setContent(ended(text));
  both.createChild('text/html; charset=utf-8').setContent(ended(html));
  return both;
}

/** Ends the last line: a reader removes that line end again. */
const ended = (text: string): string => `${text.replaceAll(/\r\n?|\n/g, '\r\n')}\r\n`;

/** Bytes of a base64 line of 76 characters. */
const lineBytes = 57;

async function* base64Lines(content: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of content) {
    const bytes = rest.length === 0 ? piece : Buffer.concat([rest, piece]);
    const whole = bytes.length - (bytes.length % lineBytes);
    rest = Buffer.from(bytes.subarray(whole));
    if (whole > 0) yield lines(bytes.subarray(0, whole));
  }
  yield lines(rest);
}

function lines(bytes: Buffer): Buffer {
  const text = bytes.toString('base64');
  const out: string[] = [];
  for (let at = 0; at < text.length; at += 76) out.push(`${text.slice(at, at + 76)}\r\n`);
  return Buffer.from(out.join(''), 'latin1');
}

/** A mailbox to write to: a valid address with an optional name. */
export interface Correspondent {
  /** Empty for none. */
  readonly name: string;
  readonly address: Address;
}

const maxNameLength = 200;
/** Characters that a display name cannot contain, even quoted: controls would end the header field. */
const refused = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u;
/** RFC 5322 §3.2.3 `specials` without the dot, which is common in names. */
const special = /[()<>[\]:;@\\,"]/;

/** @throws Problem `invalid` */
export function correspondent(name: string, address: string): Correspondent {
  const trimmed = name.trim();
  if (refused.test(trimmed)) throw problem('invalid', 'A name must be one line without control characters.');
  if (trimmed.length > maxNameLength) throw problem('invalid', `A name may have ${maxNameLength} characters at most.`);
  return { name: trimmed, address: parseAddress(address) };
}

/**
 * Parses exactly one mailbox: `ann@example.org`, `Ann <ann@example.org>`, `"Doe, Ann" <ann@example.org>`. Unlike the
 * parser for received mail, it neither guesses nor drops anything. Linear.
 * @throws Problem `invalid`
 */
export function parseCorrespondent(text: string): Correspondent {
  const [only, ...others] = splitList(text);
  if (only === undefined || others.length > 0) throw problem('invalid', 'Give exactly one address here.');
  return parseOne(only);
}

/** Parses mailboxes separated by commas; empty items are ignored. Groups are refused. @throws Problem `invalid` */
export function parseCorrespondents(text: string, most: number): readonly Correspondent[] {
  const pieces = splitList(text).filter((piece) => piece.trim() !== '');
  if (pieces.length > most) throw problem('invalid', `At most ${most} recipients are taken.`);
  return pieces.map(parseOne);
}

/** In the syntax of `parseCorrespondent`, for editing. */
export function writeCorrespondent({ name, address }: { readonly name: string; readonly address: string }): string {
  if (name === '') return address;
  const shown = special.test(name) ? `"${name.replace(/["\\]/g, '\\$&')}"` : name;
  return `${shown} <${address}>`;
}

function parseOne(text: string): Correspondent {
  const piece = text.trim();
  if (refused.test(text)) throw unreadable(piece);
  const open = openingBracket(piece);
  if (open < 0) return correspondent('', piece);
  if (!piece.endsWith('>')) throw unreadable(piece);
  return correspondent(unquoted(piece.slice(0, open).trim()), piece.slice(open + 1, -1));
}

/** Index of the first unquoted `<`, or -1. */
function openingBracket(text: string): number {
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (quoted && character === '\\') at += 1;
    else if (character === '"') quoted = !quoted;
    else if (character === '<' && !quoted) return at;
  }
  return -1;
}

function unquoted(phrase: string): string {
  const match = /^"((?:[^"\\]|\\.)*)"$/.exec(phrase);
  if (match !== null) return (match[1] ?? '').replace(/\\(.)/g, '$1');
  if (special.test(phrase)) throw unreadable(phrase);
  return phrase;
}

/** Splits at commas outside of quotes and angle brackets. */
function splitList(text: string): readonly string[] {
  const pieces: string[] = [];
  let quoted = false;
  let bracketed = false;
  let start = 0;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (quoted && character === '\\') at += 1;
    else if (character === '"') quoted = !quoted;
    else if (!quoted && character === '<') bracketed = true;
    else if (!quoted && character === '>') bracketed = false;
    else if (!quoted && !bracketed && character === ',') {
      pieces.push(text.slice(start, at));
      start = at + 1;
    }
  }
  pieces.push(text.slice(start));
  return pieces;
}

function unreadable(piece: string): Problem {
  const shown = piece.slice(0, 100).replace(/\p{C}/gu, '?');
  return problem('invalid', `"${shown}" is no address: write ann@example.org or Ann <ann@example.org>.`);
}
