import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { addressesIn, type DisplayAddress } from '../../../core/mime/address-list.js';
import { mailDate, scanHeader } from '../../../core/mime/header.js';
import { isProblem, problem } from '../../../core/problem.js';
import { TimeSlice } from '../../../core/concurrency.js';
import {
  type DraftFields,
  mailboxOwner,
  partsOfMessage,
  type PartSource,
  readRange,
} from '../drafts/draft-composition.js';
import type { DraftContent } from '../mime/draft-content.js';
import type { Draft } from '../drafts/draft.js';
import type { Drafts } from '../drafts/drafts.js';
import { parseFolderName } from '../folders/folder-name.js';
import { type MessageFile, readHead } from '../folders/message-file.js';
import { parseMessageId } from '../maildir/message-name.js';
import type { MessagePlace, StoreReader } from '../messages/store-reader.js';
import { correspondent, type Correspondent, writeCorrespondent } from '../mime/compose.js';
import { plainText } from '../mime/summary.js';
import { draftAnswer, draftHref } from './view-model.js';
import * as schema from './draft-query.js';
import { draftGroup, type DraftDeps } from './draft-page.js';
import { MessageParams } from './store-query.js';

/** Buttons on a message that begin a draft. */
export function answerEndpoint({ reader, drafts, names }: DraftDeps): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: '/store/{domain}/{user}/folders/{folder}/messages/{messageId}/draft',
    success: [201],
    summary: 'Begin a draft that replies to a message, or forwards it with its attachments',
    group: draftGroup,
    access: 'operate',
    answer: schema.DraftAnswer,
    params: MessageParams,
    body: {
      kind: 'fields',
      schema: z.strictObject({ as: z.enum(answerKinds).describe('To its sender, to everybody, or to somebody else.') }),
    },
    idempotent: true,
    cache: 'no-store',
    async handle({ params, body }) {
      const folder = parseFolderName(params.folder);
      const id = parseMessageId(params.messageId);
      const mailbox = await names.parse(params);
      const draft = await beginAnswer(reader, drafts, { mailbox, folder, id }, body.as);
      return respond<object>({
        model: draftAnswer(draft),
        status: 201,
        location: draftHref(names.describe(mailbox), draft.draftId),
        etag: draft.tag,
        audit: { action: 'draft created', selector: draft.draftId },
      });
    },
  });
}

const headBytes = 64 * 1024;

/**
 * Creates the draft of a reply or forward, with attachments for a forward.
 * @throws Problem `not-found`, `conflict` when the message cannot be parsed, `mailbox-full`, `too-large`
 */
async function beginAnswer(reader: StoreReader, drafts: Drafts, place: MessagePlace, kind: AnswerKind): Promise<Draft> {
  const file = await reader.open(place);
  try {
    const original = await contentOf(reader, file);
    const header = scanHeader(await readHead(file, headBytes));
    const replyTo = [...addressesIn(header.all('reply-to').slice(0, 20))];
    const fields = await answerFields(kind, { original, replyTo, owner: mailboxOwner(place.mailbox) });
    const parts = kind === 'forward' ? forwardedParts(file, original) : [];
    return await drafts.create(place.mailbox, { kind: 'fields', fields, parts });
  } finally {
    await file.handle.close();
  }
}

async function contentOf(reader: StoreReader, file: MessageFile): Promise<DraftContent> {
  try {
    return await reader.draft(file);
  } catch (error) {
    if (!isProblem(error) || error.problem !== 'conflict') throw error;
    throw problem('conflict', 'This message could not be parsed, so it can be downloaded, but not answered here.');
  }
}

/** Its attachments; a message that is too large or too deeply nested, or whose text is not quoted in full, is attached whole. */
function forwardedParts(file: MessageFile, original: DraftContent): readonly PartSource[] {
  const isWhole = !original.truncated && (original.text ?? original.html ?? '').length <= maxQuoted;
  return isWhole ? partsOfMessage(file, original.attachments) : [wholeMessage(file)];
}

function wholeMessage({ handle, size }: MessageFile): PartSource {
  const header =
    'Content-Type: message/rfc822\r\nContent-Disposition: attachment; filename="forwarded.eml"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n';
  return {
    async *open() {
      yield Buffer.from(header);
      yield* readRange(handle, 0, size);
    },
  };
}

const answerKinds = ['reply', 'reply-all', 'forward'] as const;
type AnswerKind = (typeof answerKinds)[number];

interface Answered {
  readonly original: DraftContent;
  readonly replyTo: readonly DisplayAddress[];
  /** The owner of the mailbox. */
  readonly owner: Correspondent;
}

/** Maximum quoted characters of the original. */
const maxQuoted = 256 * 1024;
const maxSubject = 1900;
const maxReferences = 50;
const turnEvery = 100;

