import { z } from 'zod';
import {
  type AnyEndpoint,
  defineEndpoint,
  type EndpointRequest,
  respond,
  type Response,
} from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import {
  ControlAnswer,
  controlAnswer,
  DestinationAnswer,
  type DestinationSite,
  oneDestination,
  WaitingAnswer,
  waitingDestinations,
} from './destination-answer.js';
import type { DestinationControl } from '../delivery/destination-controls.js';
import { parseDestination, spelledDestination } from '../delivery/destination-key.js';
import { destinationPage } from './destination-page.js';
import { group, type QueueSite } from './queue-site.js';
import { siteLabel } from '../delivery/site-key.js';

/** A site is named by all of its servers. */
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

/** Destinations can be suspended and limited one by one. */
export function destinationEndpoints(site: DestinationSite): readonly AnyEndpoint[] {
  return [listing(site), naming(site), reading(site), changing(site), clearing(site)];
}

const path = '/client/destinations/{domain}';

const listing = (site: QueueSite) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/destinations',
    summary: 'Destinations with waiting mail, and destinations and sites that are suspended or limited',
    group,
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
      const found = await waitingDestinations(site);
      const isPage = request.representation === 'html';
      const items = isPage ? found.map((one) => ({ ...one, siteLabel: siteLabel(one.site, one.destination) })) : found;
      return { items: [...items], total: items.length, limit: items.length, nextCursor: null, prevCursor: null };
    },
  });

const naming = (site: QueueSite) =>
  defineEndpoint({
    method: 'POST',
    path: '/client/destinations',
    summary: 'Suspend or limit a destination or site that is named in the body, also before any mail waits for it',
    group,
    access: 'operate',
    body: { kind: 'fields', schema: Body.extend({ destination: name }) },
    answer: ControlAnswer,
    cache: 'no-store',
    handle: ({ body: { destination, ...body }, request }) => change(site, destination, body, request),
  });

const reading = (site: DestinationSite) =>
  defineEndpoint({
    method: 'GET',
    path,
    summary: 'One destination or site: what waits for it, whether it is suspended, its limits',
    group,
    access: 'read',
    params: Params,
    answer: DestinationAnswer,
    view: 'destination.njk',
    cache: 'no-store',
    async handle({ params: { domain }, request }) {
      const found = await oneDestination(spelledDestination(domain), site);
      if (found === undefined)
        throw problem('not-found', 'No mail waits for that destination, and nothing was said of it.');
      return request.representation === 'html' ? destinationPage(found) : found;
    },
  });

const changing = (site: QueueSite) =>
  defineEndpoint({
    method: 'PUT',
    path,
    summary: 'Suspend, resume or limit a destination or site; it holds over restarts',
    group,
    access: 'operate',
    params: Params,
    body: { kind: 'fields', schema: Body },
    answer: ControlAnswer,
    cache: 'no-store',
    handle: ({ params: { domain }, body, request }) => change(site, domain, body, request),
  });

async function change(
  { controls, clock }: QueueSite,
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

const clearing = ({ controls }: QueueSite) =>
  defineEndpoint({
    method: 'DELETE',
    path,
    summary: 'Forget what was said of a destination or site: it is as configured again',
    group,
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
