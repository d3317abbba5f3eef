import { z } from 'zod';
import type { QueueStatistics } from '../../../core/contracts/relay-queue.js';
import {
  type AnyEndpoint,
  defineEndpoint,
  type EndpointRequest,
  respond,
  type Response,
} from '../../../core/http/endpoint.js';
import { tlsaText, usableTlsa } from '../../../core/net/tlsa.js';
import { problem } from '../../../core/problem.js';
import type { DestinationControl, RecordedControl } from '../delivery/destination-controls.js';
import { isSite, parseDestination, routeKey, siteLabel, spelledDestination } from '../delivery/destination.js';
import type { KeptPolicy } from '../mta-sts/policy.js';
import { endOf } from '../mta-sts/sts-policies.js';
import { TimeSlice } from '../../../core/concurrency.js';
import { isoTime, replyAnswer } from './entry-answer.js';
import { outboundGroup, type QueueDeps, type SendingDeps } from './client-deps.js';

/** A site's name consists of all its servers. */
const name = z.string().min(1).max(2000);

const Params = z.object({
  domain: name.describe('A domain, [literal], route:NAME, or site:NAME for all with the same servers.'),
});

const count = z
  .union([z.literal(''), z.null(), z.int().min(0).max(10_000)], 'must be a whole number from 0 to 10,000, or empty')
  .optional();

const Body = z.strictObject({
  suspendedUntil: z
    .union([z.literal(''), z.null(), z.iso.datetime({ offset: true })])
    .optional()
    .describe('Nothing is sent there until then; null resumes.'),
  suspendFor: z
    .union([
      z.enum(['', 'ever']),
      z
        .int()
        .min(0)
        .max(366 * 86_400),
    ])
    .optional()
    .describe('The same in seconds from now, 0 resumes; or ever.'),
  reason: z.string().max(500).nullable().optional(),
  maxConnections: count.describe('At a time; null for what is configured.'),
  ratePerMinute: count.describe('Messages in a minute; null for what is configured.'),
});

/** Destinations, each of which can be suspended and limited. */
export function destinationEndpoints(deps: DestinationDeps): readonly AnyEndpoint[] {
  return [listing(deps), naming(deps), reading(deps), changing(deps), clearing(deps)];
}

const path = '/client/destinations/{domain}';

const listing = (deps: QueueDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/destinations',
    summary: 'Destinations with waiting mail, and destinations and sites that are suspended or limited',
    group: outboundGroup,
    access: 'read',
    answer: z.object({
      items: z.array(WaitingAnswer),
      total: z.int(),
      limit: z.int(),
      nextCursor: z.string().nullable(),
      prevCursor: z.string().nullable(),
    }),
    view: 'destinations.njk',
    cache: 'no-store',
    async handle({ request }) {
      const found = await waitingDestinations(deps);
      const isPage = request.representation === 'html';
      const items = isPage ? found.map((one) => ({ ...one, siteLabel: siteLabel(one.site, one.destination) })) : found;
      return { items: [...items], total: items.length, limit: items.length, nextCursor: null, prevCursor: null };
    },
  });

const naming = (deps: QueueDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/client/destinations',
    summary: 'Suspend or limit a destination or site from the body, also before mail waits for it',
    group: outboundGroup,
    access: 'operate',
    body: { kind: 'fields', schema: Body.extend({ destination: name }) },
    answer: ControlAnswer,
    cache: 'no-store',
    handle: ({ body: { destination, ...body }, request }) => change(deps, destination, body, request),
  });

const reading = (deps: DestinationDeps) =>
  defineEndpoint({
    method: 'GET',
    path,
    summary: 'One destination or site: what waits for it, whether it is suspended, its limits',
    group: outboundGroup,
    access: 'read',
    params: Params,
    answer: DestinationAnswer,
    view: 'destination.njk',
    cache: 'no-store',
    async handle({ params: { domain }, request }) {
      const found = await oneDestination(spelledDestination(domain), deps);
      if (found === undefined)
        throw problem('not-found', 'No mail waits for that destination, and nothing was said of it.');
      return request.representation === 'html' ? destinationPage(found) : found;
    },
  });

