/** State of one component (listener, store, disk, …). `degraded` still works; `down` makes `/health` answer 503. */
export type HealthState = 'up' | 'degraded' | 'down';

export interface HealthReport {
  readonly status: HealthState;
  /** A sentence for an operator when it is not up. */
  readonly why?: string;
  /** What `/health/extended` shows; names carry their unit: `oldestSeconds`, `freeBytes`, `delayMs`. */
  readonly figures?: Readonly<Record<string, number>>;
}

/** Asked when somebody looks; answers within milliseconds, from what is already known. */
export type HealthCheck = () => HealthReport;

export interface ComponentHealth {
  readonly status: HealthState;
  /** ISO 8601 time since when this state holds. */
  readonly since: string;
  readonly why: string | null;
  readonly figures?: Readonly<Record<string, number>>;
}
