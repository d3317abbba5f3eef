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

type Task = () => void | Promise<void>;

/** What runs later, injected so that tests can turn the time. */
export interface Timers {
  /** Runs the task once after that many milliseconds; the answer takes it back. Does not keep the process alive. */
  after(ms: number, task: Task): () => void;
}

/** A longer wait than node can count would be none at all. */
const maxTimerMs = 2 ** 31 - 1;

export const systemTimers: Timers = {
  after(ms, task) {
    const timer = setTimeout(() => void task(), Math.min(ms, maxTimerMs)).unref();
    return () => clearTimeout(timer);
  },
};

/**
 * Runs the task every so many seconds, never two at once, until the answer is called. What it throws is logged. Throws a
 * RangeError unless there is a pause between two runs.
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
