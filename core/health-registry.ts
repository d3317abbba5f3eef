import type { Clock } from './clock.js';
import type { HealthOverview } from './contracts/server.js';
import type { ComponentHealth, HealthCheck, HealthReport, HealthState } from './health.js';

interface Component {
  readonly plugin: string;
  readonly check: HealthCheck;
  /** What was seen last, and since when. */
  seen: { readonly status: HealthState; readonly since: string };
}

const gravity: Readonly<Record<HealthState, number>> = { up: 0, degraded: 1, down: 2 };

/** Every component's health, asked when somebody looks. */
export class HealthRegistry implements HealthOverview {
  readonly #clock: Clock;
  readonly #started: number;
  readonly #components = new Map<string, Component>();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
    this.#started = clock.monotonic();
  }

  /**
   * @returns takes the check away again
   * @throws Error when another check has that name
   */
  check(plugin: string, component: string, check: HealthCheck): () => void {
    const taken = this.#components.get(component);
    if (taken !== undefined) {
      throw new Error(`Health component "${component}" of plugin ${plugin} is already checked by ${taken.plugin}.`);
    }
    const entry: Component = { plugin, check, seen: { status: 'up', since: this.#now() } };
    this.#components.set(component, entry);
    return () => {
      if (this.#components.get(component) === entry) this.#components.delete(component);
    };
  }

  status(): HealthState {
    return Object.values(this.components()).reduce<HealthState>(
      (worst, { status }) => (gravity[status] > gravity[worst] ? status : worst),
      'up',
    );
  }

  uptime(): number {
    return Math.floor((this.#clock.monotonic() - this.#started) / 1000);
  }

  components(): Readonly<Record<string, ComponentHealth>> {
    const names = [...this.#components.entries()].sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(names.map(([name, component]) => [name, this.#look(component)]));
  }

  #look(component: Component): ComponentHealth {
    const { status, why } = ask(component.check);
    if (status !== component.seen.status) component.seen = { status, since: this.#now() };
    return { status, since: component.seen.since, why: status === 'up' ? null : (why ?? null) };
  }

  #now(): string {
    return new Date(this.#clock.now()).toISOString();
  }
}

/** A check that fails says nothing about its component: it is not known to work, and not known to be down. */
function ask(check: HealthCheck): HealthReport {
  const unknown: HealthReport = {
    status: 'degraded',
    why: 'The check of this component failed; its state is not known.',
  };
  try {
    const report = check();
    return report.status in gravity ? report : unknown;
  } catch {
    return unknown;
  }
}
