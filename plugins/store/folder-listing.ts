import { setImmediate } from 'node:timers/promises';
import { mapBounded } from './concurrency.js';
import { compareNewestFirst, isUnread, type MessageEntry, type OrderKey } from './folder-contents.js';
import type { MailboxFolder, MailboxFolders } from './mailbox-folder.js';
import type { MessageSummaries, MessageSummary } from './message-summaries.js';
import { type Page, pageOf } from './page.js';

/** Which messages. */
export interface MessageFilter {
  /** Words that all must occur in subject, sender, recipients or the first words; case does not matter. */
  readonly q?: string | undefined;
  readonly unread?: boolean | undefined;
  readonly flagged?: boolean | undefined;
  /** Received at or after / before, in milliseconds since 1970. */
  readonly since?: number | undefined;
  readonly before?: number | undefined;
}

export interface ListingRequest extends MessageFilter {
  readonly order: 'newest' | 'oldest';
  readonly limit: number;
  readonly cursor?: string | undefined;
}

export interface Listing extends Page<MessageSummary> {
  /** A search that stopped at its limit: older messages were not looked at. */
  readonly searchedAll: boolean;
}

/** Messages that one search reads at most. */
const maxSearched = 10_000;
const readsAtOnce = 16;

const oldestFirst = (a: OrderKey, b: OrderKey): number => compareNewestFirst(b, a);

/** One page of a folder. @throws Problem `not-found`, and `bad-request` for a cursor that is none */
export async function listFolder(
  folders: MailboxFolders,
  summaries: MessageSummaries,
  folder: MailboxFolder,
  request: ListingRequest,
): Promise<Listing> {
  const { found, searchedAll } = await matchingMessages(folders, summaries, folder, request);
  const newest = request.order === 'newest';
  const page = pageOf(newest ? found : found.toReversed(), request, newest ? compareNewestFirst : oldestFirst);
  return {
    ...page,
    items: await summaries.of(folder, page.items),
    searchedAll,
  };
}

export interface Matching {
  /** Newest first. */
  readonly found: readonly MessageEntry[];
  readonly searchedAll: boolean;
}

/** Every message that fits. @throws Problem `not-found` */
export async function matchingMessages(
  folders: MailboxFolders,
  summaries: MessageSummaries,
  folder: MailboxFolder,
  filter: MessageFilter,
): Promise<Matching> {
  const contents = await folders.contents(folder);
  const named = contents.entries.filter((entry) => passes(entry, filter));
  return search(summaries, folder, named, wordsOf(filter.q));
}

function passes(entry: MessageEntry, { unread, flagged, since, before }: MessageFilter): boolean {
  return (
    (unread === undefined || unread === isUnread(entry)) &&
    (flagged === undefined || flagged === entry.flags.includes('F')) &&
    (since === undefined || entry.receivedAt >= since) &&
    (before === undefined || entry.receivedAt < before)
  );
}

function wordsOf(q: string | undefined): readonly string[] {
  return (q ?? '')
    .normalize('NFC')
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
}

async function search(
  summaries: MessageSummaries,
  folder: MailboxFolder,
  entries: readonly MessageEntry[],
  words: readonly string[],
): Promise<Matching> {
  if (words.length === 0) return { found: entries, searchedAll: true };
  let looks = 0;
  const looked = await mapBounded(entries.slice(0, maxSearched), readsAtOnce, async (entry) => {
    // Summaries that are remembered need no turn of the event loop: others must get theirs.
    if (++looks % 500 === 0) await setImmediate();
    const summary = await summaries.one(folder, entry);
    return summary !== undefined && matches(summary, words) ? entry : undefined;
  });
  return { found: looked.filter((entry) => entry !== undefined), searchedAll: entries.length <= maxSearched };
}

function matches({ subject, from, to, snippet }: MessageSummary, words: readonly string[]): boolean {
  const people = [...(from === null ? [] : [from]), ...to].map(({ name, address }) => `${name} ${address}`);
  const text = [subject, snippet, ...people].join('\n').normalize('NFC').toLowerCase();
  return words.every((word) => text.includes(word));
}
