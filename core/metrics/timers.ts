import type { Log } from '../log/log.js';

type Task = () => void | Promise<void>;

/** What runs later, injected so that tests can turn the time. */
export interface Timers {
  /** Runs the task once after that many milliseconds; the answer takes it back. Does not keep the process alive. */
  after(ms: number, task: Task): () => void;
}

/** A longer wait than node can count would be none at all. */
const longestMs = 2 ** 31 - 1;

export const systemTimers: Timers = {
  after(ms, task) {
    const timer = setTimeout(() => void task(), Math.min(ms, longestMs)).unref();
    return () => clearTimeout(timer);
  },
};

/**
 * Runs the task every so many seconds, never two at once, until the answer is called. What it throws is logged. Throws a
 * RangeError unless there is a pause between two runs.
 */
export function repeat(seconds: number, task: Task, { timers, log }: { timers: Timers; log: Log }): () => void {
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
