import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';
import type { HostState } from '../upstream.js';
import type { UpstreamCounts } from '../upstream-counts.js';
import type { UpstreamRegistry } from '../upstream-target.js';
import type { Candidate, ProxyRule, RuleBook } from './rule.js';

export interface ProxyDeps {
  readonly book: () => RuleBook;
  readonly upstreams: Pick<UpstreamRegistry, 'get'>;
  readonly counts: Pick<UpstreamCounts, 'of'>;
}

const text = z.string().max(1000);

const Query = z.object({
  ip: text.optional().describe('Address of a client'),
  ehlo: text.optional().describe('Its name'),
  mail: text.optional().describe('Sender; empty for the null reverse-path'),
  rcpt: text.optional().describe('Recipient. Given, the rules are tested.'),
  direction: z.enum(['in', 'out']).optional().describe('`out`: the client has signed in. In when absent.'),
});

const Host = z.object({
  host: z.string(),
  port: z.int(),
  state: z.enum(['closed', 'open', 'half-open']).describe('Of the breaker; `open`: passed over'),
  why: z.string().nullable(),
  retryAfter: z.int().describe('Seconds'),
});

const Rule = z.object({
  name: z.string(),
  ip: z.string().nullable(),
  ehlo: z.string().nullable(),
  mail: z.string().nullable(),
  rcpt: z.string().nullable(),
  direction: z.string(),
  protocol: z.string(),
  tls: z.string(),
  recipients: z.string(),
  split: z.string(),
  xclient: z.boolean(),
  signsIn: z.boolean(),
  hosts: z.array(Host),
  counts: z.object({
    matched: z.int(),
    accepted: z.int(),
    refused: z.int(),
    deferred: z.int(),
    spooled: z.int(),
    messages: z.int(),
    bytes: z.int(),
  }),
});

const Test = z.object({
  rule: z.string().nullable().describe('That takes it; null: no rule does'),
  steps: z.array(z.object({ rule: z.string(), matches: z.boolean(), why: z.array(z.string()) })),
});

/** The rules with their counters, and a test of them. */
export function proxyEndpoints(deps: ProxyDeps): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: '/proxy',
      summary: 'Proxy rules with their counts and servers, and which rule matches a mail',
      group: 'Proxy',
      access: 'read',
      query: Query,
      answer: z.object({ rules: z.array(Rule), test: Test.nullable() }),
      view: 'proxy.njk',
      cache: 'no-store',
      handle({ query, request }) {
        const book = deps.book();
        const rules = book.rules.map((rule) => ruleAnswer(rule, deps));
        const test = query.rcpt === undefined || query.rcpt === '' ? null : book.test(candidateOf(query));
        return request.representation === 'html' ? { rules, test, asked: query } : { rules, test };
      },
    }),
  ];
}

function candidateOf(query: z.output<typeof Query>): Candidate {
  const { ip = '', ehlo = '', mail = '', rcpt = '', direction = 'in' } = query;
  return { ip: ip.trim(), ehlo: ehlo.trim(), mail: bare(mail), rcpt: bare(rcpt), direction };
}

const bare = (path: string): string => path.trim().replace(/^<(.*)>$/s, '$1');

function ruleAnswer({ name, settings }: ProxyRule, { upstreams, counts }: ProxyDeps) {
  const { ip = null, ehlo = null, mail = null, rcpt = null, direction, protocol, tls, recipients, split } = settings;
  const hosts: readonly HostState[] = upstreams.get(name)?.states() ?? [];
  const how = { direction, protocol, tls, recipients, split, xclient: settings.xclient };
  return { name, ip, ehlo, mail, rcpt, ...how, signsIn: settings.auth !== undefined, hosts, counts: counts.of(name) };
}
