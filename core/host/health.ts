import type { Clock } from '../clock.js';
import type { ComponentHealth, HealthCheck, HealthReport, HealthState } from '../contracts/health.js';
import { markOf, runAs } from '../watchdog/running-code.js';

interface Component {
  readonly plugin: string;
  readonly check: HealthCheck;
  /** Last observed state, and since when. */
  seen: { readonly status: HealthState; readonly since: string };
}

const severity: Readonly<Record<HealthState, number>> = { up: 0, degraded: 1, down: 2 };

/** Health of every component, checked on demand. */
export class HealthRegistry {
  readonly #clock: Clock;
  readonly #started: number;
  /** Sorted by name. */
  #components: ReadonlyMap<string, Component> = new Map();
  #changes = 0;

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
    this.#started = clock.monotonic();
  }

  /**
   * @returns removes the check
   * @throws Error when another check has that name, or this one is not a function
   */
  check(plugin: string, component: string, check: HealthCheck): () => void {
    const taken = this.#components.get(component);
    if (taken !== undefined) {
      throw new Error(`Health component "${component}" of plugin ${plugin} is already checked by ${taken.plugin}.`);
    }
    if (typeof check !== 'function') {
      throw new Error(`Health component "${component}" of plugin ${plugin}: the check is not a function.`);
    }
    const mark = markOf(plugin, `health check ${component}`);
    const entry: Component = { plugin, check: () => runAs(mark, check), seen: { status: 'up', since: this.#now() } };
    this.#setComponents([...this.#components, [component, entry]]);
    return () => this.#setComponents([...this.#components].filter(([, other]) => other !== entry));
  }

  status(): HealthState {
    let worst: HealthState = 'up';
    for (const component of this.#components.values()) {
      const { status } = this.#look(component);
      if (severity[status] > severity[worst]) worst = status;
    }
    return worst;
  }

  get changes(): number {
    return this.#changes;
  }

  uptime(): number {
    return Math.floor((this.#clock.monotonic() - this.#started) / 1000);
  }

  components(): Readonly<Record<string, ComponentHealth>> {
    return Object.fromEntries(Array.from(this.#components, ([name, component]) => [name, this.#examine(component)]));
  }

  #setComponents(components: readonly (readonly [string, Component])[]): void {
    this.#changes += 1;
    this.#components = new Map(components.toSorted(([a], [b]) => (a < b ? -1 : 1)));
  }

  #look(component: Component): HealthReport {
    const report = runCheck(component.check);
    const { status } = report;
    if (status !== component.seen.status) {
      component.seen = { status, since: this.#now() };
      this.#changes += 1;
    }
    return report;
  }

  #examine(component: Component): ComponentHealth {
    const report = this.#look(component);
    const { status, why, page } = report;
    const { since } = component.seen;
    const reason = status === 'up' ? null : (why ?? null);
    const more = page !== undefined && { page };
    if (report.figures === undefined) return { status, since, why: reason, ...more };
    return {
      status,
      since,
      why: reason,
      // Most callers need the state alone.
      get figures() {
        return figuresOf(report) ?? {};
      },
      ...more,
    };
  }

  #now(): string {
    return new Date(this.#clock.now()).toISOString();
  }
}

/** They may fail, which says nothing about the state. */
function figuresOf({ figures }: HealthReport): ComponentHealth['figures'] {
  try {
    return typeof figures === 'function' ? figures() : figures;
  } catch {
    return undefined;
  }
}

/** A check that fails leaves the state of its component unknown: neither up nor down. */
function runCheck(check: HealthCheck): HealthReport {
  const unknown = (why: string): HealthReport => ({ status: 'degraded', why: `${why}; its state is not known.` });
  try {
    const report: HealthReport | Promise<unknown> = check();
    if (report instanceof Promise)
      return unknown('The check of this component returned a promise: it must be synchronous');
    if (Object.hasOwn(severity, report.status)) return report;
    return unknown(
      `The check of this component answered ${JSON.stringify(report.status)}: valid are up, degraded and down`,
    );
  } catch {
    return unknown('The check of this component failed');
  }
}