/** Initial draft of a reply or forward, without the parts of the original (RFC 5322 §3.6.2-3.6.5). */
async function answerFields(kind: AnswerKind, answered: Answered): Promise<DraftFields> {
  const { original } = answered;
  const isForward = kind === 'forward';
  return {
    from: null,
    ...(isForward ? { to: [], cc: [] } : await recipientsOf(kind, answered)),
    bcc: [],
    subject: subjectOf(original.subject, isForward),
    text: `\n\n${isForward ? forwarded(original) : quoted(original)}`,
    html: null,
    inReplyTo: isForward ? null : original.messageId,
    references: referencesOf(original),
  };
}

/** A reply to one's own message goes to its recipients. */
async function recipientsOf(kind: AnswerKind, { original, replyTo, owner }: Answered) {
  const own = keyOf(owner);
  const isOwn = original.from?.address.toLowerCase() === own;
  const sender = original.from === null ? [] : [original.from];
  const to = await unique(isOwn ? original.to : replyTo.length > 0 ? replyTo : sender);
  if (kind === 'reply') return { to, cc: [] };
  const others = await unique(isOwn ? original.cc : [...original.to, ...original.cc]);
  const known = new Set([own, ...to.map(keyOf)]);
  return { to, cc: others.filter((person) => !known.has(keyOf(person))) };
}

/** Different spellings of an address count as one recipient. */
const keyOf = ({ address }: Correspondent): string => address.address.toLowerCase();

/** Without duplicates and invalid addresses. Yields, since there may be thousands. */
async function unique(people: readonly DisplayAddress[]): Promise<readonly Correspondent[]> {
  const slice = new TimeSlice();
  const found = new Map<string, Correspondent>();
  for (const [index, { name, address }] of people.entries()) {
    if (index % turnEvery === 0) await slice.yieldIfDue();
    try {
      const person = correspondent(name, address);
      if (!found.has(keyOf(person))) found.set(keyOf(person), person);
    } catch (error) {
      if (!isProblem(error)) throw error;
    }
  }
  return [...found.values()];
}

const oneLine = (text: string): string => text.replace(/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]+/gu, ' ').trim();

function subjectOf(subject: string, isForward: boolean): string {
  const line = oneLine(subject).slice(0, maxSubject);
  if (isForward) return /^(?:fwd?|wg):/i.test(line) ? line : `Fwd: ${line}`.trim();
  return /^(?:re|aw)(?:\[\d{1,3}\])?:/i.test(line) ? line : `Re: ${line}`.trim();
}

/** The first, and the last ones of a long thread. */
function referencesOf({ references, inReplyTo, messageId }: DraftContent): readonly string[] {
  const before = references.length > 0 || inReplyTo === null ? references : [inReplyTo];
  const all = messageId === null ? before : [...before, messageId];
  return all.length <= maxReferences ? all : [...all.slice(0, 1), ...all.slice(1 - maxReferences)];
}

function quoted(original: DraftContent): string {
  const who = original.from === null ? 'somebody' : shown(original.from);
  const date = dateOf(original.date);
  const lines = textOf(original).split('\n');
  const marked = lines.map((line) => (line === '' || line.startsWith('>') ? `>${line}` : `> ${line}`));
  return `${date === '' ? '' : `On ${date}, `}${who} wrote:\n${marked.join('\n')}\n`;
}

function forwarded(original: DraftContent): string {
  const people = (list: readonly DisplayAddress[]) => list.map(shown).join(', ');
  const fields: readonly (readonly [name: string, value: string])[] = [
    ['From', original.from === null ? '' : shown(original.from)],
    ['Date', dateOf(original.date)],
    ['Subject', oneLine(original.subject)],
    ['To', people(original.to)],
    ['Cc', people(original.cc)],
  ];
  const head = fields.filter(([, value]) => value !== '').map(([name, value]) => `${name}: ${value}`);
  return ['---------- Forwarded message ----------', ...head, '', textOf(original), ''].join('\n');
}

const shown = (person: DisplayAddress): string => oneLine(writeCorrespondent(person));
const dateOf = (date: string | null): string => (date === null ? '' : mailDate(new Date(date)));

/** The readable text without trailing blank lines. */
function textOf({ text, html }: DraftContent): string {
  const whole = text ?? (html === null ? '' : textOfHtml(html.slice(0, maxQuoted)));
  const clean = whole.slice(0, maxQuoted).replace(/[\0\p{Cs}]/gu, '\ufffd');
  return clean.replaceAll('\r', '').trimEnd();
}

const lineEnds = /<(?:br|\/p|\/div|\/tr|\/li|\/h[1-6]|\/blockquote|\/pre)\b[^<>]{0,200}>/gi;

function textOfHtml(html: string): string {
  const lines = plainText(html.replace(/\s+/g, ' ').replace(lineEnds, '\n')).split('\n');
  const texts = lines.map((line) => line.replace(/[ \t\u00a0]+/g, ' ').trim());
  return texts
    .filter((line, index) => line !== '' || texts[index - 1] !== '')
    .join('\n')
    .trim();
}
