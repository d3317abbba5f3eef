import { Readable } from 'node:stream';
import { z } from 'zod';
import type { Entry } from '../../../core/contracts/queue-entry.js';
import { type Account, type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import {
  EntryAnswer,
  entryAnswer,
  maxDestinations,
  StatisticsAnswer,
  statisticsAnswer,
  SummaryAnswer,
  summaryAnswer,
} from './entry-answer.js';
import { headerOf } from '../delivery/outgoing-message.js';
import { entryPage, filterOf, listPage, ListQuery, statisticsPage, UidParams } from './queue-page.js';
import { group, type QueueDeps } from './client-deps.js';

/** Read-only endpoints of the queue. */
export function queueEndpoints(deps: QueueDeps): readonly AnyEndpoint[] {
  return [listing(deps), statistics(deps), oneEntry(deps), message(deps)];
}

const listing = ({ queue, clock, controls, sites }: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/queue/list',
    summary: 'Mail that waits for other servers, filtered and sorted',
    group,
    access: 'read',
    query: ListQuery,
    answer: z.object({
      items: z.array(SummaryAnswer),
      total: z.int().describe('Entries that the filter leaves'),
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
      const [list, counted] = await Promise.all([
        queue.list({ filter, limit, sort, order, ...place }),
        queue.statistics(clock.now()),
      ]);
      const isPage = request.representation === 'html';
      const answer = {
        items: list.items.map(summaryAnswer),
        total: list.total,
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
        now: clock.now(),
        damage: queue.complaint?.(),
      });
    },
  });

const statistics = ({ queue, clock, controls, sites }: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/queue/statistics',
    summary: 'Queue by state, by destination and age, and by reason',
    group,
    access: 'read',
    answer: StatisticsAnswer,
    view: 'statistics.njk',
    cache: 'no-store',
    async handle({ request }) {
      const now = clock.now();
      const counted = await queue.statistics(now);
      if (request.representation !== 'html') return statisticsAnswer(counted, sites, maxDestinations.statistics);
      const about = { now, damage: queue.complaint?.() };
      return statisticsPage(statisticsAnswer(counted, sites, maxDestinations.page), controls.list(), about);
    },
  });

const oneEntry = ({ queue, quarantineNote }: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/queue/{uid}',
    conditions: ['If-None-Match'],
    summary: 'One entry: envelope, state of each recipient, every attempt',
    group,
    access: 'read',
    params: UidParams,
    answer: EntryAnswer,
    view: 'entry.njk',
    cache: 'no-store',
    async handle({ params: { uid }, request }) {
      const entry = await entryOf(uid, queue, quarantineNote);
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
    group,
    access: 'operate',
    params: UidParams,
    produces: ['bytes'],
    cache: 'no-store',
    async handle({ params: { uid } }) {
      const entry = await entryOf(uid, queue, quarantineNote);
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

async function entryOf(
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
