import type { Clock } from '../clock.js';
import type { PluginFault } from '../contracts/plugins-overview.js';
import type { HealthReport } from './health.js';
import { redactText } from '../log/redact.js';

/** So many faults within so long make a plugin degraded. */
const worrying = 3;
const windowMs = 5 * 60_000;
const longestMessage = 500;

interface Record {
  count: number;
  last: PluginFault;
  /** Monotonic times of the newest faults, at most as many as worry. */
  recent: readonly number[];
}

/** What went wrong in each plugin since it was started or reloaded. */
export class PluginFaults {
  readonly #clock: Clock;
  readonly #records = new Map<string, Record>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  record(plugin: string, where: string, error: unknown): void {
    const message = redactText(error instanceof Error ? error.message : String(error)).slice(0, longestMessage);
    const last = { at: new Date(this.#clock.now()).toISOString(), where, message };
    const { count, recent } = this.#records.get(plugin) ?? { count: 0, recent: [] };
    this.#records.set(plugin, {
      count: count + 1,
      last,
      recent: [...recent, this.#clock.monotonic()].slice(-worrying),
    });
  }

  /** It begins anew. */
  forget(plugin: string): void {
    this.#records.delete(plugin);
  }

  count(plugin: string): number {
    return this.#records.get(plugin)?.count ?? 0;
  }

  last(plugin: string): PluginFault | null {
    return this.#records.get(plugin)?.last ?? null;
  }

  report(plugin: string): HealthReport {
    const record = this.#records.get(plugin);
    const now = this.#clock.monotonic();
    const recent = record?.recent.filter((at) => now - at < windowMs) ?? [];
    if (record === undefined || recent.length < worrying) return { status: 'up' };
    const { where, message } = record.last;
    return {
      status: 'degraded',
      why: `It failed ${worrying} times or more in the last five minutes, the last time in ${where}: ${message}`,
    };
  }
}
