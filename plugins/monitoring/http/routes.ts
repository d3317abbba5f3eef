import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../core/host/installation.js';
import { Readable } from 'node:stream';
import { z } from 'zod';
import type { HealthOverview, MetricsExposition } from '../../../core/contracts/server.js';
import { type AnyEndpoint, type ByteSource, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import type { Account } from '../../../core/contracts/accounts.js';
import { holds } from '../../../core/http/access.js';
import type { Finder, FoundPage } from '../finder.js';
import {
  extendedHealth,
  type ExtendedHealth,
  fullHealth,
  type FullHealth,
  shortHealth,
  type ShortHealth,
} from '../health.js';
import { trafficRanges } from '../traffic/traffic.js';
import { landing, type Landing, type LandingDeps } from './landing.js';

const group = 'Service';
const Status = z.enum(['UP', 'DEGRADED', 'DOWN']);
const Component = z.object({
  status: z.enum(['up', 'degraded', 'down']),
  since: z.iso.datetime(),
  why: z.string().nullable(),
});
const Short = z.object({ status: Status });
const Full = Short.extend({
  uptime: z
    .int()
    .min(0)
    .max(2 ** 40)
    .describe('Seconds since the start.'),
  components: z.record(z.string(), Component),
});
const Extended = Full.extend({
  versions: z.record(z.string(), z.string()),
  components: z.record(
    z.string(),
    Component.extend({
      figures: z
        .record(z.string(), z.number())
        .optional()
        .describe('Statistics of the component. Names carry their unit: `oldestSeconds`, `freeBytes`, `delayMs`.'),
      page: z.string().optional().describe('Path of the page that shows more, or mends it.'),
    }),
  ),
});

export interface MonitoringRouteDeps extends LandingDeps {
  readonly metrics: MetricsExposition;
  readonly finder: Finder;
}

export function monitoringEndpoints(deps: MonitoringRouteDeps): readonly AnyEndpoint[] {
  return [
    landingEndpoint(deps),
    healthEndpoint(deps),
    extendedEndpoint(deps),
    faviconEndpoint(),
    prometheusEndpoint(deps),
  ];
}

const landingEndpoint = (deps: MonitoringRouteDeps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/',
    success: [200, 303],
    summary: 'Overview: the state of the server and every endpoint',
    group,
    access: 'read',
    query: z.strictObject({
      q: z.string().max(200).default('').describe('Words to filter the endpoints by.'),
      find: z
        .string()
        .max(998)
        .default('')
        .describe('A queue uid, a Message-ID or an address: the pages about it. Browsers are led to /search.'),
      range: z.enum(trafficRanges).default('24h').describe('Which mail is counted: of the last day, or of thirty.'),
    }),
    view: 'landing.njk',
    fallback: 'html',
    handle: async ({ query, request }) => {
      const wanted = query.find.trim();
      const all = wanted === '' ? [] : await deps.finder.find(wanted);
      const found = all.filter(({ access }) => mayRead(request.account, access));
      const model: LandingPage = { ...(await landing(deps, query.q.trim(), query.range)), find: wanted, found };
      if (request.representation !== 'html' || wanted === '') return model;
      return respond({ model, status: 303, headers: { Location: `/search?q=${encodeURIComponent(wanted)}` } });
    },
  });

/** An endpoint with credentials of its own asks for those; its account has access. */
const mayRead = (account: Account | null, access: string): boolean =>
  !(access === 'read' || access === 'operate' || access === 'admin') || holds(account, access);

interface LandingPage extends Landing {
  readonly find: string;
  readonly found: readonly FoundPage[];
}

/** RFC 9110 §15.6.4: a load balancer removes a server that is DOWN. */
const statusOf = ({ status }: ShortHealth): number => (status === 'DOWN' ? 503 : 200);

const healthEndpoint = ({ health }: { readonly health: HealthOverview }): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/health',
    success: [200, 503],
    summary: 'Health in one word; with every component for signed-in accounts',
    group,
    access: 'public',
    answer: z.union([Full, Short]),
    view: 'health.njk',
    fallback: 'json',
    cache: 'no-store',
    page: (model: ShortHealth | FullHealth) => pageOf(model),
    handle: ({ request }) => {
      const model = request.account === null ? shortHealth(health) : fullHealth(health);
      return respond({ model, status: statusOf(model) });
    },
  });

const extendedEndpoint = ({ health }: { readonly health: HealthOverview }): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/health/extended',
    success: [200, 503],
    summary: 'Health of every component with since, why and statistics',
    group,
    access: 'read',
    answer: Extended,
    view: 'health.njk',
    cache: 'no-store',
    page: (model: ExtendedHealth) => pageOf(model),
    handle: () => {
      const model = extendedHealth(health);
      return respond({ model, status: statusOf(model) });
    },
  });

/** The view lists components; the short form has none. */
function pageOf(model: ShortHealth | FullHealth | ExtendedHealth): object {
  if (!('components' in model)) return { ...model, full: false, uptime: 0, list: [] };
  const list = Object.entries(model.components).map(([name, component]) => ({
    name,
    ...component,
    figures: Object.entries('figures' in component ? (component.figures ?? {}) : {}).map(figureOf),
  }));
  return { ...model, full: true, list, versions: 'versions' in model ? Object.entries(model.versions) : [] };
}

/** `oldestSeconds` → `oldest`, shown as a duration. */
function figureOf([name, value]: readonly [string, number]): object {
  const [, stem = name, unit = ''] = /^(.+?)(Seconds|Bytes|Ms)?$/.exec(name) ?? [];
  return { label: stem.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`), unit, value };
}

function faviconEndpoint(): AnyEndpoint {
  const icon = readFileSync(join(packageRoot, 'public', 'icons', 'postern.ico'));
  const source: ByteSource = {
    size: icon.length,
    open: (start, end) => Readable.from([icon.subarray(start, end + 1)]),
  };
  return defineEndpoint({
    method: 'GET',
    path: '/favicon.ico',
    summary: 'The icon of these pages',
    group,
    access: 'public',
    cache: 'public',
    hidden: true,
    produces: ['bytes'],
    // An icon is never saved, so it needs no Content-Disposition.
    handle: () => respond({ bytes: { source, contentType: 'image/x-icon' }, headers: { 'Content-Disposition': '' } }),
  });
}

const prometheusEndpoint = ({ metrics }: MonitoringRouteDeps): AnyEndpoint =>
  defineEndpoint({
    method: 'GET',
    path: '/metrics/prometheus',
    summary: 'Metrics for Prometheus, as text format 0.0.4 or OpenMetrics 1.0',
    group,
    access: 'read',
    produces: ['text', 'openmetrics'],
    fallback: 'text',
    cache: 'no-store',
    handle: async ({ request }) =>
      respond({
        text: await metrics.render(request.representation === 'openmetrics' ? 'openmetrics' : 'prometheus'),
      }),
  });
