import { type MessageViewName, messageViews, type ViewedMessage } from '../../../core/contracts/message-viewer.js';
import type { DisplayAddress } from '../../../core/mime/address-list.js';
import { decodeCharset } from '../../../core/mime/charset.js';
import type { DraftFields } from '../drafts/draft-composition.js';
import type { Attachment, DraftContent } from '../mime/draft-content.js';
import { type Draft, draftMarkOf } from '../drafts/draft.js';
import { specialNames } from '../folders/folder-name.js';
import type { FolderSummary } from '../folders/folder-tree.js';
import type { MailboxIdentity } from '../maildir/mailboxes.js';
import type { MessageSummary } from '../folders/message-summary.js';
import type { MessageView } from '../messages/message-view.js';
import type { FolderPage, RawHead } from '../messages/store-reader.js';
import { type Correspondent, writeCorrespondent } from '../mime/compose.js';
import { type FolderFilters, listQuery, messageFilterQuery } from './store-query.js';

/** Models of the templates in `views/store`: responses with their links, so that templates compute nothing. */

interface FolderLink extends FolderSummary {
  /** Last component of the name. */
  readonly label: string;
  /** 0 for the top level. */
  readonly level: number;
  readonly href: string;
  readonly current: boolean;
}

/** Maximum characters of text on a page; the part itself has all of it. */
const maxTextShown = 256 * 1024;

export const domainHref = (domain: string): string => `/store/${encodeURIComponent(domain)}`;

export function mailboxHref({ domain, user }: MailboxIdentity): string {
  return `/store/${encodeURIComponent(domain)}/${encodeURIComponent(user)}`;
}

export function folderHref(mailbox: MailboxIdentity, folder: string): string {
  return `${mailboxHref(mailbox)}/folders/${encodeURIComponent(folder)}`;
}

export function draftsHref(mailbox: MailboxIdentity): string {
  return `${mailboxHref(mailbox)}/drafts`;
}

export function draftHref(mailbox: MailboxIdentity, draftId: string): string {
  return `${draftsHref(mailbox)}/${encodeURIComponent(draftId)}`;
}

function folderLinks(mailbox: MailboxIdentity, folders: readonly FolderSummary[], current?: string) {
  const shown = folders.map((folder): FolderLink => {
    const levels = folder.name.split('.');
    return {
      ...folder,
      label: levels.at(-1) ?? folder.name,
      level: levels.length - 1,
      href: folderHref(mailbox, folder.name),
      current: folder.name === current,
    };
  });
  return { folders: shown, mailboxHref: mailboxHref(mailbox), domainHref: domainHref(mailbox.domain) };
}

interface MailboxAnswer extends MailboxIdentity {
  readonly size: number;
  readonly quota: number | null;
  readonly folders: readonly FolderSummary[];
}

/** @param isInUse a user has this mailbox, so it cannot be removed */
export function mailboxPage(answer: MailboxAnswer, isInUse: boolean) {
  return {
    ...answer,
    isInUse,
    ...folderLinks(answer, answer.folders),
    foldersHref: `${mailboxHref(answer)}/folders`,
    parents: answer.folders.filter(({ special }) => special !== 'inbox').map(({ name }) => name),
    total: answer.folders.reduce((sum, folder) => sum + folder.total, 0),
    unread: answer.folders.reduce((sum, folder) => sum + folder.unread, 0),
  };
}

/** Target folders for messages: special folders are offered before they exist. */
function destinations(folders: readonly FolderSummary[], current: string) {
  const names = new Set([...folders.map(({ name }) => name), ...specialNames]);
  return [...names].filter((name) => name !== current).map((name) => ({ value: name, label: name }));
}

/** What a page shows of its messages; by the list, which is the same object for the same folder, filters and version. */
const rows = new WeakMap<FolderPage, readonly object[]>();

function rowsOf(mailbox: MailboxIdentity, answer: FolderPage, path: string, list: string): readonly object[] {
  const known = rows.get(answer);
  if (known !== undefined) return known;
  const made = answer.items.map((message) => ({
    ...message,
    who: whoOf(message, answer.folder),
    href:
      answer.folder.special === 'drafts'
        ? draftHref(mailbox, draftMarkOf(message.id).draftId)
        : withQuery(`${path}/messages/${encodeURIComponent(message.id)}`, list),
  }));
  rows.set(answer, made);
  return made;
}

interface ShownFolder {
  readonly mailbox: MailboxIdentity;
  readonly answer: FolderPage;
  readonly filters: FolderFilters;
  readonly folders: readonly FolderSummary[];
  readonly listPath: string;
}

/** By the list of messages; the filters are the same for the same list. */
const pages = new WeakMap<FolderPage, ShownFolder & { readonly model: ReturnType<typeof makeFolderPage> }>();

/** The same object while it shows the same. */
export function folderPage(input: ShownFolder) {
  const { answer, folders, listPath } = input;
  const known = pages.get(answer);
  if (known !== undefined && known.folders === folders && known.listPath === listPath) return known.model;
  const model = makeFolderPage(input);
  pages.set(answer, { ...input, model });
  return model;
}

