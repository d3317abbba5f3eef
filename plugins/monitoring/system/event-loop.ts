import { monitorEventLoopDelay, type IntervalHistogram } from 'node:perf_hooks';
import type { HealthReport } from '../../../core/host/health.js';
import type { MonitoringSettings } from '../options.js';

/** How often the loop is asked for a turn, in milliseconds: what is measured holds this much without any delay. */
const RESOLUTION_MS = 20;

type Threshold = Pick<MonitoringSettings['eventLoop'], 'degradedAboveMs'>;

/** What of node's histogram is used. */
export type Delays = Pick<IntervalHistogram, 'percentile' | 'reset' | 'enable' | 'disable'>;

/** How late the event loop is: the 99th percentile between two looks. */
export class EventLoop {
  readonly #delays: Delays;
  #threshold: Threshold;
  #lagMs = 0;

  constructor(threshold: Threshold, delays: Delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS })) {
    this.#threshold = threshold;
    this.#delays = delays;
    delays.enable();
  }

  /** Seconds. */
  get lag(): number {
    return this.#lagMs / 1000;
  }

  look(): void {
    this.#lagMs = Math.max(0, this.#delays.percentile(99) / 1e6 - RESOLUTION_MS);
    this.#delays.reset();
  }

  reconfigure(threshold: Threshold): void {
    this.#threshold = threshold;
  }

  report(): HealthReport {
    const figures = { delayMs: Math.round(this.#lagMs * 10) / 10 };
    if (this.#lagMs <= this.#threshold.degradedAboveMs) return { status: 'up', figures };
    const why = `The event loop was ${Math.round(this.#lagMs)} ms late in 1 of 100 turns.`;
    return { status: 'degraded', why, figures };
  }

  close(): void {
    this.#delays.disable();
  }
}