const changing = (deps: QueueDeps) =>
  defineEndpoint({
    method: 'PUT',
    path,
    summary: 'Suspend, resume or limit a destination or site; kept over restarts',
    group: outboundGroup,
    access: 'operate',
    params: Params,
    body: { kind: 'fields', schema: Body },
    answer: ControlAnswer,
    cache: 'no-store',
    handle: ({ params: { domain }, body, request }) => change(deps, domain, body, request),
  });

async function change(
  { controls, clock }: QueueDeps,
  written: string,
  body: z.output<typeof Body>,
  request: EndpointRequest,
): Promise<Response<z.output<typeof ControlAnswer>>> {
  const wanted = changeOf(body, clock.now());
  if (Object.keys(wanted).length === 0)
    throw problem('invalid', 'Nothing is changed: give suspendedUntil, suspendFor, maxConnections or ratePerMinute.');
  const { destination } = await controls.set(parseDestination(written), wanted, request.account?.username ?? null);
  const answer = controlAnswer(destination, controls.get(destination));
  return respond({
    status: 200,
    model: answer,
    location: controls.get(destination) === undefined ? '/client/destinations' : pageOf(destination),
    notice: noticeOf(answer),
    audit: { action: 'destination.change', selector: { destination, ...body } },
  });
}

const clearing = ({ controls }: QueueDeps) =>
  defineEndpoint({
    method: 'DELETE',
    path,
    summary: 'Reset a destination or site to its configured settings',
    group: outboundGroup,
    access: 'operate',
    params: Params,
    answer: ControlAnswer,
    cache: 'no-store',
    async handle({ params: { domain } }) {
      const destination = spelledDestination(domain);
      if (!(await controls.clear(destination)))
        throw problem('not-found', `${destination} is neither suspended nor limited.`);
      return respond({
        status: 200,
        model: controlAnswer(destination, undefined),
        location: '/client/destinations',
        notice: `${destination} is as configured again.`,
        audit: { action: 'destination.clear', selector: { destination } },
      });
    },
  });

const pageOf = (destination: string): string => `/client/destinations/${encodeURIComponent(destination)}`;

function changeOf(body: z.output<typeof Body>, now: number): Partial<DestinationControl> {
  const { suspendedUntil, suspendFor, reason, maxConnections, ratePerMinute } = body;
  const until = suspension(suspendedUntil, suspendFor, now);
  return {
    ...(until !== undefined && { suspendedUntil: until }),
    ...(reason !== undefined && until !== undefined && { reason: reason === '' ? null : reason }),
    ...(maxConnections !== undefined && { maxConnections: maxConnections === '' ? null : maxConnections }),
    ...(ratePerMinute !== undefined && {
      ratePerMinute: ratePerMinute === '' || ratePerMinute === 0 ? null : ratePerMinute,
    }),
  };
}

function suspension(
  until: string | null | undefined,
  seconds: number | '' | 'ever' | undefined,
  now: number,
): number | null | undefined {
  if (typeof seconds === 'number') return seconds === 0 ? null : now + seconds * 1000;
  if (seconds === 'ever') return Number.POSITIVE_INFINITY;
  if (until === undefined || until === '') return undefined;
  return until === null ? null : Date.parse(until);
}

function noticeOf({ destination, suspended, suspendedUntil }: z.output<typeof ControlAnswer>): string {
  if (!suspended) return `${destination} is not suspended; its limits are as shown.`;
  return suspendedUntil === null
    ? `${destination} is suspended until you resume it.`
    : `${destination} is suspended until ${suspendedUntil}.`;
}

const ControlAnswer = z.object({
  destination: z.string(),
  suspended: z.boolean(),
  suspendedUntil: z.string().nullable().describe('ISO 8601; null with suspended: until somebody resumes it'),
  reason: z.string().nullable(),
  maxConnections: z.int().nullable().describe('Null: as configured'),
  ratePerMinute: z.int().nullable(),
  by: z.string().nullable(),
  at: z.string().nullable(),
});

const WaitingAnswer = ControlAnswer.extend({
  site: z.string().nullable().describe('Shared with all that have the same servers; null while it is not known'),
  waiting: z.int().describe('Open recipients'),
  oldest: z.string().nullable(),
  lastReply: z.unknown(),
});
type Waiting = z.output<typeof WaitingAnswer>;

