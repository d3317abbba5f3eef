import { z } from 'zod';
import type { FoundMail, FoundMessage, MailSearch } from '../../../core/contracts/mail-search.js';
import type { Catalogue } from '../../../core/contracts/server.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import type { Finder } from '../finder.js';
import { type FoundGroup, groupNames, type SearchGroups } from '../search-groups.js';

/** Time for mail before the page comes; htmx or a link continues. Milliseconds. */
const firstWaitMs = 400;
/** Seconds that one request may wait for mail. */
const maxWaitSeconds = 10;
/** Requests by which a page completes itself. */
const maxPolls = 60;

const Item = z.object({
  title: z.string(),
  href: z.string(),
  detail: z.string(),
  at: z.iso.datetime().nullable(),
  states: z.array(z.string()),
  also: z.object({ title: z.string(), href: z.string() }).nullable().describe('A second page about it.'),
});
const Message = z.object({
  mailbox: z.string(),
  folder: z.string(),
  id: z.string(),
  href: z.string(),
  subject: z.string(),
  marks: z.array(z.tuple([z.int(), z.int()])).describe('Start and end of the words in the subject, in UTF-16 units.'),
  from: z.object({ name: z.string(), address: z.string() }).nullable(),
  receivedAt: z.iso.datetime(),
});
const Answer = z.object({
  q: z.string(),
  mail: z
    .object({
      items: z.array(Message),
      total: z.int().describe('Matches found so far.'),
      mailboxes: z.int(),
      node: z.string().nullable().describe('The only one whose mailboxes were searched, where nodes divide them.'),
      searched: z.int().describe('Mailboxes that were searched completely; ask again for the rest.'),
    })
    .nullable()
    .describe('Null for accounts that may not read mail.'),
  groups: z.array(
    z.object({
      name: z.enum(groupNames),
      title: z.string(),
      items: z.array(Item),
      total: z.int().nullable(),
      more: z.string().nullable().describe('Page with all of them.'),
    }),
  ),
});

export interface SearchRouteDeps {
  readonly catalogue: Catalogue;
  readonly finder: Finder;
  readonly mail: MailSearch | undefined;
  readonly groups: SearchGroups;
}

interface SearchModel {
  readonly q: string;
  readonly mail: (FoundMail & { readonly node: string | null }) | null;
  readonly groups: readonly FoundGroup[];
}

export const searchEndpoint = (deps: SearchRouteDeps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/search',
    success: [200, 303],
    summary: 'Search everywhere: mail of all mailboxes, traces, the queue, users, settings and pages',
    group: 'Service',
    access: 'read',
    problems: ['unavailable'],
    query: z.strictObject({
      q: z.string().max(998).default('').describe('Words, an address, a Message-ID or the uid of a queue entry.'),
      group: z
        .enum(['mail', ...groupNames])
        .optional()
        .describe('Only this group.'),
      limit: z.int().min(1).max(100).default(10).describe('Results of each group.'),
      wait: z.int().min(0).max(maxWaitSeconds).optional().describe('Seconds to wait for mail that was never read.'),
      poll: z
        .int()
        .min(0)
        .max(maxPolls)
        .default(0)
        .describe('Number of requests by which a page has completed itself.'),
    }),
    answer: Answer,
    view: 'search.njk',
    cache: 'no-store',
    page: (model: SearchModel, { query, request }) => {
      const mayReadLog = deps.catalogue.mayOpen(request.account, '/logs');
      return searchPage(model, query, mayReadLog);
    },
    handle: async ({ query, request }) => {
      const { group, limit, wait } = query;
      const q = query.q.trim();
      const mayOpen = (path: string): boolean => deps.catalogue.mayOpen(request.account, path);
      if (q === '') return { q, mail: null, groups: [] };
      const exact = request.representation === 'html' && group === undefined ? await deps.finder.exact(q) : undefined;
      if (exact !== undefined && mayOpen(exact.href)) {
        return respond({ model: { q, mail: null, groups: [] }, status: 303, headers: { Location: exact.href } });
      }
      const timeoutMs = wait === undefined ? firstWaitMs : wait * 1000;
      const isMailWanted = (group === undefined || group === 'mail') && mayOpen('/store');
      const [mail, groups] = await Promise.all([
        isMailWanted ? deps.mail?.search({ q, limit, timeoutMs, mayOpen }) : undefined,
        group === 'mail' ? [] : deps.groups.find(q, { limit, mayOpen }, group),
      ]);
      return { q, mail: mail === undefined ? null : { ...mail, node: deps.mail?.node ?? null }, groups };
    },
  });

interface SearchQuery {
  readonly group?: string | undefined;
  readonly limit: number;
  readonly poll: number;
}

function searchPage({ q, mail, groups }: SearchModel, { group, limit, poll }: SearchQuery, mayReadLog: boolean) {
  const path = `/search?q=${encodeURIComponent(q)}`;
  const rest = `${path}&group=mail&limit=${limit}`;
  const isComplete = mail === null || mail.searched === mail.mailboxes;
  return {
    q,
    find: q,
    mail: mail === null ? null : { ...mail, isComplete, items: mail.items.map(messageRow) },
    groups: groups.filter(({ items }) => items.length > 0),
    isEmpty: (mail === null || mail.total === 0) && groups.every(({ items }) => items.length === 0),
    searched: [
      ...(mail === null ? [] : [mail.node === null ? 'Mail' : `Mail on ${mail.node}`]),
      ...groups.map(({ title }) => title),
    ],
    group: group ?? null,
    limit,
    all: path,
    moreMail: mail !== null && mail.total > mail.items.length && limit < 100 ? `${path}&group=mail&limit=100` : null,
    restHref: `${path}${group === undefined ? '' : `&group=${group}`}&limit=${limit}&wait=${maxWaitSeconds}`,
    pollHref: isComplete || poll >= maxPolls ? null : `${rest}&wait=2&poll=${poll + 1}`,
    // Quoted, since spaces would separate words.
    log: mayReadLog ? `/logs?q=${encodeURIComponent(/\s/.test(q) && !q.includes('"') ? `"${q}"` : q)}` : null,
  };
}

function messageRow({ subject, marks, from, ...message }: FoundMessage) {
  const pieces: { readonly text: string; readonly marked: boolean }[] = [];
  let at = 0;
  for (const [start, end] of marks) {
    pieces.push({ text: subject.slice(at, start), marked: false }, { text: subject.slice(start, end), marked: true });
    at = end;
  }
  pieces.push({ text: subject.slice(at), marked: false });
  const who = from === null ? '' : from.name === '' ? from.address : from.name;
  return { ...message, subject, pieces: pieces.filter(({ text }) => text !== ''), who, address: from?.address ?? '' };
}
