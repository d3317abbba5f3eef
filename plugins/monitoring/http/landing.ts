import type { QueuedMail } from '../../../core/contracts/relay-queue.js';
import type { Catalogue, Configuration, HealthOverview, EndpointDescription } from '../../../core/contracts/server.js';
import type { ComponentHealth } from '../../../core/contracts/health.js';
import type { Activity, ActivityFigures } from '../charts/activity.js';
import type { DiskSpace, Space } from '../system/probes.js';
import { type ExtendedHealth, extendedHealth, type HealthWord } from '../health.js';
import type { Traffic, TrafficRange, TrafficReport } from '../traffic/traffic.js';
import { version } from '../../../core/host/installation.js';

export interface LandingListener {
  readonly name: string;
  readonly address: string;
}

export interface LandingEndpoint extends Omit<EndpointDescription, 'hidden' | 'group' | 'anchor'> {
  /** Target of a link: the address itself when a GET without parameters works. */
  readonly href: string | null;
  readonly docs: string;
}

export interface LandingGroup {
  readonly name: string;
  readonly anchor: string;
  readonly endpoints: readonly LandingEndpoint[];
}

/** The landing page and its JSON. */
export interface Landing extends ActivityFigures {
  readonly status: HealthWord;
  /** Components that are not up. */
  readonly troubles: readonly (Omit<ComponentHealth, 'figures'> & { readonly name: string })[];
  readonly version: string;
  readonly hostname: string;
  /** Seconds. */
  readonly uptime: number;
  readonly listeners: readonly LandingListener[];
  readonly disk: Space | null;
  /** Open entries of the queue; null without a queue. */
  readonly queue: number | null;
  /** The entry that waits longest; null when none waits. */
  readonly oldest: { readonly uid: string; readonly queuedAt: string; readonly sender: string | null } | null;
  readonly traffic: TrafficReport;
  /** The listener whose certificate expires first; null without TLS. */
  readonly certificate: { readonly listener: string; readonly days: number } | null;
  readonly q: string;
  /** Number of shown endpoints, and of all. */
  readonly shown: number;
  readonly total: number;
  readonly groups: readonly LandingGroup[];
}

export interface LandingDeps {
  readonly catalogue: Catalogue;
  readonly configuration: Configuration;
  readonly health: HealthOverview;
  readonly activity: Activity;
  readonly disk: DiskSpace;
  readonly traffic: Traffic;
  readonly queue: Pick<QueuedMail, 'size' | 'list'> | undefined;
}

/** @param q words that must all occur in method, path, purpose, group or access of an endpoint */
export async function landing(deps: LandingDeps, q: string, range: TrafficRange): Promise<Landing> {
  const { catalogue, configuration, health, activity, disk, traffic, queue } = deps;
  const { status, uptime, components } = extendedHealth(health);
  const { shown, total, groups } = interfaceOf(catalogue.endpoints(), q);
  return {
    status,
    troubles: Object.entries(components)
      .filter(([, component]) => component.status !== 'up')
      .map(([name, { status: state, since, why, page }]) => ({
        name,
        status: state,
        since,
        why,
        ...(page !== undefined && { page }),
      })),
    version,
    hostname: configuration.hostname,
    uptime,
    listeners: catalogue.listeners?.().map(bound) ?? listenersOf(configuration),
    ...activity.figures(),
    disk: disk.space ?? null,
    queue: queue?.size ?? null,
    oldest: (await oldestIn(queue)) ?? null,
    traffic: traffic.report(range),
    certificate: nextCertificate(components) ?? null,
    q,
    shown,
    total,
    groups,
  };
}

async function oldestIn(queue: LandingDeps['queue']): Promise<NonNullable<Landing['oldest']> | undefined> {
  if (queue === undefined || queue.size === 0) return undefined;
  const { items } = await queue.list({ filter: {}, limit: 1, sort: 'queuedAt', order: 'asc' });
  return items.map(({ uid, queuedAt, sender }) => ({ uid, queuedAt: new Date(queuedAt).toISOString(), sender }))[0];
}

function nextCertificate(components: ExtendedHealth['components']): Landing['certificate'] | undefined {
  return Object.entries(components)
    .filter(([name]) => name === 'http' || name.startsWith('listener '))
    .flatMap(([name, { figures }]) => {
      const days = figures?.['certificateDays'];
      return days === undefined ? [] : [{ listener: name.replace(/^listener /, ''), days }];
    })
    .toSorted((a, b) => a.days - b.days)[0];
}

type Interface = Pick<Landing, 'shown' | 'total' | 'groups'>;

/** All endpoints, by the list that the server makes anew when one of them changes. */
const whole = new WeakMap<readonly EndpointDescription[], Interface>();

/** The same object for the same endpoints, so that the page keeps how they look. */
function interfaceOf(endpoints: readonly EndpointDescription[], q: string): Interface {
  const known = q === '' ? whole.get(endpoints) : undefined;
  if (known !== undefined) return known;
  const all = endpoints.filter(({ hidden }) => !hidden);
  const shown = all.filter((endpoint) => matches(endpoint, q));
  const found = { shown: shown.length, total: all.length, groups: groupsOf(shown) };
  if (q === '') whole.set(endpoints, found);
  return found;
}

function matches({ method, path, summary, group, access }: EndpointDescription, q: string): boolean {
  const text = `${method} ${path} ${summary} ${group} ${access}`.toLowerCase();
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function groupsOf(endpoints: readonly EndpointDescription[]): readonly LandingGroup[] {
  const groups = new Map<string, LandingEndpoint[]>();
  for (const { group, hidden: _, anchor, ...endpoint } of endpoints) {
    const direct = endpoint.method === 'GET' && !endpoint.path.includes('{');
    const listed = { ...endpoint, href: direct ? endpoint.path : null, docs: `/docs#${anchor}` };
    const known = groups.get(group);
    if (known === undefined) groups.set(group, [listed]);
    else known.push(listed);
  }
  return [...groups].map(([name, listed]) => ({
    name,
    anchor: `group-${name.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`,
    endpoints: listed.toSorted((a, b) => (a.path === b.path ? 0 : a.path < b.path ? -1 : 1)),
  }));
}

const bound = ({ name, host, port }: { name: string; host: string; port: number }): LandingListener => ({
  name,
  address: `${host.includes(':') ? `[${host}]` : host}:${port}`,
});

/** Configured listeners: name or mode, and address. */
function listenersOf(configuration: Configuration): readonly LandingListener[] {
  const found = new Map<string, Map<string, unknown>>();
  for (const { key, value } of configuration.effective()) {
    const [, index, name] = /^smtp\.listeners\.(\d+)\.(name|mode|host|port)$/.exec(key) ?? [];
    if (index === undefined || name === undefined) continue;
    found.set(index, (found.get(index) ?? new Map<string, unknown>()).set(name, value));
  }
  return [...found.values()].map((listener) => {
    const text = (name: string): string => {
      const value = listener.get(name);
      return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
    };
    return bound({ name: text('name') || text('mode'), host: text('host'), port: Number(text('port')) });
  });
}
