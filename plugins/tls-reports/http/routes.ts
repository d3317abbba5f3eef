import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';
import type { StoredReport } from '../reader.js';

const Report = z.object({
  id: z.string(),
  submitter: z.string().describe('Domain whose signature the report has.'),
  organization: z.string().describe('As it calls itself.'),
  domain: z.string().describe('The local domain.'),
  from: z.iso.datetime(),
  to: z.iso.datetime(),
  receivedAt: z.iso.datetime(),
  succeeded: z.int().describe('Sessions under TLS as the policy of the domain demands.'),
  failed: z.int(),
  failures: z
    .array(z.object({ result: z.string(), host: z.string(), reason: z.string(), count: z.int() }))
    .describe('The most frequent kinds (RFC 8460 §4.3).'),
});

/** All reports fit on one page: their number is bounded. */
export const reportsEndpoint = (reports: () => readonly StoredReport[]): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/tls-reports',
    summary: 'What other servers report about TLS of their connections to this one, newest first',
    group: 'TLS',
    access: 'read',
    query: z.strictObject({
      failed: z.boolean().default(false).describe('Only reports of failures.'),
    }),
    answer: z.object({ items: z.array(Report), total: z.int() }),
    view: 'tls-reports.njk',
    cache: 'no-store',
    page: (model: object, { query }) => ({ ...model, onlyFailed: query.failed }),
    handle: ({ query }) => {
      const all = reports();
      const items = query.failed ? all.filter(({ failed }) => failed > 0) : all;
      return { items: [...items], total: all.length };
    },
  });
