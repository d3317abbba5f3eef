import { openStates } from '../../../core/contracts/queue-entry.js';
import type { EntryFilter, Selector } from '../../../core/contracts/queue-list.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue.js';
import { pluralize } from '../../../core/text/format.js';
import { problem } from '../../../core/problem.js';
import { mostSelected } from './queue-query.js';

export interface Selection {
  readonly uid?: string | undefined;
  readonly uids?: readonly string[] | undefined;
  readonly filter?: EntryFilter | undefined;
  readonly expect?: number | undefined;
}

/** What a caller has chosen, and how many entries that is. */
export interface Chosen {
  readonly selector: Selector;
  readonly count: number;
}

/**
 * @param isExpected of a version; for one entry
 * @throws Problem `invalid` unless exactly one selector is given, `too-large`, `conflict` when the number is not as expected
 */
export async function chosenBy(
  { uid, uids, filter, expect }: Selection,
  queue: RelayQueue,
  isExpected?: (version: string) => boolean,
): Promise<Chosen> {
  const given = [uid, uids, filter].filter((value) => value !== undefined).length;
  if (given !== 1) {
    const detail = given === 0 ? 'Nothing is chosen: give uid, uids or filter.' : 'Give one of uid, uids and filter.';
    throw problem('invalid', { detail, errors: [{ pointer: '', message: detail }] });
  }
  if (uids !== undefined && uids.length > mostSelected)
    throw problem('too-large', `One call takes at most ${mostSelected} uids. Choose by filter.`);
  const selector = filter === undefined ? { uids: [...new Set(uids ?? [uid ?? ''])], isExpected } : { filter, expect };
  if (isExpected !== undefined && (!('uids' in selector) || selector.uids.length > 1))
    throw problem('bad-request', 'If-Match holds for one entry: choose it by its uid.');
  const count = 'filter' in selector ? await queue.count(selector.filter) : selector.uids.length;
  if (expect !== undefined && expect !== count)
    throw problem(
      'conflict',
      `The selection has ${pluralize(count, 'entry', 'entries')} now, not ${expect}. Look at the list again.`,
    );
  return { selector, count };
}

/** Entries that are looked at one by one. */
const mostLookedAt = 50;

/** Where the chosen ones go; undefined when that is too much to look at. */
export async function destinationsOf({ selector }: Chosen, queue: RelayQueue): Promise<readonly string[] | undefined> {
  if ('filter' in selector) {
    const { destination } = selector.filter;
    return destination === undefined ? undefined : [destination.toLowerCase()];
  }
  if (selector.uids.length > mostLookedAt) return undefined;
  const entries = await Promise.all(selector.uids.map((uid) => queue.find(uid)));
  const open = entries.flatMap((entry) => entry?.recipients.filter(({ state }) => isOpen(state)) ?? []);
  return [...new Set(open.map(({ destination }) => destination))];
}

/** Some of the chosen ones and who sent them, to be looked at before anything is done. */
export async function previewOf({ selector }: Chosen, queue: RelayQueue) {
  if ('filter' in selector) return (await queue.list({ filter: selector.filter, limit: 10 })).items;
  const entries = await Promise.all(selector.uids.slice(0, 10).map((uid) => queue.find(uid)));
  return entries.filter((entry) => entry !== undefined);
}

export const isOpen = (state: string): boolean => (openStates as readonly string[]).includes(state);