function makeFolderPage({ mailbox, answer, filters, folders, listPath }: ShownFolder) {
  const path = folderHref(mailbox, answer.folder.name);
  const { q = '', unread, flagged, order } = filters;
  return {
    ...answer,
    ...mailbox,
    ...folderLinks(mailbox, folders, answer.folder.name),
    items: rowsOf(mailbox, answer, path, listQuery(filters)),
    path,
    listPath,
    messagesHref: `${mailboxHref(mailbox)}/messages`,
    destinations: destinations(folders, answer.folder.name),
    deletesForGood: ['trash', 'junk'].includes(answer.folder.special ?? ''),
    // An incomplete search cannot select all matches.
    matching: answer.searchedAll ? messageFilterQuery(filters) || 'all=true' : null,
    filters: { q, unread, flagged, order, since: dayOf(filters.since), before: dayOf(filters.before) },
    filtered: q !== '' || [unread, flagged, filters.since, filters.before].some((value) => value !== undefined),
  };
}

const withQuery = (path: string, ...queries: readonly string[]): string =>
  [path, queries.filter((query) => query !== '').join('&')].filter((piece) => piece !== '').join('?');

/** The sender, or in folders of the user's own mail the recipients. */
function whoOf({ from, to }: MessageSummary, folder: FolderSummary): string {
  if (folder.special !== 'sent' && folder.special !== 'drafts') return nameOf(from);
  const shown = to.slice(0, 3).map(nameOf).join(', ');
  return shown === '' ? '' : `To ${shown}`;
}

function nameOf(person: DisplayAddress | null): string {
  if (person === null) return '';
  return person.name === '' ? person.address : person.name;
}

/** Format of `<input type="date">`. */
function dayOf(time: number | undefined): string {
  return time === undefined ? '' : new Date(time).toISOString().slice(0, 10);
}

interface MessagePageInput {
  readonly view: MessageViewName;
  readonly remote?: boolean | undefined;
  readonly raw: RawHead | undefined;
  readonly folders: readonly FolderSummary[];
  /** In the list that the page was opened from. */
  readonly neighbours: { readonly previous: string | null; readonly next: string | null };
  /** The query of that list. */
  readonly list: string;
}

const titles: Readonly<Record<MessageViewName, string>> = {
  text: 'Text',
  html: 'HTML',
  headers: 'Headers',
  structure: 'Structure',
  raw: 'Raw',
};

export function messagePage(mailbox: MailboxIdentity, message: MessageView, input: MessagePageInput) {
  const folder = folderHref(mailbox, message.folder);
  const path = `${folder}/messages/${encodeURIComponent(message.id)}`;
  const { list } = input;
  const neighbourHref = (id: string | null): string | null =>
    id === null ? null : withQuery(`${folder}/messages/${encodeURIComponent(id)}`, list);
  return {
    ...message,
    ...mailbox,
    ...folderLinks(mailbox, input.folders, message.folder),
    folderHref: withQuery(folder, list),
    previousHref: neighbourHref(input.neighbours.previous),
    nextHref: neighbourHref(input.neighbours.next),
    messagesHref: `${mailboxHref(mailbox)}/messages`,
    destinations: destinations(input.folders, message.folder),
    deletesForGood: ['Trash', 'Junk'].includes(message.folder),
    editHref: message.folder === 'Drafts' ? draftHref(mailbox, draftMarkOf(message.id).draftId) : null,
    answersAll: message.to.length + message.cc.length > 1,
    ...contentPage(message, { ...input, path, rawHref: `${path}?format=rfc822` }),
  };
}

interface ContentPageInput extends Omit<MessagePageInput, 'folders' | 'neighbours'> {
  /** Address of the page. */
  readonly path: string;
  readonly rawHref: string;
}

/** Model of `message-content.njk`, wherever the message lies. */
export function contentPage(message: ViewedMessage, input: ContentPageInput) {
  const { path, rawHref, view, remote = false, raw, list } = input;
  const partHref = (part: string): string => `${path}/parts/${encodeURIComponent(part)}`;
  const parts = message.parts.map((part) => ({
    ...part,
    href: part.container ? null : partHref(part.part),
    download: part.container ? null : `${partHref(part.part)}?download=1`,
    name: part.filename ?? part.cid ?? part.contentType,
  }));
  return {
    path,
    view,
    plainHref: withQuery(path, 'view=html', list),
    remoteHref: withQuery(path, 'view=html&remote=1', list),
    tabs: messageViews
      .filter((name) => name !== 'html' || message.html !== null)
      .map((name) => ({ title: titles[name], href: withQuery(path, `view=${name}`, list), current: name === view })),
    blocks: view === 'text' ? textBlocks((message.text ?? '').slice(0, maxTextShown)) : [],
    textCut: (message.text?.length ?? 0) > maxTextShown,
    parts,
    attachments: parts.filter((part) => part.attachment),
    remote,
    htmlHref: `${path}/html${remote ? '?remote=1' : ''}`,
    raw: raw === undefined ? null : decodeCharset(raw.bytes).replaceAll('\r\n', '\n'),
    rawCut: raw?.cut ?? false,
    rawHref,
  };
}

