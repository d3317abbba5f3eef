/** State of one component (listener, store, disk, …). `degraded` still works; `down` makes `/health` answer 503. */
export type HealthState = 'up' | 'degraded' | 'down';

export interface HealthReport {
  readonly status: HealthState;
  /** A sentence for an operator when the state is not up. */
  readonly why?: string;
  /**
   * What `/health/extended` shows; names carry their unit: `oldestSeconds`, `freeBytes`, `delayMs`. A function where they
   * cost something: `/health` needs the state alone.
   */
  readonly figures?: Readonly<Record<string, number>> | (() => Readonly<Record<string, number>>);
  /** Path of the page that shows more, or mends it: `/client/queue/list`. */
  readonly page?: string;
}

/** Called on demand; must answer within milliseconds, from what is already known. */
export type HealthCheck = () => HealthReport;

export interface ComponentHealth {
  readonly status: HealthState;
  /** ISO 8601 time of the last change of state. */
  readonly since: string;
  readonly why: string | null;
  readonly figures?: Readonly<Record<string, number>>;
  readonly page?: string;
}
