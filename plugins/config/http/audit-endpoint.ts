import { z } from 'zod';
import {
  type AuditEntry,
  type AuditPage,
  type AuditQuery,
  type AuditReader,
  requestedPath,
} from '../../../core/contracts/http-records.js';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';
import { parseTime } from '../../../core/text/format.js';
import { auditWords } from '../audit-words.js';
import { isProblem, problem } from '../../../core/problem.js';
import { isFileCursor, readAudit } from '../audit-trail.js';

const word = (what: string) => z.string().trim().max(200).optional().describe(what);
const time = (what: string) =>
  z
    .string()
    .max(40)
    .refine((text) => !Number.isNaN(parseTime(text)), 'must be a time such as 2026-11-21T12:00:00Z')
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
  node: word('Name of a server of the cluster.'),
  action: word('Part of what was done, in the words of the endpoint.'),
  result: z
    .enum(['done', 'refused', 'all'])
    .default('done')
    .describe('Changes that were carried out, those that were refused, or both.'),
  since: time('Only from then on.'),
  until: time('Only before then.'),
  limit: z.int().min(1).max(1000).default(50).describe('Entries of one page.'),
  cursor: z.string().max(100).optional().describe('As an earlier answer gave it.'),
});

const Entry = z.object({
  at: z.string(),
  by: z.string().nullable().describe('The account, or null when nobody had signed in.'),
  from: z.string(),
  via: z.string().optional().describe('The node that the account had asked, where another one has done it.'),
  requestId: z.string(),
  method: z.string(),
  route: z.string(),
  params: z.record(z.string(), z.unknown()),
  status: z.int().describe('What was answered.'),
  action: z.string().optional(),
  selector: z.unknown().optional(),
  counts: z.record(z.string(), z.number()).optional(),
  node: z.string().optional().describe('The server of a cluster that it was made at.'),
});

/** What an answer was read from: the database of a cluster, or the files of this server. */
type Source = 'cluster' | 'server';
type SourcedPage = AuditPage & { readonly source: Source };

/**
 * Changes over HTTP, with their accounts.
 *
 * @param folder of this server's audit log, which is read without a reader, or while that is unavailable
 */
export function auditEndpoint(folder: string, reader?: AuditReader): AnyEndpoint {
  const readFiles = async (query: AuditQuery): Promise<SourcedPage> => {
    if (reader !== undefined && query.node !== undefined && query.node !== reader.node)
      throw problem('unavailable', `The database is away, and here are only the files of ${reader.node}.`);
    const page = await readAudit(folder, { ...query, ...(reader !== undefined && { node: undefined }) });
    const items = page.items.map((item) => ({ ...item, ...(reader !== undefined && { node: reader.node }) }));
    return { ...page, items, source: 'server' };
  };
  const read = async (query: AuditQuery): Promise<SourcedPage> => {
    const { cursor } = query;
    if (reader === undefined || (cursor !== undefined && isFileCursor(cursor))) return readFiles(query);
    try {
      return { ...(await reader.read(query)), source: 'cluster' };
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'unavailable' || cursor !== undefined) throw error;
      return readFiles(query);
    }
  };
  return defineEndpoint({
    method: 'GET',
    path: '/audit',
    summary: 'Changes over HTTP and by reloads: who, from where, what, how many',
    group: 'Configuration',
    access: 'admin',
    query: Query,
    answer: z.object({
      items: z.array(Entry),
      total: z.int().nullable().describe('All that fit, on every page; null when the log is too long to count.'),
      limit: z.int(),
      nextCursor: z.string().nullable(),
      source: z
        .enum(['cluster', 'server'])
        .describe('cluster: all its servers; server: the files of this one, also while the database is away.'),
    }),
    problems: ['unavailable'],
    view: 'audit.njk',
    cache: 'no-store',
    page: (model: SourcedPage, { query, request }) => ({
      ...model,
      node: reader?.node,
      items: model.items.map(rowOf),
      query,
      filtered: Object.entries(query).some(
        ([name, value]) => name !== 'limit' && value !== undefined && value !== 'done',
      ),
      results: [
        { value: 'done', label: 'done' },
        { value: 'refused', label: 'refused' },
        { value: 'all', label: 'both' },
      ],
      methods: [{ value: '', label: 'any' }, ...methods.map((method) => ({ value: method, label: method }))],
      listPath: request.listPath,
    }),
    handle: ({ query: { result, ...query } }) => read({ ...query, ...(result !== 'all' && { result }) }),
  });
}

const rowOf = (entry: AuditEntry) => ({
  ...entry,
  path: requestedPath(entry),
  words: auditWords(entry),
  isDone: entry.status < 400,
  tone: entry.status < 400 ? 'good' : entry.status < 500 ? 'warn' : 'bad',
  details: detailsOf(entry),
});

/** What the sentence leaves out, as names and values. */
function detailsOf({ selector, counts, requestId, method, via }: AuditEntry) {
  const fields =
    typeof selector === 'object' && selector !== null && !Array.isArray(selector)
      ? Object.entries(selector)
      : selector === undefined
        ? []
        : [['for', selector] as const];
  const shown = [...fields, ...Object.entries(counts ?? {})].map(([label, value]: readonly [string, unknown]) => ({
    label,
    value: (typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).slice(0, maxDetail),
  }));
  const through = via === undefined ? [] : [{ label: 'via', value: via }];
  return [...shown, ...through, { label: method === 'LOCAL' ? 'reload' : 'request', value: requestId, code: true }];
}

/** Characters of a value. */
const maxDetail = 1000;
