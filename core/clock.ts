import { performance } from 'node:perf_hooks';

/** Time; tests replace it. */
export interface Clock {
  /** Milliseconds since 1970-01-01 UTC; may jump. For dates and file names. */
  now(): number;
  /** Milliseconds since a fixed point; never goes back. For durations, deadlines and windows. */
  monotonic(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};

type Task = () => void | Promise<void>;

/** Delayed tasks; tests replace them. */
export interface Timers {
  /** Runs the task once after the delay; returns the cancel. Does not keep the process alive. */
  after(ms: number, task: Task): () => void;
}

/** Node fires longer timers at once. */
const maxTimerMs = 2 ** 31 - 1;

export const systemTimers: Timers = {
  after(ms, task) {
    const timer = setTimeout(() => void task(), Math.min(ms, maxTimerMs)).unref();
    return () => clearTimeout(timer);
  },
};

/**
 * Runs the task at an interval, never two at once, until the returned function is called. Logs errors of the task.
 *
 * @throws RangeError unless the interval is above 0
 */
export function repeat(
  seconds: number,
  task: Task,
  { timers, log }: { readonly timers: Timers; readonly log: { error(fields: object, message: string): void } },
): () => void {
  if (!(seconds > 0)) throw new RangeError(`every(${seconds}, …): the pause must be above 0 seconds.`);
  let stopped = false;
  let cancel: () => void = schedule();

  async function run(): Promise<void> {
    try {
      await task();
    } catch (error) {
      log.error({ err: error }, 'a timed task failed');
    }
    if (!stopped) cancel = schedule();
  }

  function schedule(): () => void {
    return timers.after(seconds * 1000, run);
  }

  return () => {
    stopped = true;
    cancel();
  };
}