const DestinationAnswer = WaitingAnswer.extend({
  siteLimits: z
    .object({
      maxConnections: z.int(),
      ratePerMinute: z.int().nullable().describe('Null: no limit'),
      suspended: z.boolean(),
    })
    .describe('What holds for the site, whatever holds for the destination'),
  siteState: z
    .object({
      connections: z.int().describe('That it may have now'),
      busy: z.int().describe('Messages that are being sent, or are next'),
      recovering: z.boolean().describe('One try at a time shows whether it is back'),
      hanging: z
        .boolean()
        .describe(
          'Attempts take long and no message gets through: it shares a part of all connections with others like it',
        ),
    })
    .nullable()
    .describe('Null when nothing was sent there lately'),
  destinations: z.array(z.string()).describe('That share the site and have waiting mail, 100 at most'),
  mtaSts: z
    .object({
      mode: z.enum(['enforce', 'testing', 'none']),
      mx: z.array(z.string()),
      id: z.string(),
      fetched: z.string(),
      expires: z.string(),
    })
    .nullable()
    .describe('The policy that the domain publishes for the mail to it, as far as it is known here'),
  dane: z
    .object({
      lookedUp: z.string(),
      servers: z.array(
        z.object({
          host: z.string(),
          records: z.array(z.string()).describe('TLSA records, as in a zone file'),
          usable: z.int().describe('Those that can match a certificate; with none, TLS is demanded and nothing more'),
        }),
      ),
      skipped: z.array(z.string()).describe('Servers that get no mail, since their TLSA records cannot be looked up'),
    })
    .nullable()
    .describe('What the TLSA records of its servers demand, as looked up last'),
});

type DestinationDeps = QueueDeps & Pick<SendingDeps, 'routes'>;
type Deps = Pick<QueueDeps, 'queue' | 'controls' | 'sites' | 'clock'>;

const maxListed = 1000;
const maxShared = 100;

/** Destinations with waiting mail or with settings of an operator. */
export async function waitingDestinations({ queue, controls, sites, clock }: Deps): Promise<readonly Waiting[]> {
  const { byDestination } = await queue.statistics(clock.now());
  const waiting = byDestination.slice(0, maxListed).map(({ destination }) => destination);
  const controlled = controls.list().map(({ destination }) => destination);
  const names = new Set([...new Set([...controlled, ...waiting])].slice(0, maxListed));
  const rows = await rowsOf(byDestination, names, sites);
  return [...names].map((name) => ({ ...controlAnswer(name, controls.get(name)), ...waitingFor(name, rows, sites) }));
}

/** Undefined for an unknown destination. */
async function oneDestination(
  name: string,
  { routes, siteNames, pace, policies, hops, ...deps }: DestinationDeps,
): Promise<z.output<typeof DestinationAnswer> | undefined> {
  const { queue, controls, sites, clock } = deps;
  const control = controls.get(name);
  const { byDestination, destinationCount } = await queue.statistics(clock.now());
  const site = isSite(name) ? name : sites.peek(name);
  const rows = await rowsOf(byDestination, new Set([name, site ?? name]), sites);
  // Small ones may not be listed, or without their reply.
  if (destinationCount !== undefined && !isSite(name) && (rows.byName.get(name)?.lastReply ?? null) === null) {
    const own = await queue.statistics(clock.now(), { destination: name });
    for (const row of own.byDestination) rows.byName.set(row.destination, row);
  }
  const shared = rows.bySite.get(site ?? '') ?? [];
  const configured = [...routes().map(routeKey), ...siteNames()];
  const policy = policies.peek(name);
  const dane = daneAnswer(hops.last(name));
  const isKnown = rows.byName.has(name) || (control ?? policy ?? dane) !== undefined || configured.includes(name);
  if (!isKnown && !(isSite(name) && shared.length > 0)) return undefined;
  // A destination without a known site has its own limits.
  const { now, maxConnections, ratePerMinute, suspended } = pace(site ?? name);
  return {
    ...controlAnswer(name, control),
    ...waitingFor(name, rows, sites),
    siteLimits: { maxConnections, ratePerMinute: ratePerMinute ?? null, suspended: site !== undefined && suspended },
    siteState: now ?? null,
    destinations: shared.slice(0, maxShared).map(({ destination }) => destination),
    mtaSts: policyAnswer(policy),
    dane: dane ?? null,
  };
}

