import { z } from 'zod';
import { correspondent, type Correspondent, parseCorrespondent, parseCorrespondents } from '../mime/compose.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { DraftFields } from '../drafts/draft-composition.js';
import { MailboxParams } from './store-query.js';

/** Schemas of the requests for drafts. */
export const DraftParams = MailboxParams.extend({ draftId: z.string().describe('Id of the draft; stays the same.') });
export const AttachmentParams = DraftParams.extend({
  attachmentId: z.string().max(200).describe('Id of the attachment.'),
});
export const AttachmentsQuery = z.strictObject({
  filename: z.string().optional().describe('Name of a single file that is sent as the body.'),
});
export const AttachmentQuery = z.strictObject({
  download: z.boolean().optional().describe('Attachments are always saved.'),
});

/** Maximum recipients of one message, as over SMTP. */
const maxRecipients = 1000;

/** Runs a parser that throws problems as a schema step. */
function parsed<I, T>(parse: (value: I) => T) {
  return (value: I, context: z.core.$RefinementCtx): T => {
    try {
      return parse(value);
    } catch (error) {
      if (!isProblem(error)) throw error;
      context.addIssue({ code: 'custom', message: error.message.replace(/\.$/, '') });
      return z.NEVER;
    }
  };
}

const Person = z.strictObject({ name: z.string().max(1000).optional(), address: z.string().max(2000) });

const one = (written: string | z.output<typeof Person>): Correspondent =>
  typeof written === 'string' ? parseCorrespondent(written) : correspondent(written.name ?? '', written.address);

const OnePerson = z.union([z.string().max(5000), Person]);

function readPeople(given: string | readonly unknown[]): readonly Correspondent[] {
  if (typeof given === 'string') return parseCorrespondents(given, maxRecipients);
  // Counted before each is parsed.
  if (given.length > maxRecipients) throw problem('invalid', `At most ${maxRecipients} recipients are taken.`);
  return given.map((written) => {
    const read = OnePerson.safeParse(written);
    if (read.success) return one(read.data);
    throw problem('invalid', 'Each recipient is a text or an object with name and address.');
  });
}

const People = z
  .union([z.string().max(500_000), z.array(z.unknown())])
  .transform(parsed(readPeople))
  .optional()
  .describe('A list of `ann@example.org`, `Ann <ann@example.org>` or `{name, address}`; or one text with commas.');

const noControls = (text: string): boolean => !/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text);
const oneLine = (most: number) =>
  z.string().max(most).refine(noControls, 'must be one line without control characters');

const body = (most: number) =>
  z
    .string()
    .max(most)
    .refine((text) => !/[\0\p{Cs}]/u.test(text), 'must not hold NUL or half a surrogate pair')
    .nullable()
    .optional();

const messageId = /^<[^<>\s]{1,990}>$/;
const mustBeIds = 'Must be message ids in angle brackets, with blanks between them.';

function readMessageIds(given: string | readonly string[]): readonly string[] {
  const ids = typeof given === 'string' ? given.split(' ').filter((id) => id !== '') : given;
  if (ids.length > 200 || !ids.every((id) => messageId.test(id))) throw problem('invalid', mustBeIds);
  return ids;
}

/** A draft, as JSON or as a form. */
export const DraftBody = z.strictObject({
  from: z
    .union([z.string().max(5000), Person])
    .transform(parsed((given) => (given === '' ? null : one(given))))
    .nullable()
    .optional()
    .describe('The owner of the mailbox, if absent.'),
  to: People,
  cc: People,
  bcc: People,
  subject: oneLine(2000).optional(),
  text: body(4 * 1024 * 1024).describe('Plain text.'),
  html: body(4 * 1024 * 1024).describe('HTML, as an alternative to the text.'),
  inReplyTo: oneLine(1000)
    .refine((text) => text === '' || messageId.test(text), 'must be a message id in angle brackets')
    .nullable()
    .optional(),
  references: z
    .union([z.string().max(100_000), z.array(z.string().max(1000)).max(200)])
    .transform(parsed(readMessageIds))
    .optional(),
  files: z
    .union([z.string().max(5000), z.array(z.string().max(1000)).max(1000)])
    .refine(
      (names) => names.length === 0,
      'You have chosen a file that is not attached yet. Choose it again, and press Attach',
    )
    .optional()
    .describe('Names of files that a browser was given, and did not send with this form: there must be none.'),
  version: z
    .string()
    .max(100)
    .optional()
    .describe('Entity tag of the version that was read; for forms, which have no If-Match.'),
});
export type DraftInput = z.output<typeof DraftBody>;

