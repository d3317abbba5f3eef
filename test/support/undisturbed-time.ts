import { readFileSync } from 'node:fs';

/**
 * Milliseconds without those in which this thread was ready to run and the machine did something else, so that two rates
 * can be compared on a busy machine. Where the system does not say, those of the clock.
 */
export function undisturbedMs(): number {
  return performance.now() - waitedMs();
}

function waitedMs(): number {
  try {
    const [, waitedNs] = readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1').split(' ');
    return Number(waitedNs) / 1e6;
  } catch {
    return 0;
  }
}
