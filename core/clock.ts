import { performance } from 'node:perf_hooks';

/** Time, injected so that tests can turn it. */
export interface Clock {
  /** Milliseconds since 1970-01-01 UTC; may jump. For what people read and files are named. */
  now(): number;
  /** Milliseconds since some fixed point; never goes back. For durations, deadlines and windows. */
  monotonic(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};
