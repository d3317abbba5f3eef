import { z } from 'zod';
import type { QueueStatistics } from '../../../core/contracts/queue-list.js';
import type { RecordedControl } from '../delivery/destination-controls.js';
import { routeKey } from '../delivery/destination-key.js';
import { isoTime, replyAnswer } from './entry-answer.js';
import type { KeptPolicy } from '../mta-sts/policy-file.js';
import { endOf } from '../mta-sts/sts-policies.js';
import type { QueueSite, SendingSite } from './queue-site.js';
import { Turn } from '../queue/turn.js';
import { isSite } from '../delivery/site-key.js';

export const ControlAnswer = z.object({
  destination: z.string(),
  suspended: z.boolean(),
  suspendedUntil: z.string().nullable().describe('ISO 8601; null with suspended: until somebody resumes it'),
  reason: z.string().nullable(),
  maxConnections: z.int().nullable().describe('Null: as configured'),
  ratePerMinute: z.int().nullable(),
  by: z.string().nullable(),
  at: z.string().nullable(),
});

export const WaitingAnswer = ControlAnswer.extend({
  site: z.string().nullable().describe('Shared with all that have the same servers; null while it is not known'),
  waiting: z.int().describe('Open recipients'),
  oldest: z.string().nullable(),
  lastReply: z.unknown(),
});
type Waiting = z.output<typeof WaitingAnswer>;

export const DestinationAnswer = WaitingAnswer.extend({
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
});

export type DestinationSite = QueueSite & Pick<SendingSite, 'routes'>;
type Ground = Pick<QueueSite, 'queue' | 'controls' | 'sites' | 'clock'>;

const mostListed = 1000;
const mostShared = 100;

/** Destinations with waiting mail, and what somebody has said something of. */
export async function waitingDestinations({ queue, controls, sites, clock }: Ground): Promise<readonly Waiting[]> {
  const { byDestination } = await queue.statistics(clock.now());
  const waiting = byDestination.slice(0, mostListed).map(({ destination }) => destination);
  const controlled = controls.list().map(({ destination }) => destination);
  const names = new Set([...new Set([...controlled, ...waiting])].slice(0, mostListed));
  const rows = await rowsOf(byDestination, names, sites);
  return [...names].map((name) => ({ ...controlAnswer(name, controls.get(name)), ...waitingFor(name, rows, sites) }));
}

/** Undefined when it is none of ours. */
export async function oneDestination(
  name: string,
  { routes, siteNames, pace, policies, ...ground }: DestinationSite,
): Promise<z.output<typeof DestinationAnswer> | undefined> {
  const { queue, controls, sites, clock } = ground;
  const control = controls.get(name);
  const { byDestination } = await queue.statistics(clock.now());
  const site = isSite(name) ? name : sites.peek(name);
  const rows = await rowsOf(byDestination, new Set([name, site ?? name]), sites);
  const shared = rows.bySite.get(site ?? '') ?? [];
  const configured = [...routes().map(routeKey), ...siteNames()];
  const policy = policies.peek(name);
  const isKnown = rows.byName.has(name) || (control ?? policy) !== undefined || configured.includes(name);
  if (!isKnown && !(isSite(name) && shared.length > 0)) return undefined;
  // The limits of a destination whose site is not known are its own.
  const { now, maxConnections, ratePerMinute, suspended } = pace(site ?? name);
  return {
    ...controlAnswer(name, control),
    ...waitingFor(name, rows, sites),
    siteLimits: { maxConnections, ratePerMinute: ratePerMinute ?? null, suspended: site !== undefined && suspended },
    siteState: now ?? null,
    destinations: shared.slice(0, mostShared).map(({ destination }) => destination),
    mtaSts: policyAnswer(policy),
  };
}

function policyAnswer(policy: KeptPolicy | undefined): z.output<typeof DestinationAnswer>['mtaSts'] {
  if (policy === undefined) return null;
  const { mode, mx, id, fetchedAt } = policy;
  return { mode, mx, id, fetched: isoTime(fetchedAt), expires: isoTime(endOf(policy)) };
}

type Row = QueueStatistics['byDestination'][number];

interface Rows {
  readonly byName: ReadonlyMap<string, Row>;
  readonly bySite: ReadonlyMap<string, readonly Row[]>;
}

/** The rows of these destinations and sites. Of all rows there may be very many: others get turns in between. */
async function rowsOf(all: readonly Row[], names: ReadonlySet<string>, sites: QueueSite['sites']): Promise<Rows> {
  const byName = new Map<string, Row>();
  const bySite = new Map<string, Row[]>();
  const turn = new Turn();
  for (const row of all) {
    if (names.has(row.destination)) byName.set(row.destination, row);
    const site = sites.peek(row.destination);
    if (site !== undefined && names.has(site)) {
      const shared = bySite.get(site) ?? [];
      shared.push(row);
      bySite.set(site, shared);
    }
    const rest = turn.step();
    if (rest !== undefined) await rest;
  }
  return { byName, bySite };
}

/** Of a site: all that waits for any of its destinations. */
function waitingFor(
  name: string,
  rows: Rows,
  sites: QueueSite['sites'],
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

export function controlAnswer(
  destination: string,
  control: RecordedControl | undefined,
): z.output<typeof ControlAnswer> {
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
