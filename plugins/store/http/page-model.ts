import type { DisplayAddress } from '../../../core/mime/address-list.js';
import { decodeCharset } from '../../../core/mime/charset.js';
import { markOf } from '../drafts/draft-name.js';
import { specialNames } from '../folders/folder-name.js';
import type { FolderSummary } from '../folders/folder-tree.js';
import type { MailboxIdentity } from '../maildir/mailbox-names.js';
import { writtenFilter } from '../messages/message-selection.js';
import type { MessageSummary } from '../messages/message-summary.js';
import type { MessageView } from '../messages/message-view.js';
import { textBlocks } from '../drafts/quoted-text.js';
import { type FolderFilters, type MessageViewName, messageViews } from './store-query.js';
import type { FolderPage, RawHead } from '../messages/store-reader.js';

/** What the templates of `views/store` get: the answers of the interface with their links, and nothing to compute. */

export interface FolderLink extends FolderSummary {
  /** Last level of the name. */
  readonly label: string;
  /** 0 for the first level. */
  readonly level: number;
  readonly href: string;
  readonly current: boolean;
}

const encode = encodeURIComponent;
/** Characters of text on a page; the part itself has them all. */
const maxTextShown = 256 * 1024;

export const domainHref = (domain: string): string => `/store/${encode(domain)}`;

export function mailboxHref({ domain, user }: MailboxIdentity): string {
  return `/store/${encode(domain)}/${encode(user)}`;
}

export function folderHref(mailbox: MailboxIdentity, folder: string): string {
  return `${mailboxHref(mailbox)}/folders/${encode(folder)}`;
}

export function draftsHref(mailbox: MailboxIdentity): string {
  return `${mailboxHref(mailbox)}/drafts`;
}

export function draftHref(mailbox: MailboxIdentity, draftId: string): string {
  return `${draftsHref(mailbox)}/${encode(draftId)}`;
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

export interface MailboxAnswer extends MailboxIdentity {
  readonly size: number;
  readonly quota: number | null;
  readonly folders: readonly FolderSummary[];
}

/** @param isInUse a user has it, so it cannot be removed */
export function mailboxPage(answer: MailboxAnswer, isInUse: boolean) {
  const { folders, ...links } = folderLinks(answer, answer.folders);
  const parents = [{ value: '', label: 'the first level' }, ...answer.folders.filter(isNotInbox).map(choiceOf)];
  // A folder moves neither below itself nor below one of its own.
  const otherThan = (name: string) => parents.filter(({ value }) => !`${value}.`.startsWith(`${name}.`));
  return {
    ...answer,
    isInUse,
    ...links,
    folders: folders.map((folder) => ({ ...folder, moveParents: otherThan(folder.name) })),
    foldersHref: `${mailboxHref(answer)}/folders`,
    parents,
    total: answer.folders.reduce((sum, folder) => sum + folder.total, 0),
    unread: answer.folders.reduce((sum, folder) => sum + folder.unread, 0),
  };
}

const isNotInbox = ({ special }: FolderSummary): boolean => special !== 'inbox';
const choiceOf = ({ name }: FolderSummary) => ({ value: name, label: name });

/** Where messages of a folder can go: the special folders are offered before they are there. */
function destinations(folders: readonly FolderSummary[], current: string) {
  const names = new Set([...folders.map(({ name }) => name), ...specialNames]);
  return [...names].filter((name) => name !== current).map((name) => ({ value: name, label: name }));
}

export function folderPage(
  mailbox: MailboxIdentity,
  answer: FolderPage,
  filters: FolderFilters,
  folders: readonly FolderSummary[],
  listPath: string,
) {
  const path = folderHref(mailbox, answer.folder.name);
  const { q = '', unread, flagged, order } = filters;
  return {
    ...answer,
    ...mailbox,
    ...folderLinks(mailbox, folders, answer.folder.name),
    items: answer.items.map((message) => ({
      ...message,
      who: whoOf(message, answer.folder),
      href:
        answer.folder.special === 'drafts'
          ? draftHref(mailbox, markOf(message.id).draftId)
          : `${path}/messages/${encode(message.id)}`,
    })),
    path,
    listPath,
    messagesHref: `${mailboxHref(mailbox)}/messages`,
    destinations: destinations(folders, answer.folder.name),
    deletesForGood: ['trash', 'junk'].includes(answer.folder.special ?? ''),
    // A search that did not look at all messages cannot stand for all that match.
    matching: answer.searchedAll ? writtenFilter(filters) || 'all=true' : null,
    filters: { q, unread, flagged, order, since: dayOf(filters.since), before: dayOf(filters.before) },
    filtered: q !== '' || [unread, flagged, filters.since, filters.before].some((value) => value !== undefined),
  };
}

/** Whom a message is from, or in folders of one's own mail whom it is to. */
function whoOf({ from, to }: MessageSummary, folder: FolderSummary): string {
  if (folder.special !== 'sent' && folder.special !== 'drafts') return nameOf(from);
  const shown = to.slice(0, 3).map(nameOf).join(', ');
  return shown === '' ? '' : `To ${shown}`;
}

function nameOf(person: DisplayAddress | null): string {
  if (person === null) return '';
  return person.name === '' ? person.address : person.name;
}

/** As `<input type="date">` has it. */
function dayOf(time: number | undefined): string {
  return time === undefined ? '' : new Date(time).toISOString().slice(0, 10);
}

export interface MessagePageInput {
  readonly view: MessageViewName;
  readonly remote?: boolean | undefined;
  readonly raw: RawHead | undefined;
  readonly folders: readonly FolderSummary[];
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
  const path = `${folder}/messages/${encode(message.id)}`;
  const { view } = input;
  const partHref = (part: string): string => `${path}/parts/${encode(part)}`;
  const parts = message.parts.map((part) => ({
    ...part,
    href: part.container ? null : partHref(part.part),
    download: part.container ? null : `${partHref(part.part)}?download=1`,
    name: part.filename ?? part.cid ?? part.contentType,
  }));
  return {
    ...message,
    ...mailbox,
    ...folderLinks(mailbox, input.folders, message.folder),
    folderHref: folder,
    messagesHref: `${mailboxHref(mailbox)}/messages`,
    destinations: destinations(input.folders, message.folder),
    deletesForGood: ['Trash', 'Junk'].includes(message.folder),
    path,
    editHref: message.folder === 'Drafts' ? draftHref(mailbox, markOf(message.id).draftId) : null,
    answersAll: message.to.length + message.cc.length > 1,
    view,
    tabs: messageViews
      .filter((name) => name !== 'html' || message.html !== null)
      .map((name) => ({ title: titles[name], href: `${path}?view=${name}`, current: name === view })),
    blocks: view === 'text' ? textBlocks((message.text ?? '').slice(0, maxTextShown)) : [],
    textCut: (message.text?.length ?? 0) > maxTextShown,
    parts,
    attachments: parts.filter((part) => part.attachment),
    remote: input.remote === true,
    htmlHref: `${path}/html${input.remote === true ? '?remote=1' : ''}`,
    raw: input.raw === undefined ? null : decodeCharset(input.raw.bytes).replaceAll('\r\n', '\n'),
    rawCut: input.raw?.cut ?? false,
    rawHref: `${path}?format=rfc822`,
  };
}

/** What the page shows when nothing was asked for. */
export function usualView(message: MessageView): MessageViewName {
  if (message.unparsed !== null) return 'raw';
  if (message.text !== null && message.text.trim() !== '') return 'text';
  return message.html === null ? 'text' : 'html';
}
