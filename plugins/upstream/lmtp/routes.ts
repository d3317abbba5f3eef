import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';
import type { HostState } from '../upstream.js';
import type { UpstreamCounts } from '../upstream-counts.js';
import type { UpstreamRegistry } from '../upstream-target.js';
import type { LmtpRoute, LmtpRoutes } from './lmtp-hook.js';

export interface LmtpDeps {
  readonly table: () => LmtpRoutes;
  readonly upstreams: Pick<UpstreamRegistry, 'get'>;
  readonly counts: Pick<UpstreamCounts, 'of'>;
}

const Route = z.object({
  name: z.string(),
  domains: z.array(z.string()),
  users: z.array(z.string()),
  verify: z.string(),
  tls: z.string(),
  signsIn: z.boolean(),
  hosts: z.array(
    z.object({
      host: z.string(),
      port: z.int(),
      state: z.enum(['closed', 'open', 'half-open']).describe('Of the breaker; `open`: passed over'),
      why: z.string().nullable(),
      retryAfter: z.int().describe('Seconds'),
    }),
  ),
  counts: z.object({
    matched: z.int(),
    accepted: z.int(),
    refused: z.int(),
    deferred: z.int(),
    messages: z.int(),
    bytes: z.int(),
  }),
});

/** The routes with their counters and servers. */
export function lmtpEndpoints(deps: LmtpDeps): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: '/lmtp',
      summary: 'Domains and users whose mailboxes are on LMTP servers, with counts',
      group: 'Proxy',
      access: 'read',
      answer: z.object({ routes: z.array(Route) }),
      view: 'lmtp.njk',
      cache: 'no-store',
      handle: () => ({ routes: deps.table().routes.map((route) => routeAnswer(route, deps)) }),
    }),
  ];
}

function routeAnswer({ name, settings }: LmtpRoute, { upstreams, counts }: LmtpDeps) {
  const { domains, users, verify, tls, auth } = settings;
  const hosts: readonly HostState[] = upstreams.get(name)?.states() ?? [];
  const { matched, accepted, refused, deferred, messages, bytes } = counts.of(name);
  const counted = { matched, accepted, refused, deferred, messages, bytes };
  return { name, domains, users, verify, tls, signsIn: auth !== undefined, hosts, counts: counted };
}
