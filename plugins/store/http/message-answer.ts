import type { DisplayAddress } from '../../../core/mime/address-list.js';
import { mailDate } from '../../../core/mime/header.js';
import { type Correspondent, correspondent, writeCorrespondent } from '../mime/recipient.js';
import { plainText } from '../mime/snippet.js';
import { isProblem } from '../../../core/problem.js';
import { turns } from '../cache/turn.js';
import type { DraftFields } from '../drafts/draft-composition.js';
import type { DraftContent } from '../drafts/draft-content.js';

export const answerKinds = ['reply', 'reply-all', 'forward'] as const;
export type AnswerKind = (typeof answerKinds)[number];

export interface Answered {
  readonly original: DraftContent;
  readonly replyTo: readonly DisplayAddress[];
  /** Whose mailbox it is. */
  readonly owner: Correspondent;
}

/** Characters of the original that are quoted. */
const mostQuoted = 256 * 1024;
const mostSubject = 1900;
const mostReferences = 50;
const turnEvery = 100;

/** The draft that a reply or a forwarded message begins as, without the parts of the original (RFC 5322 §3.6.2-3.6.5). */
export async function answerFields(kind: AnswerKind, answered: Answered): Promise<DraftFields> {
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

/** Who answers to oneself goes on writing to whom one wrote. */
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

/** Nobody means two people by two spellings. */
const keyOf = ({ address }: Correspondent): string => address.address.toLowerCase();

/** Everybody once, without what is no address: nobody could write to it. In slices: there may be thousands. */
async function unique(people: readonly DisplayAddress[]): Promise<readonly Correspondent[]> {
  const turn = turns();
  const found = new Map<string, Correspondent>();
  for (const [index, { name, address }] of people.entries()) {
    if (index % turnEvery === 0) await turn();
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
  const line = oneLine(subject).slice(0, mostSubject);
  if (isForward) return /^(?:fwd?|wg):/i.test(line) ? line : `Fwd: ${line}`.trim();
  return /^(?:re|aw)(?:\[\d{1,3}\])?:/i.test(line) ? line : `Re: ${line}`.trim();
}

/** The first, and the last ones of a long thread. */
function referencesOf({ references, inReplyTo, messageId }: DraftContent): readonly string[] {
  const before = references.length > 0 || inReplyTo === null ? references : [inReplyTo];
  const all = messageId === null ? before : [...before, messageId];
  return all.length <= mostReferences ? all : [...all.slice(0, 1), ...all.slice(1 - mostReferences)];
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

/** What there is to read, without the blank lines at its end. */
function textOf({ text, html }: DraftContent): string {
  const whole = text ?? (html === null ? '' : textOfHtml(html.slice(0, mostQuoted)));
  const clean = whole.slice(0, mostQuoted).replace(/[\0\p{Cs}]/gu, '\ufffd');
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
