import { z } from 'zod';
import {
  type AnyEndpoint,
  defineEndpoint,
  type EndpointRequest,
  respond,
  type Response,
} from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import type { DestinationControl, RecordedControl } from '../destination-controls.js';
import { parseDestination, routeKey } from '../destination-key.js';
import { isoTime, replyAnswer, statisticsAnswer } from '../entry-answer.js';
import { group, type QueueSite, type SendingSite } from '../queue-site.js';

const Params = z.object({
  domain: z.string().min(1).max(300).describe('A domain, [literal], or route:NAME.'),
});

const Control = z.object({
  destination: z.string(),
  suspended: z.boolean(),
  suspendedUntil: z.string().nullable().describe('ISO 8601; null with suspended: until somebody resumes it'),
  reason: z.string().nullable(),
  maxConnections: z.int().nullable().describe('Null: as configured'),
  ratePerMinute: z.int().nullable(),
  by: z.string().nullable(),
  at: z.string().nullable(),
});
type ControlAnswer = z.output<typeof Control>;

const Waiting = Control.extend({
  waiting: z.int().describe('Open recipients'),
  oldest: z.string().nullable(),
  lastReply: z.unknown(),
});

const count = z.union([z.literal(''), z.null(), z.int().min(0).max(10_000)]).optional();

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

type DestinationSite = QueueSite & Pick<SendingSite, 'routes'>;

/** Destinations can be suspended and limited one by one. */
export function destinationEndpoints(site: DestinationSite): readonly AnyEndpoint[] {
  return [listing(site), naming(site), reading(site), changing(site), clearing(site)];
}

const path = '/client/destinations/{domain}';

const listing = ({ queue, controls, clock }: QueueSite) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/destinations',
    summary: 'Destinations with waiting mail, and those that are suspended or limited',
    group,
    access: 'read',
    answer: z.object({
      items: z.array(Waiting),
      total: z.int(),
      limit: z.int(),
      nextCursor: z.string().nullable(),
      prevCursor: z.string().nullable(),
    }),
    view: 'destinations.njk',
    cache: 'no-store',
    async handle() {
      const items = await waitingOf({ queue, controls, clock });
      return { items, total: items.length, limit: items.length, nextCursor: null, prevCursor: null };
    },
  });

async function waitingOf({ queue, controls, clock }: Pick<QueueSite, 'queue' | 'controls' | 'clock'>) {
  const { byDestination } = statisticsAnswer(await queue.statistics(clock.now()));
  const known = new Map(byDestination.map((row) => [row.destination, row]));
  const names = [...new Set([...controls.list().map(({ destination }) => destination), ...known.keys()])];
  return names.slice(0, 1000).map((name) => ({
    ...controlAnswer(name, controls.get(name)),
    waiting: known.get(name)?.total ?? 0,
    oldest: known.get(name)?.oldest ?? null,
    lastReply: known.get(name)?.lastReply ?? null,
  }));
}

const naming = (site: QueueSite) =>
  defineEndpoint({
    method: 'POST',
    path: '/client/destinations',
    summary: 'Suspend or limit a destination that is named in the body, also before any mail waits for it',
    group,
    access: 'operate',
    body: { kind: 'fields', schema: Body.extend({ destination: z.string().min(1).max(300) }) },
    answer: Control,
    cache: 'no-store',
    handle: ({ body: { destination, ...body }, request }) => change(site, destination, body, request),
  });

const reading = ({ queue, controls, clock, routes }: DestinationSite) =>
  defineEndpoint({
    method: 'GET',
    path,
    summary: 'One destination: what waits for it, whether it is suspended, its limits',
    group,
    access: 'read',
    params: Params,
    answer: Waiting,
    view: 'destination.njk',
    cache: 'no-store',
    async handle({ params: { domain } }) {
      const destination = domain.toLowerCase();
      const { byDestination } = await queue.statistics(clock.now());
      const row = byDestination.find((known) => known.destination === destination);
      const control = controls.get(destination);
      if (row === undefined && control === undefined && !routes().some((route) => routeKey(route) === destination))
        throw problem('not-found', 'No mail waits for that destination, and nothing was said of it.');
      return {
        ...controlAnswer(destination, control),
        waiting: row?.total ?? 0,
        oldest: row === undefined ? null : isoTime(row.oldest),
        lastReply: replyAnswer(row?.lastReply ?? null),
      };
    },
  });

const changing = (site: QueueSite) =>
  defineEndpoint({
    method: 'PUT',
    path,
    summary: 'Suspend, resume or limit a destination; it holds over restarts',
    group,
    access: 'operate',
    params: Params,
    body: { kind: 'fields', schema: Body },
    answer: Control,
    cache: 'no-store',
    handle: ({ params: { domain }, body, request }) => change(site, domain, body, request),
  });

async function change(
  { controls, clock }: QueueSite,
  written: string,
  body: z.output<typeof Body>,
  request: EndpointRequest,
): Promise<Response<ControlAnswer>> {
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

const clearing = ({ controls }: QueueSite) =>
  defineEndpoint({
    method: 'DELETE',
    path,
    summary: 'Forget what was said of a destination: it is as configured again',
    group,
    access: 'operate',
    params: Params,
    answer: Control,
    cache: 'no-store',
    async handle({ params: { domain } }) {
      const destination = domain.toLowerCase();
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

function controlAnswer(destination: string, control: RecordedControl | undefined): ControlAnswer {
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

function noticeOf({ destination, suspended, suspendedUntil }: ControlAnswer): string {
  if (!suspended) return `${destination} is not suspended; its limits are as shown.`;
  return suspendedUntil === null
    ? `${destination} is suspended until you resume it.`
    : `${destination} is suspended until ${suspendedUntil}.`;
}
