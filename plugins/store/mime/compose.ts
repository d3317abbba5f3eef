import type MimeNode from 'nodemailer/lib/mime-node';
import { attachmentField } from '../../../core/mime/structure.js';
import type { Correspondent } from './recipient.js';

/** A part that is there already, from its first header field to its end, as it shall stand in the message. */
export interface RawPart {
  open(): AsyncIterable<Buffer>;
}

/** What a message is made of. Everything has been checked: no value holds a line end. */
export interface Composition {
  readonly from: Correspondent;
  readonly to: readonly Correspondent[];
  readonly cc: readonly Correspondent[];
  readonly bcc: readonly Correspondent[];
  readonly subject: string;
  /** RFC 5322 §3.3. */
  readonly date: string;
  /** With angle brackets, as are the next two. */
  readonly messageId: string;
  readonly inReplyTo: string | null;
  readonly references: readonly string[];
  /** Lines end in LF. */
  readonly text: string | null;
  readonly html: string | null;
  /** Further header fields, each with its line end. */
  readonly kept: Buffer;
  readonly parts: readonly RawPart[];
}

/** What the header of an attachment says. */
export interface AttachmentLabel {
  /** Stable for as long as the message is a draft. */
  readonly attachmentId: string;
  readonly filename: string;
  readonly contentType: string;
}

type NodeClass = typeof MimeNode;

/** Most servers never compose a message, and none does at its start. */
const nodeClass = async (): Promise<NodeClass> => (await import('nodemailer/lib/mime-node')).default;

/** Nothing that a caller hands in is ever taken for a path or a URL. */
const closed = { disableFileAccess: true, disableUrlAccess: true, keepBcc: true } as const;

/** A message (RFC 5322, RFC 2045) piece by piece: the texts are in memory, parts pass by. */
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

/** Text, HTML, or both as alternatives, the better one last (RFC 2046 §5.1.4). */
function bodyNode({ text, html }: Composition, node: (type: string) => MimeNode): MimeNode {
  if (html === null) return node('text/plain; charset=utf-8').setContent(ended(text ?? ''));
  if (text === null) return node('text/html; charset=utf-8').setContent(ended(html));
  const both = node('multipart/alternative');
  both.createChild('text/plain; charset=utf-8').setContent(ended(text));
  both.createChild('text/html; charset=utf-8').setContent(ended(html));
  return both;
}

/** The last line is ended, whatever follows: a reader takes that one line end off again. */
const ended = (text: string): string => `${text.replaceAll(/\r\n?|\n/g, '\r\n')}\r\n`;

/** Bytes of a line of 76 characters. */
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