export function fieldsOf(input: DraftInput): DraftFields {
  const {
    from,
    to = [],
    cc = [],
    bcc = [],
    subject = '',
    text = null,
    html = null,
    inReplyTo,
    references = [],
  } = input;
  return {
    from: from ?? null,
    to,
    cc,
    bcc,
    subject: subject.trim(),
    text: text === null ? null : lineFeeds(text),
    html: html === null || html === '' ? null : lineFeeds(html),
    inReplyTo: inReplyTo === undefined || inReplyTo === '' ? null : inReplyTo,
    references,
  };
}

/** Browsers send CRLF. */
const lineFeeds = (text: string): string => text.replaceAll(/\r\n?/g, '\n');

/** A form that includes the fields of the editor; scripts that only act on a draft send none. */
export function fieldsAlong(input: DraftInput | undefined): DraftFields | undefined {
  if (input === undefined) return undefined;
  const { version, files, ...fields } = input;
  void version;
  void files;
  return Object.values(fields).some((value) => value !== undefined) ? fieldsOf(input) : undefined;
}

/** Editor fields sent with an upload. @throws Problem `invalid` */
export function readEditorFields(given: Readonly<Record<string, string | readonly string[]>>): DraftInput | undefined {
  const fields = Object.entries(given).filter(([name]) => name !== '_method');
  if (fields.length === 0) return undefined;
  return readDraftFields(DraftBody, Object.fromEntries(fields));
}

/** @throws Problem `invalid` */
export function readDraftFields<T>(schema: z.ZodType<T>, fields: Readonly<Record<string, unknown>>): T {
  const read = schema.safeParse(fields);
  if (read.success) return read.data;
  const errors = read.error.issues.map(({ path, message }) => ({ pointer: `/${path.join('/')}`, message }));
  throw problem('invalid', { detail: `${errors[0]?.pointer ?? ''}: ${errors[0]?.message ?? 'invalid'}.`, errors });
}

const count = (meaning: string) => z.int().min(0).describe(meaning);
const Shown = z.object({ name: z.string(), address: z.string() });

const Attachment = z.object({
  attachmentId: z.string(),
  filename: z.string(),
  contentType: z.string(),
  size: count('Bytes, decoded'),
});

export const DraftAnswer = z.object({
  draftId: z.string().describe('Stays the same'),
  id: z.string().describe('Unique name of the present file; another one after each change'),
  savedAt: z.string().describe('ISO 8601'),
  size: count('Bytes of the whole message'),
  from: Shown.nullable(),
  to: z.array(Shown),
  cc: z.array(Shown),
  bcc: z.array(Shown),
  subject: z.string(),
  text: z.string().nullable(),
  html: z.string().nullable().describe('As it was written, not sanitised'),
  date: z.string().nullable(),
  internetMessageId: z.string().nullable(),
  inReplyTo: z.string().nullable(),
  references: z.array(z.string()),
  attachments: z.array(Attachment),
});

export const DraftsAnswer = z.object({
  items: z.array(
    z.object({
      draftId: z.string(),
      id: z.string(),
      savedAt: z.string().describe('ISO 8601'),
      size: count('Bytes'),
      from: Shown.nullable(),
      to: z.array(Shown),
      subject: z.string(),
      hasAttachments: z.boolean(),
      snippet: z.string(),
    }),
  ),
  total: count('Drafts'),
  limit: z.int(),
  nextCursor: z.string().nullable(),
  prevCursor: z.string().nullable(),
});

export const AttachmentsAnswer = z.object({ attachments: z.array(Attachment) });
export const SentAnswer = z.object({
  uid: z.string().nullable().describe('Queue entry; null when all recipients were local'),
  draftId: z.string(),
  sentId: z.string().describe('Unique name of the message in Sent'),
});
