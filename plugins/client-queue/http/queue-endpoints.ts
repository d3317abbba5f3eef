import { Readable } from 'node:stream';
import { z } from 'zod';
import type { EntryFilter } from '../../../core/contracts/relay-queue.js';
import type { Entry } from '../../../core/contracts/queue-entry.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import type { Account } from '../../../core/contracts/accounts.js';
import { isProblem, problem } from '../../../core/problem.js';
import {
  EntryAnswer,
  entryAnswer,
  maxDestinations,
  StatisticsAnswer,
  statisticsAnswer,
  EntrySummaryAnswer,
  summaryAnswer,
} from './entry-answer.js';
import { headerOf } from '../delivery/outgoing-message.js';
import {
  entryPage,
  filterOf,
  listPage,
  QueueListQuery,
  statisticsPage,
  StatisticsQuery,
  UidParams,
} from './queue-page.js';
import { outboundGroup, type QueueDeps } from './client-deps.js';

/** Read-only endpoints of the queue. */
export function queueEndpoints(deps: QueueDeps): readonly AnyEndpoint[] {
  return [listing(deps), statistics(deps), oneEntry(deps), message(deps)];
}

function listing(deps: QueueDeps): AnyEndpoint {
  const { queue, clock, controls, sites } = deps;
  return defineEndpoint({
    method: 'GET',
    path: '/client/queue/list',
    summary: 'Mail that waits for other servers, filtered and sorted',
    group: outboundGroup,
    access: 'read',
    query: QueueListQuery,
    answer: z.object({
      items: z.array(EntrySummaryAnswer),
      total: z.int().describe('Entries that the filter leaves'),
      totalIsLeast: z.literal(true).optional().describe('There are more than `total`: they are not all counted'),
      page: z.int().nullable(),
      limit: z.int(),
      nextCursor: z.string().nullable(),
      prevCursor: z.string().nullable(),
      statistics: StatisticsAnswer,
    }),
    view: 'queue.njk',
    cache: 'no-store',
    async handle({ query, request }) {
      const { page, limit, cursor, sort, order, ...given } = query;
      const filter = filterOf(given);
      const place = cursor !== undefined ? { cursor } : page !== undefined ? { page } : {};
      const isPage = request.representation === 'html';
      const now = clock.now();
      const [list, counted, matching] = await Promise.all([
        queue.list({ filter, limit, sort, order, ...place }),
        queue.statistics(now),
        isPage ? matchingStatistics(deps, filter).catch(undefinedWhenSlow) : undefined,
      ]);
      const answer = {
        items: list.items.map(summaryAnswer),
        ...(typeof list.total === 'number'
          ? { total: list.total }
          : { total: list.total.least, totalIsLeast: true as const }),
        page: cursor === undefined ? (page ?? 1) : null,
        limit,
        nextCursor: list.nextCursor,
        prevCursor: list.prevCursor,
        statistics: statisticsAnswer(counted, sites, isPage ? maxDestinations.page : maxDestinations.list),
      };
      if (!isPage) return answer;
      return listPage(answer, {
        filter,
        sort,
        order,
        listPath: request.listPath,
        controls: controls.list(),
        siteOf: (destination) => sites.peek(destination),
        now,
        complaint: queue.complaint(),
        matching,
      });
    },
  });
}

/** Figures of what a filter matches, for a page; undefined without a filter. */
async function matchingStatistics({ queue, clock, sites }: QueueDeps, filter: EntryFilter) {
  if (Object.keys(filter).length === 0) return undefined;
  return statisticsAnswer(await queue.statistics(clock.now(), filter), sites, maxDestinations.page);
}

/** The list is shown all the same, with the figures of the whole queue. */
function undefinedWhenSlow(error: unknown): undefined {
  if (!isProblem(error) || error.problem !== 'unavailable') throw error;
}

function statistics(deps: QueueDeps): AnyEndpoint {
  const { queue, clock, controls, sites } = deps;
  return defineEndpoint({
    method: 'GET',
    path: '/client/queue/statistics',
    summary: 'Queue by state, by destination and age, by sender and by reason; with a filter, of what it matches',
    group: outboundGroup,
    access: 'read',
    query: StatisticsQuery,
    answer: StatisticsAnswer,
    view: 'statistics.njk',
    cache: 'no-store',
    async handle({ query, request }) {
      const now = clock.now();
      const filter = filterOf(query);
      if (request.representation !== 'html') {
        const isFiltered = Object.keys(filter).length > 0;
        const counted = await queue.statistics(now, isFiltered ? filter : undefined);
        return statisticsAnswer(counted, sites, maxDestinations.statistics);
      }
      const [whole, matching] = await Promise.all([queue.statistics(now), matchingStatistics(deps, filter)]);
      const about = { now, complaint: queue.complaint(), filter, matching };
      return statisticsPage(statisticsAnswer(whole, sites, maxDestinations.page), controls.list(), about);
    },
  });
}

const oneEntry = ({ queue, quarantineNote }: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/queue/{uid}',
    conditions: ['If-None-Match'],
    summary: 'One entry: envelope, state of each recipient, every attempt',
    group: outboundGroup,
    access: 'read',
    params: UidParams,
    answer: EntryAnswer,
    view: 'entry.njk',
    cache: 'no-store',
    async handle({ params: { uid }, request }) {
      const entry = await existingEntry(uid, queue, quarantineNote);
      const answer = entryAnswer(entry);
      if (request.representation !== 'html') return respond({ model: answer, etag: entry.version });
      const header = mayReadMail(request.account) && entry.hasMessage ? await headerOf(await queue.open(uid)) : [];
      return respond<object>({ model: entryPage(answer, header, mayReadMail(request.account)), etag: entry.version });
    },
  });

const message = ({ queue, quarantineNote }: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/queue/{uid}/message',
    summary: 'The message of an entry as sent',
    group: outboundGroup,
    access: 'operate',
    params: UidParams,
    produces: ['bytes'],
    cache: 'no-store',
    async handle({ params: { uid } }) {
      const entry = await existingEntry(uid, queue, quarantineNote);
      if (!entry.hasMessage)
        throw problem('not-found', 'The message of this entry has been removed: all its recipients are settled.');
      const source = await queue.open(uid);
      return respond({
        stream: { source: source instanceof Readable ? source : Readable.from(source), contentType: 'message/rfc822' },
        headers: { 'Content-Disposition': `attachment; filename="${uid}.eml"` },
        audit: { action: 'queue.read message', selector: { uid } },
      });
    },
  });

/** @throws Problem `not-found` */
export async function existingEntry(
  uid: string,
  queue: QueueDeps['queue'],
  quarantineNote: QueueDeps['quarantineNote'],
): Promise<Entry> {
  const entry = await queue.find(uid);
  if (entry === undefined)
    throw problem(
      'not-found',
      (await quarantineNote(uid)) ?? 'The queue has no such entry, or it is finished and forgotten.',
    );
  return entry;
}

const mayReadMail = (account: Account | null): boolean => account?.role === 'operate' || account?.role === 'admin';
