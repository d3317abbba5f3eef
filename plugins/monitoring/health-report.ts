import type { HealthOverview } from '../../core/contracts/server.js';
import type { ComponentHealth, HealthState } from '../../core/host/health.js';
import type { Log } from '../../core/log/log.js';
import { version } from './system/own-package.js';

export type HealthWord = 'UP' | 'DEGRADED' | 'DOWN';

/** What everybody may know. */
export interface ShortHealth {
  readonly status: HealthWord;
}

export interface FullHealth extends ShortHealth {
  /** Seconds. */
  readonly uptime: number;
  readonly components: Readonly<Record<string, Omit<ComponentHealth, 'figures'>>>;
}

/** With the statistics of the server. */
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

/** The status is that of the components as listed, not of a second look. */
export function extendedHealth(health: HealthOverview): ExtendedHealth {
  const components = health.components();
  const all = Object.values(components).map(({ status }) => status);
  const worst = (['down', 'degraded'] as const).find((state) => all.includes(state)) ?? 'up';
  return { status: words[worst], uptime: health.uptime(), versions, components };
}

/** Writes every change of state to the log, once. */
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
      if (status === 'up') this.#log.info({ component, status }, 'a component is well again');
      else this.#log[status === 'down' ? 'error' : 'warn']({ component, status, why }, 'a component is not well');
    }
    this.#known = Object.fromEntries(entries.map(([component, { status }]) => [component, status]));
  }
}