function daneAnswer(
  last: ReturnType<QueueDeps['hops']['last']>,
): z.output<typeof DestinationAnswer>['dane'] | undefined {
  if (last === undefined) return undefined;
  const { at, found } = last;
  const servers = found.outcome === 'found' ? found.servers : [];
  const byHost = new Map(servers.flatMap(({ host = '', tls: { dane } }) => (dane === undefined ? [] : [[host, dane]])));
  const skipped = [...(found.skipped ?? [])];
  if (byHost.size === 0 && skipped.length === 0) return undefined;
  const answers = [...byHost].map(([host, dane]) => {
    return { host, records: dane.records.map(tlsaText), usable: usableTlsa(dane).length };
  });
  return { lookedUp: isoTime(at), servers: answers, skipped };
}

function policyAnswer(policy: KeptPolicy | undefined): z.output<typeof DestinationAnswer>['mtaSts'] {
  if (policy === undefined) return null;
  const { mode, mx, id, fetchedAt } = policy;
  return { mode, mx, id, fetched: isoTime(fetchedAt), expires: isoTime(endOf(policy)) };
}

type Row = QueueStatistics['byDestination'][number];

interface Rows {
  readonly byName: Map<string, Row>;
  readonly bySite: ReadonlyMap<string, readonly Row[]>;
}

/** The rows of these destinations and sites. There may be very many rows in total, so it yields to other work. */
async function rowsOf(all: readonly Row[], names: ReadonlySet<string>, sites: QueueDeps['sites']): Promise<Rows> {
  const byName = new Map<string, Row>();
  const bySite = new Map<string, Row[]>();
  const slice = new TimeSlice();
  for (const row of all) {
    if (names.has(row.destination)) byName.set(row.destination, row);
    const site = sites.peek(row.destination);
    if (site !== undefined && names.has(site)) {
      const shared = bySite.get(site) ?? [];
      shared.push(row);
      bySite.set(site, shared);
    }
    const pause = slice.yieldIfDue();
    if (pause !== undefined) await pause;
  }
  return { byName, bySite };
}

/** For a site: everything that waits for any of its destinations. */
function waitingFor(
  name: string,
  rows: Rows,
  sites: QueueDeps['sites'],
): Omit<Waiting, keyof typeof ControlAnswer.shape> {
  const meant = isSite(name)
    ? (rows.bySite.get(name) ?? [])
    : [rows.byName.get(name)].filter((row) => row !== undefined);
  const replies = meant.flatMap(({ lastReply }) => lastReply ?? []).sort((one, other) => other.at - one.at);
  const oldest = meant.reduce((least, row) => Math.min(least, row.oldest), Infinity);
  return {
    site: isSite(name) ? name : (sites.peek(name) ?? null),
    waiting: meant.reduce((sum, { total }) => sum + total, 0),
    oldest: meant.length === 0 ? null : isoTime(oldest),
    lastReply: replyAnswer(replies[0] ?? null),
  };
}

function controlAnswer(destination: string, control: RecordedControl | undefined): z.output<typeof ControlAnswer> {
  const until = control?.suspendedUntil ?? null;
  return {
    destination,
    suspended: until !== null,
    suspendedUntil: until === null || !Number.isFinite(until) ? null : isoTime(until),
    reason: control?.reason ?? null,
    maxConnections: control?.maxConnections ?? null,
    ratePerMinute: control?.ratePerMinute ?? null,
    by: control?.by ?? null,
    at: control === undefined ? null : isoTime(control.at),
  };
}

/** Fields for the page of a destination, beside those of the JSON. */
function destinationPage(answer: z.output<typeof DestinationAnswer>) {
  const { destination, site, destinations } = answer;
  const isOfSite = isSite(destination);
  return {
    ...answer,
    isSite: isOfSite,
    title: isOfSite ? (siteLabel(site, '') ?? destination) : destination,
    siteLabel: site === null ? null : siteLabel(site, ''),
    siteHref: site === null || isOfSite ? null : `/client/destinations/${encodeURIComponent(site)}`,
    others: destinations.filter((other) => other !== destination),
  };
}