/** Initial state of the page. */
export function defaultView(message: ViewedMessage): MessageViewName {
  if (message.unparsed !== null) return 'raw';
  if (message.text !== null && message.text.trim() !== '') return 'text';
  return message.html === null ? 'text' : 'html';
}

/** Consecutive lines of plain text with the same quote depth. */
interface TextBlock {
  /** 0 for the sender's own text; at most 5. */
  readonly depth: number;
  readonly text: string;
}

const maxDepth = 5;
const maxBlocks = 5000;

/** Splits plain text where the quote depth (`>` at the beginning of lines) changes, and removes the marks. Linear. */
function textBlocks(text: string): readonly TextBlock[] {
  const blocks: { depth: number; lines: string[] }[] = [];
  for (const line of text.split('\n')) {
    const { depth, rest } = unquoted(line);
    const last = blocks.at(-1);
    if (last !== undefined && (last.depth === depth || blocks.length >= maxBlocks)) last.lines.push(rest);
    else blocks.push({ depth, lines: [rest] });
  }
  return blocks.map(({ depth, lines }) => ({ depth, text: lines.join('\n') }));
}

function unquoted(line: string): { readonly depth: number; readonly rest: string } {
  let depth = 0;
  let at = 0;
  while (line[at] === '>' && depth < maxDepth) {
    depth++;
    at++;
    if (line[at] === ' ') at++;
  }
  return { depth, rest: line.slice(at) };
}

export function messageHref(mailbox: MailboxIdentity, folder: string, id: string): string {
  return `${mailboxHref(mailbox)}/folders/${encodeURIComponent(folder)}/messages/${encodeURIComponent(id)}`;
}

/** JSON of a draft. */
export function draftAnswer({ draftId, id, savedAt, size, content }: Draft) {
  const { from, to, cc, bcc, subject, text, html, date, messageId, inReplyTo, references, attachments } = content;
  return {
    draftId,
    id,
    savedAt,
    size,
    from,
    to,
    cc,
    bcc,
    subject,
    text,
    html,
    date,
    internetMessageId: messageId,
    inReplyTo,
    references,
    attachments: attachments.map(attachmentAnswer),
  };
}

export function attachmentAnswer({ attachmentId, filename, contentType, size }: Attachment): Attachment {
  return { attachmentId, filename, contentType, size };
}

/** Contents of the editor's fields. */
export interface EditorFields {
  readonly from: string;
  readonly to: string;
  readonly cc: string;
  readonly bcc: string;
  readonly subject: string;
  readonly text: string;
  readonly inReplyTo: string;
  readonly references: string;
}

function editorFields(content: DraftContent): EditorFields {
  const { from, to, cc, bcc, subject, text, inReplyTo, references } = content;
  return {
    from: from === null ? '' : writeCorrespondent(from),
    to: to.map(writeCorrespondent).join(', '),
    cc: cc.map(writeCorrespondent).join(', '),
    bcc: bcc.map(writeCorrespondent).join(', '),
    subject,
    text: text ?? '',
    inReplyTo: inReplyTo ?? '',
    references: references.join(' '),
  };
}

/** The submitted contents of the editor's fields. */
export function writtenFields(fields: DraftFields): EditorFields {
  const people = (list: readonly Correspondent[]): string =>
    list.map(({ name, address }) => writeCorrespondent({ name, address: address.address })).join(', ');
  return {
    from: people(fields.from === null ? [] : [fields.from]),
    to: people(fields.to),
    cc: people(fields.cc),
    bcc: people(fields.bcc),
    subject: fields.subject,
    text: fields.text ?? '',
    inReplyTo: fields.inReplyTo ?? '',
    references: fields.references.join(' '),
  };
}

export function draftPage(mailbox: MailboxIdentity, draft: Draft) {
  const path = draftHref(mailbox, draft.draftId);
  return {
    ...placesOf(mailbox),
    draftId: draft.draftId,
    path,
    version: draft.tag,
    savedAt: draft.savedAt,
    size: draft.size,
    fields: editorFields(draft.content),
    hasHtml: draft.content.html !== null,
    isWhole: !draft.content.truncated,
    attachments: draft.content.attachments.map((attachment) => ({
      ...attachmentAnswer(attachment),
      href: `${path}/attachments/${encodeURIComponent(attachment.attachmentId)}`,
    })),
    rawHref: `${messageHref(mailbox, 'Drafts', draft.id)}?format=rfc822`,
  };
}

export function placesOf(mailbox: MailboxIdentity) {
  return {
    ...mailbox,
    mailboxHref: mailboxHref(mailbox),
    domainHref: `/store/${encodeURIComponent(mailbox.domain)}`,
    draftsHref: draftsHref(mailbox),
  };
}
