import type { Readable } from 'node:stream';
import { z } from 'zod';
import { service } from './service.js';

const count = (meaning: string) => z.int().min(0).describe(meaning);
const Person = z.object({ name: z.string(), address: z.string() });

/** A node of the MIME tree. */
const MessagePart = z.object({
  part: z.string().describe('Number of the part, as in IMAP'),
  depth: count('Levels below the message'),
  contentType: z.string(),
  charset: z.string().nullable(),
  encoding: z.string(),
  disposition: z.enum(['inline', 'attachment']).nullable(),
  filename: z.string().nullable(),
  cid: z.string().nullable(),
  size: count('Bytes, decoded'),
  attachment: z.boolean(),
  container: z.boolean().describe('It only holds other parts'),
});
export type MessagePart = Readonly<z.output<typeof MessagePart>>;

/** A parsed message, as JSON. */
export const ViewedMessage = z.object({
  from: Person.nullable(),
  to: z.array(Person),
  cc: z.array(Person),
  bcc: z.array(Person),
  replyTo: z.array(Person),
  subject: z.string(),
  date: z.string().nullable().describe('The Date field, ISO 8601'),
  internetMessageId: z.string().nullable(),
  size: count('Bytes'),
  hasAttachments: z.boolean(),
  snippet: z.string().describe('The first words'),
  headers: z.array(z.tuple([z.string(), z.string()])).describe('Name and decoded value, in order'),
  text: z.string().nullable(),
  html: z.string().nullable().describe('Sanitised, without remote content'),
  parts: z.array(MessagePart),
  unparsed: z.enum(['too large', 'took too long', 'failed']).nullable(),
  truncated: z.boolean().describe('Something was left out because of its length'),
});

type DeepReadonly<T> = T extends object ? { readonly [K in keyof T]: DeepReadonly<T[K]> } : T;
export type ViewedMessage = DeepReadonly<z.output<typeof ViewedMessage>>;

export const messageViews = ['text', 'html', 'headers', 'structure', 'raw'] as const;
export type MessageViewName = (typeof messageViews)[number];

/** A message that lies in no mailbox. */
export interface LooseMessage {
  readonly size: number;
  /** From its first header field to its end. */
  readonly open: () => Readable | Promise<Readable>;
  /** Address of a client that is a stranger. Such messages are parsed after those of pages, in turns by network. */
  readonly strangerAddress?: string | undefined;
}

export interface LoosePage {
  /** Address of the page; those of its HTML and its parts are below it. */
  readonly path: string;
  /** Address of the whole message. */
  readonly rawHref: string;
  readonly view?: MessageViewName | undefined;
  /** Pictures from other servers are shown. */
  readonly remote?: boolean | undefined;
}

/** Shows messages of other plugins as the mailbox pages show theirs. */
export interface MessageViewer {
  /** @throws Problem `unavailable` while too many are read, or too many of the stranger */
  view(message: LooseMessage): Promise<ViewedMessage>;
  /** Model of `message-content.njk`. @throws Problem `unavailable` */
  page(message: LooseMessage, page: LoosePage): Promise<object>;
  /** A complete, sanitised document for a sandboxed frame. @throws Problem `not-found`, `unavailable` */
  html(message: LooseMessage, remote: boolean): Promise<string>;
  /** One MIME part, decoded. @throws Problem `not-found`, `unavailable` */
  part(message: LooseMessage, part: string): Promise<DecodedPart>;
}

export interface DecodedPart {
  readonly bytes: Uint8Array;
  readonly contentType: string;
  readonly charset: string | null;
  readonly filename: string | null;
}

export const messageViewer = service<MessageViewer>('postern.message-viewer');
