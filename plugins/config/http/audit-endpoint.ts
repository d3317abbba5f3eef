import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';
import { pathOf, readAudit, type AuditEntry, type AuditPage } from '../audit-trail.js';

const word = (what: string) => z.string().trim().max(200).optional().describe(what);
const time = (what: string) =>
  z
    .string()
    .max(40)
    .refine((text) => !Number.isNaN(Date.parse(text)), 'must be a time such as 2026-11-21T12:00:00Z')
    .optional()
    .describe(what);
const methods = ['POST', 'PUT', 'PATCH', 'DELETE', 'LOCAL'] as const;

const Query = z.strictObject({
  who: word('Part of the account name.'),
  from: word('Part of the address that the request came from.'),
  method: z
    .enum(methods)
    .optional()
    .describe('The HTTP method; LOCAL is what did not come over HTTP: SIGHUP, the file watch, sync.'),
  path: word('Part of the path.'),
  action: word('Part of what was done, in the words of the endpoint.'),
  since: time('Only from then on.'),
  until: time('Only before then.'),
  limit: z.int().min(1).max(1000).default(50).describe('Entries of one page.'),
  cursor: z.string().max(100).optional().describe('As an earlier answer gave it.'),
});

const Entry = z.object({
  at: z.string(),
  by: z.string().nullable().describe('The account, or null when nobody had signed in.'),
  from: z.string(),
  requestId: z.string(),
  method: z.string(),
  route: z.string(),
  params: z.record(z.string(), z.unknown()),
  status: z.int().describe('What was answered.'),
  action: z.string().optional(),
  selector: z.unknown().optional(),
  counts: z.record(z.string(), z.number()).optional(),
});

/** Changes over HTTP, with their accounts. */
export function auditEndpoint(folder: string): AnyEndpoint {
  return defineEndpoint({
    method: 'GET',
    path: '/audit',
    summary: 'Changes over HTTP and by reloads: who, from where, what, how many',
    group: 'Configuration',
    access: 'admin',
    query: Query,
    answer: z.object({
      items: z.array(Entry),
      total: z
        .int()
        .nullable()
        .describe('All that fit, on every page; null when the log has more than 16 MiB to count.'),
      limit: z.int(),
      nextCursor: z.string().nullable(),
    }),
    view: 'audit.njk',
    cache: 'no-store',
    page: (model: AuditPage, { query, request }) => ({
      ...model,
      items: model.items.map(rowOf),
      query,
      filtered: Object.entries(query).some(([name, value]) => name !== 'limit' && value !== undefined),
      methods: [{ value: '', label: 'any' }, ...methods.map((method) => ({ value: method, label: method }))],
      listPath: request.listPath,
    }),
    handle: ({ query }) => readAudit(folder, query),
  });
}

const rowOf = (entry: AuditEntry) => ({
  ...entry,
  path: pathOf(entry),
  tone: entry.status < 400 ? 'good' : entry.status < 500 ? 'warn' : 'bad',
  counted: Object.entries(entry.counts ?? {}).map(([name, count]) => `${name} ${count}`),
  selected: entry.selector === undefined ? '' : JSON.stringify(entry.selector),
});
