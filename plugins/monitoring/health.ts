import { memoryUsage } from 'node:process';
import type { Clock } from '../../core/clock.js';
import type { Catalogue, Configuration, HealthOverview } from '../../core/contracts/server.js';
import type { ComponentHealth, HealthReport, HealthState } from '../../core/contracts/health.js';
import type { Log } from '../../core/log/log.js';
import type { HookDescription } from '../../core/pipeline/hook.js';
import type { PluginContext } from '../../core/plugin.js';
import type { Activity } from './charts/activity.js';
import type { MonitoringSettings } from './options.js';
import { DiskSpace, EventLoop, SessionRoom, spaceOf, WriteProbe } from './system/probes.js';
import { version } from '../../core/host/installation.js';

/** Interval of the checks of disk, event loop, hooks and health. */
const SAMPLE_SECONDS = 10;
/** Interval of the write test. */
const PROBE_SECONDS = 30;

interface HealthDeps {
  readonly catalogue: Catalogue;
  readonly configuration: Configuration;
  readonly health: HealthOverview;
  readonly activity: Activity;
  readonly options: MonitoringSettings;
}

interface HealthWatch {
  readonly disk: DiskSpace;
  readonly probe: WriteProbe;
  readonly eventLoop: EventLoop;
}

/** Registers the components of the server itself, and checks all of them at intervals. */
export async function watchHealth(context: PluginContext, deps: HealthDeps): Promise<HealthWatch> {
  const { clock, health, log } = context;
  const { catalogue, configuration, activity, options } = deps;
  const disk = new DiskSpace(() => spaceOf(configuration.data), options.disk);
  const probe = new WriteProbe({ folder: configuration.data, clock });
  const eventLoop = new EventLoop(options.eventLoop);
  context.onClose(() => eventLoop.close());
  const hooks = new HookFailures(() => catalogue.hooks(), clock);
  const room = new SessionRoom(() => activity.sessions, configuration);
  const changes = new HealthChanges(deps.health, log);
  await disk.look();
  await probe.look();

  health.check('disk', () => ({ ...disk.report(), page: '/metrics' }));
  health.check('disk writes', () => probe.report());
  health.check('eventLoop', () => ({ ...eventLoop.report(), page: '/system/threads' }));
  health.check('memory', () => ({ status: 'up', figures: memoryFigures }));
  health.check('pipeline', () => ({ ...hooks.report(), page: '/pipeline' }));
  health.check('sessions', () => room.report());
  context.every(PROBE_SECONDS, () => probe.look());
  context.every(SAMPLE_SECONDS, async () => {
    await disk.look();
    eventLoop.look();
    hooks.look();
    changes.look();
  });
  return { disk, probe, eventLoop };
}

function memoryFigures(): Readonly<Record<string, number>> {
  const { rss, heapUsed, heapTotal, external, arrayBuffers } = memoryUsage();
  return {
    residentBytes: rss,
    heapUsedBytes: heapUsed,
    heapTotalBytes: heapTotal,
    externalBytes: external,
    arrayBufferBytes: arrayBuffers,
  };
}

export type HealthWord = 'UP' | 'DEGRADED' | 'DOWN';

/** For anonymous clients. */
export interface ShortHealth {
  readonly status: HealthWord;
}

export interface FullHealth extends ShortHealth {
  /** Seconds. */
  readonly uptime: number;
  readonly components: Readonly<Record<string, Omit<ComponentHealth, 'figures'>>>;
}

/** With server statistics. */
export interface ExtendedHealth extends FullHealth {
  readonly versions: Readonly<Record<'postern' | 'node' | 'v8' | 'openssl', string>>;
  readonly components: Readonly<Record<string, ComponentHealth>>;
}

const { node, v8, openssl } = process.versions;
const versions = { postern: version, node, v8, openssl };
const words = { up: 'UP', degraded: 'DEGRADED', down: 'DOWN' } as const;

export const shortHealth = (health: HealthOverview): ShortHealth => ({ status: words[health.status()] });

export function fullHealth(health: HealthOverview): FullHealth {
  const { status, uptime, components } = extendedHealth(health);
  const states: Record<string, Omit<ComponentHealth, 'figures'>> = {};
  for (const [name, component] of Object.entries(components)) {
    states[name] = { status: component.status, since: component.since, why: component.why };
  }
  return { status, uptime, components: states };
}

/** The status of the listed components, not of a second check. */
export function extendedHealth(health: HealthOverview): ExtendedHealth {
  const components = health.components();
  const all = Object.values(components).map(({ status }) => status);
  const worst = (['down', 'degraded'] as const).find((state) => all.includes(state)) ?? 'up';
  return { status: words[worst], uptime: health.uptime(), versions, components };
}

/** Logs every change of state once. */
export class HealthChanges {
  readonly #health: HealthOverview;
  readonly #log: Log;
  #known: Readonly<Record<string, HealthState>> = {};

  constructor(health: HealthOverview, log: Log) {
    this.#health = health;
    this.#log = log;
  }

  look(): void {
    const entries = Object.entries(this.#health.components());
    for (const [component, { status, why }] of entries) {
      if (status === (this.#known[component] ?? 'up')) continue;
      if (status === 'up') this.#log.info({ component, status }, 'health check recovered');
      else this.#log[status === 'down' ? 'error' : 'warn']({ component, status, why }, 'health check degraded');
    }
    this.#known = Object.fromEntries(entries.map(([component, { status }]) => [component, status]));
  }
}

/** How long a failure is reported. */
const MEMORY_MS = 5 * 60_000;

/** Reports hooks that failed recently: their mail is deferred, and no other component would say why. */
export class HookFailures {
  readonly #hooks: () => readonly HookDescription[];
  readonly #clock: Clock;
  #counts = new Map<string, number>();
  #seen: { readonly at: number; readonly place: string; readonly count: number }[] = [];

  constructor(hooks: () => readonly HookDescription[], clock: Clock) {
    this.#hooks = hooks;
    this.#clock = clock;
  }

  look(): void {
    const now = this.#clock.monotonic();
    const counts = countsOf(this.#hooks());
    for (const [place, count] of counts) {
      const known = this.#counts.get(place) ?? 0;
      // The counters of a replaced hook start from zero.
      const fresh = count >= known ? count - known : count;
      if (fresh > 0) this.#seen.push({ at: now, place, count: fresh });
    }
    this.#counts = counts;
    this.#seen = this.#seen.filter(({ at }) => now - at < MEMORY_MS);
  }

  report(): HealthReport {
    const last = this.#seen.at(-1);
    if (last === undefined) return { status: 'up' };
    const total = this.#seen.reduce((all, { count }) => all + count, 0);
    const times = total === 1 ? 'once' : `${total} times`;
    const why = `Hooks failed ${times} in the last five minutes, the last one ${last.place}: those messages were deferred (451).`;
    return { status: 'degraded', why };
  }
}

function countsOf(hooks: readonly HookDescription[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { plugin, stage, failures } of hooks) {
    const place = `of ${plugin} at ${stage}`;
    counts.set(place, (counts.get(place) ?? 0) + failures);
  }
  return counts;
}
