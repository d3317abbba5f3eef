import type { WatchdogSettings } from './options.js';

/** From when on the watching thread does what; all in milliseconds. */
export interface Thresholds {
  /** Between two beats of the main thread, and between two looks at them. */
  readonly everyMs: number;
  /** A stall of so long is looked at and told. */
  readonly toldAboveMs: number;
  /** One of so long is written down. */
  readonly writtenAboveMs: number;
  /** One of so long ends the process; 0 is never. */
  readonly killedAboveMs: number;
}

const leastMs = 200;

/** @param asked what observers want to be told of, in milliseconds */
export function thresholdsOf(
  { stallSeconds, restartAfterSeconds }: WatchdogSettings,
  asked: readonly number[],
): Thresholds {
  const killedAboveMs = restartAfterSeconds * 1000;
  const writtenAboveMs = Math.min(stallSeconds * 1000, killedAboveMs || Infinity);
  const toldAboveMs = Math.max(leastMs, Math.min(writtenAboveMs, ...asked.filter((ms) => ms > 0)));
  return {
    // Seldom while nobody asks for short ones: a server without work is to sleep.
    everyMs: Math.min(1000, Math.max(leastMs / 2, Math.floor(toldAboveMs / 3))),
    toldAboveMs,
    writtenAboveMs,
    killedAboveMs,
  };
}
